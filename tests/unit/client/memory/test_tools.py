"""An agent's memory tools: for one subject only, with approval of changes, and with sources."""

from __future__ import annotations

import perdure
from perdure import assistant, tool_call, user
from perdure.session.memory.kinds import memory_stream
from perdure.session.messages import Message
from perdure.testing import ScriptedModel
from tests.fakes.clock import ManualClock


def says(name: str, **args: object) -> Message:
    return assistant(tool_call("c1", name, dict(args)))


async def run(
    store: perdure.Store, *answers: Message | str, subject: str | None, answer: str = "allow"
) -> list[str]:
    """Run one turn of an agent with the tools; return the results of its calls."""
    agent = perdure.Agent("helper", model="x:y", tools=perdure.memory_tools(store.memory))
    asked: list[str] = []

    async def decide(question: perdure.types.OpenQuestion) -> None:
        asked.append(question.id)
        await store.answer(question.id, answer, by="ana")

    models = ScriptedModel([*answers, "Done."])
    async with perdure.Runtime(store, agents=[agent], models=models, on_question=decide) as runtime:
        chat = await runtime.start("helper", subject=subject)
        await chat.send("I like tea")
        calls = await store.tool_calls(session=chat.id)
    return [*(call.output or call.error or "" for call in calls), f"{len(asked)} asked"]


async def test_remember_tool_stores_subject_and_source_of_the_fact() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        result, asked = await run(store, says("remember", text="Likes tea"), subject="ana")
        assert asked == "1 asked"
        (fact,) = await store.memory.facts(subject="ana")
        assert result == f"Remembered as {fact.id}."
        assert (fact.text, fact.said_by, len(fact.sources)) == ("Likes tea", "inferred", 1)
        assert await store.memory.facts() == []
        assert "Likes tea" in (await run(store, says("facts"), subject="ana"))[0]
        for subject in ("bob", None):
            (listed, asked) = await run(store, says("facts"), subject=subject)
            assert (listed.splitlines()[-1], asked) == ("No facts.", "0 asked")
        newer = await run(store, says("correct", fact=fact.id, text="Likes milk"), subject="ana")
        assert newer == [f"Corrected {fact.id}.", "1 asked"]
        await store.erase((await store.memory.fact(fact.id)).sources[0].split("/")[0])
        assert await store.memory.facts(subject="ana") == []


async def test_fact_of_another_agent_is_neither_listed_nor_changed() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        own = await store.memory.remember("likes tea", subject="ana", agent="helper")
        other = await store.memory.remember("likes milk", subject="ana", agent="planner")
        (listed, _) = await run(store, says("facts"), subject="ana")
        assert (own.id in listed, other.id in listed) == (True, False)
        for call in (says("forget", fact=other.id), says("correct", fact=other.id, text="no")):
            await run(store, call, subject="ana")
        assert await store.memory.fact(other.id) == other


async def test_denied_memory_call_changes_no_fact() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        fact = await store.memory.remember("likes tea", subject="ana")
        await run(store, says("forget", fact=fact.id), subject="ana", answer="deny")
        assert await store.memory.facts(subject="ana") == [fact]
        await run(store, says("forget", fact=fact.id), subject="ana")
        assert await store.memory.facts(subject="ana") == []


async def test_memory_tools_never_change_or_recall_facts_of_another_subject() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        fact = await store.memory.remember("likes tea", subject="ana")
        for change in (says("forget", fact=fact.id), says("correct", fact=fact.id, text="x")):
            for subject in ("bob", None):
                (result, _) = await run(store, change, subject=subject)
                assert "no fact" in result
        assert await store.memory.facts(subject="ana") == [fact]
        session = await store.create(subject="ana")
        await session.append(perdure.user("The hotel is called Aurora"))
        asked = says("recall", question="Which hotel is it?")
        assert (await run(store, asked, subject="bob"))[0].endswith("Nothing was found.")
        assert "Aurora" in (await run(store, asked, subject="ana"))[0]


async def test_past_sessions_can_be_found_by_words_and_can_be_read() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        past = await store.create(subject="ana")
        entries = await past.append_many([user(f"The hotel number {n}") for n in range(40)])
        await past.append(assistant("The Aurora."), user("a" * 2_000))
        (found, asked) = await run(store, says("search_sessions", query="hotel 7"), subject="ana")
        assert (f"[{entries[7].id}] The hotel number 7" in found, asked) == (True, "0 asked")

        (newest, _) = await run(store, says("read_session", session=past.id), subject="ana")
        call = says("read_session", session=past.id, before=entries[3].id)
        (oldest, _) = await run(store, call, subject="ana")

    assert "assistant: The Aurora." in newest
    assert newest.endswith("aaa […]")
    assert (entries[11].id in newest, entries[12].id in newest) == (False, True)
    assert oldest.count("The hotel number") == 3


async def test_sessions_of_another_subject_can_be_neither_found_nor_read() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        await store.memory.remember("likes tea", subject="ana")
        others = [await store.create(subject=subject) for subject in ("bob", None)]
        for other in others:
            await other.append_many([user("The Aurora hotel")] * 60)
        (found, _) = await run(store, says("search_sessions", query="Aurora"), subject="ana")
        assert found.endswith("Nothing was found.")
        for id in (*(other.id for other in others), memory_stream("ana"), "missing"):
            (read, _) = await run(store, says("read_session", session=id), subject="ana")
            assert f"SessionNotFound: no session {id!r}" in read
        own = await store.create(subject="ana")
        await own.append(user("mine"))
        entry = (await others[0].path())[-1].id
        call = says("read_session", session=own.id, before=entry)
        (read, _) = await run(store, call, subject="ana")
        assert "Aurora" not in read


async def test_recall_tool_finds_facts_and_summaries_of_its_subject_and_agent() -> None:
    async with perdure.open("memory:", clock=ManualClock()) as store:
        past = await store.create(subject="ana")
        await past.append(user("Where do we stay?"))
        await past.end(summary="The hotel is by the river.")
        memory = store.memory
        own = await memory.remember("The hotel is quiet", subject="ana", agent="helper")
        await memory.remember("The hotel of the planner", subject="ana", agent="planner")
        await memory.remember("The hotel of bob", subject="bob")
        answer, _ = await run(store, says("recall", question="Which hotel?"), subject="ana")
        assert "Summary: The hotel is by the river." in answer
        assert f"[{own.id}] Fact: The hotel is quiet" in answer
        assert ("planner" in answer, "bob" in answer) == (False, False)
