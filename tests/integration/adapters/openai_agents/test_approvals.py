"""If a call of an SDK run needs approval, the inbox lists a question; the run uses the answer."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, cast

import pytest
from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message, function_call

import perdure
from perdure.adapters.openai_agents import PerdureSession
from perdure.errors import QuestionClosed
from tests.fakes.forked import run_forked
from tests.fakes.forked_commands import run_command
from tests.fakes.processes import child
from tests.integration.adapters.conftest import POSTGRES_LATER
from tests.integration.adapters.openai_agents.children import asking
from tests.integration.adapters.openai_agents.children.asking import (
    CONFIG,
    TEXTS,
    agent_in,
    answering,
    pause,
    resume,
)

CHILD = Path(__file__).parent / "children" / "asking.py"
COMMITS = 6
"""Commits of a paused run: the session, the question, the calls, the state, and two questions."""


def command(address: str, *words: str) -> str:
    """Return the output of ``perdure`` with the arguments `words`."""
    done = run_command([*words, "--store", address], {**os.environ, "LANG": "C.UTF-8"}, Path.cwd())
    assert done.code == 0, done.err
    return done.out.decode()


def sent(folder: Path) -> list[str]:
    return (folder / "sent").read_text().split() if (folder / "sent").exists() else []


async def outputs_of(session: PerdureSession) -> list[str]:
    items = [cast("dict[str, Any]", item) for item in await session.get_items()]
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


@POSTGRES_LATER
async def test_run_uses_command_line_answers_after_a_kill(
    store_address: str, tmp_path: Path
) -> None:
    with child(CHILD, "ask", store_address, tmp_path) as process:
        assert process.line() == "saved"
        os.kill(process.pid, 9)
    listed = json.loads(command(store_address, "inbox", "list", "--json"))
    assert [(each["tool"], each["arguments"]) for each in listed] == [
        ("send", {"text": text}) for text in TEXTS
    ]
    assert "sender asks to run send" in command(store_address, "inbox", "show", listed[0]["id"])
    said = command(store_address, "inbox", "answer", listed[0]["id"], "allow")
    assert "The program that asked reads the answer." in said
    command(store_address, "inbox", "answer", listed[1]["id"], "deny", "--note", "not on a Friday")
    with child(CHILD, "resume", store_address, tmp_path) as process:
        assert process.line() == "All is done."
        os.kill(process.pid, 9)
    assert sent(tmp_path) == ["report"]
    async with perdure.open(store_address) as store:
        session = PerdureSession("s", store)
        assert await outputs_of(session) == ["sent report", "not on a Friday"]
        assert await store.questions() == []
        assert await session.load_state(answering(tmp_path)) is None
        assert (await store.verify()).is_ok


async def test_unanswered_question_stays_open_after_the_run_is_resumed(
    store_address: str, tmp_path: Path
) -> None:
    async with perdure.open(store_address) as store:
        session = PerdureSession("s", store)
        await pause(session, asking.asking(tmp_path, *TEXTS))
        first, second = await store.questions()
        await store.answer(second.id, "allow", by="ana")
        again = await resume(session, answering(tmp_path))
        assert again is not None
        assert len(again.interruptions) == 1
        assert sent(tmp_path) == ["bill"]
        assert [each.id for each in await store.questions()] == [first.id]
        await store.answer(first.id, "deny", by="ana")
        ended = await resume(session, answering(tmp_path))
        assert ended is not None
        assert ended.final_output == "All is done."
        assert sent(tmp_path) == ["bill"]


@pytest.mark.parametrize("choice", ["allow", "deny"])
async def test_question_answered_during_the_run_is_not_repeated(
    choice: str, tmp_path: Path
) -> None:
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        await pause(session, asking.asking(tmp_path, *TEXTS))
        first, second = await store.questions()
        await store.answer(first.id, "allow", by="ana")
        agent = answering(tmp_path)
        state = await session.load_state(agent)
        assert state is not None
        result = await Runner.run(agent, state, session=session, run_config=CONFIG)
        assert sent(tmp_path) == ["report"]
        await store.answer(second.id, choice, by="ana", note="not on a Friday")
        for _ in range(2):
            await session.save_state(result.to_state())
            assert await store.questions() == []
        ended = await resume(PerdureSession("s", store), answering(tmp_path))
        assert ended is not None
        assert ended.final_output == "All is done."
        assert sent(tmp_path) == (["report", "bill"] if choice == "allow" else ["report"])


async def test_approval_used_by_one_run_applies_to_no_other_run(tmp_path: Path) -> None:
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        await pause(session, asking.asking(tmp_path, "report"))
        (first,) = await store.questions()
        await store.answer(first.id, "allow", by="ana")
        agent = answering(tmp_path)
        state = await session.load_state(agent)
        assert state is not None
        await Runner.run(agent, state, session=session, run_config=CONFIG)
        await pause(PerdureSession("s", store), asking.asking(tmp_path, "report"))
        (second,) = await store.questions()
        assert second.id != first.id
        again = await resume(session, answering(tmp_path))
        assert again is not None
        assert len(again.interruptions) == 1
        assert sent(tmp_path) == ["report"]


async def test_decision_by_the_program_withdraws_the_question(
    tmp_path: Path,
) -> None:
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        await pause(session, asking.asking(tmp_path, *TEXTS))
        questions = await store.questions()
        state = await session.load_state(answering(tmp_path))
        assert state is not None
        first, second = state.get_interruptions()
        state.approve(first)
        state.reject(second)
        await session.save_state(state)
        assert await store.questions() == []
        with pytest.raises(QuestionClosed):
            await store.answer(questions[0].id, "deny", by="ana")
        assert await resume(session, answering(tmp_path)) is not None
        assert sent(tmp_path) == ["report"]


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_decision_for_all_calls_of_a_tool_closes_its_questions(
    is_allowed: bool, tmp_path: Path
) -> None:
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        await pause(session, asking.asking(tmp_path, *TEXTS))
        questions = await store.questions()
        state = await session.load_state(answering(tmp_path))
        assert state is not None
        first = state.get_interruptions()[0]
        if is_allowed:
            state.approve(first, always_approve=True)
        else:
            state.reject(first, always_reject=True)
        await session.save_state(state)
        assert await store.questions() == []
        for each in questions:
            with pytest.raises(QuestionClosed):
                await store.answer(each.id, "deny" if is_allowed else "allow", by="ana")
        assert await resume(session, answering(tmp_path)) is not None
        assert sorted(sent(tmp_path)) == (sorted(TEXTS) if is_allowed else [])


async def test_approved_call_of_a_nested_agent_asks_no_question(tmp_path: Path) -> None:
    inner = asking.asking(tmp_path, *TEXTS).as_tool("inner", "Sends them.")
    calling = ScriptedModel([[function_call("inner", {"input": "go"}, call_id="o0")]])
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        outer = Agent[Any](name="outer", model=calling, tools=[inner])
        state = (await Runner.run(outer, "Go", session=session, run_config=CONFIG)).to_state()
        await session.save_state(state)
        assert len(await store.questions()) == 2
        state.approve(state.get_interruptions()[0])
        await session.save_state(state)
        (question,) = await store.questions()
        assert question.question.arguments == {"text": "bill"}


@pytest.mark.parametrize("ending", ["none", "clear", "erase"])
async def test_question_is_withdrawn_when_stored_state_is_removed(
    ending: str, tmp_path: Path
) -> None:
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store, clear="erase" if ending == "erase" else "branch")
        await pause(session, asking.asking(tmp_path, *TEXTS))
        await (session.save_state(None) if ending == "none" else session.clear_session())
        assert await store.questions() == []


async def test_answer_applies_to_no_other_call_with_the_same_id(tmp_path: Path) -> None:
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        for text, answer in (("report", None), ("bill", "allow"), ("will", None), ("bill", None)):
            await pause(session, asking.asking(tmp_path, text))
            (question,) = await store.questions()
            assert question.question.arguments == {"text": text}
            if answer is not None:
                await store.answer(question.id, answer, by="ana")
        again = await resume(session, answering(tmp_path))
        assert again is not None
        assert len(again.interruptions) == 1
        assert sent(tmp_path) == []


async def test_answer_to_a_similar_question_does_not_approve_the_call(
    tmp_path: Path,
) -> None:
    """A similar question has the choices of an approval and the id, tool or text of the call."""
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        await pause(session, asking.asking(tmp_path, "report"))
        own = (await store.questions())[0].question
        log = await store.open("oa:s")
        pay = perdure.tool_call("c0", "pay", {"euros": 5})
        allowed = [
            await log.ask("Pay 5 EUR?", ("allow", "deny"), call=pay),
            await log.ask(own.text, ("allow", "deny"), call=pay),
            await log.ask(
                own.text, ("allow", "deny"), call=perdure.tool_call("c0", "send", {"text": "bill"})
            ),
            await log.ask(
                own.text, ("allow", "deny"), call=perdure.tool_call("c1", "send", own.arguments)
            ),
        ]
        for each in allowed:
            await store.answer(each.id, "allow", by="ana")
        open_ones = [
            await log.ask("Deploy?", ("allow", "deny")),
            await log.ask("Deploy again?", ("allow", "deny")),
            await log.ask("Pay 6 EUR?", ("allow", "deny"), call=pay),
        ]
        again = await resume(session, answering(tmp_path))
        assert again is not None
        assert len(again.interruptions) == 1
        assert sent(tmp_path) == []
        waiting = await store.questions()
        assert [each.question.text for each in waiting if each.question.tool == "send"] == [
            own.text
        ]
        assert {each.id for each in open_ones} < {each.id for each in waiting}
        await session.save_state(None)
        assert {each.id for each in await store.questions()} == {each.id for each in open_ones}


async def test_imported_answer_approves_no_call(tmp_path: Path) -> None:
    async with perdure.open("memory:") as store:
        await pause(PerdureSession("s", store), asking.asking(tmp_path, "report"))
        (question,) = await store.questions()
        await store.answer(question.id, "allow", by="eve")
        await (await store.open("oa:s")).export("perdure", tmp_path / "s.perdure")
    async with perdure.open("memory:") as other:
        await other.import_files([tmp_path / "s.perdure"])
        session = PerdureSession("s", other)
        again = await resume(session, answering(tmp_path))
        assert again is not None
        assert len(again.interruptions) == 1
        assert sent(tmp_path) == []
        (own,) = await other.questions()
        await other.answer(own.id, "allow", by="ana")
        assert await resume(session, answering(tmp_path)) is not None
        assert sent(tmp_path) == ["report"]


async def test_question_masks_secrets_and_contains_the_entry_id_of_its_call(tmp_path: Path) -> None:
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        args = {"text": "report", "key": "sk-" + "a1B2" * 12}
        call = function_call("send", args, call_id="c0")
        await pause(session, agent_in(tmp_path, [call], [assistant_message("-")]))
        (question,) = await store.questions()
        assert "a1B2" not in repr(question)
        assert question.about is not None
        asking_entry = await store.entry(question.about)
        assert asking_entry.message is not None
        assert asking_entry.message.tool_calls[0].id == "c0"


@pytest.mark.full_only
async def test_paused_run_killed_at_any_commit_can_be_continued(tmp_path: Path) -> None:
    """After each commit, the inbox has only questions of a stored state; the run can continue."""
    done = run_forked(asking.pause_and_die, str(tmp_path), COMMITS + 1)
    assert done.out.decode().split() == [*["-9"] * COMMITS, "0"], done.err
    for dies_at in range(1, COMMITS + 1):
        folder = tmp_path / str(dies_at)
        async with perdure.open(f"sqlite:///{folder / 's.db'}") as store:
            session = PerdureSession("s", store)
            asked = await store.questions()
            assert len(asked) == max(0, dies_at - COMMITS + 2)
            if await resume(session, answering(folder)) is None:
                assert dies_at < COMMITS - 2
                await session.clear_session()
                await pause(session, asking.asking(folder, *TEXTS))
            for question in await store.questions():
                await store.answer(question.id, "allow", by="ana")
            ended = await resume(session, answering(folder))
            assert ended is not None
            assert ended.final_output == "All is done."
            assert sorted(sent(folder)) == sorted(TEXTS)
            assert await store.questions() == []
            assert (await store.verify()).is_ok


async def test_run_on_a_blocking_store_asks_for_approval(tmp_path: Path) -> None:
    with perdure.blocking.open(f"sqlite:///{tmp_path / 's.db'}") as store:
        session = PerdureSession("s", store)
        result = await Runner.run(
            asking.asking(tmp_path, "report"), "Send it", session=session, run_config=CONFIG
        )
        await session.save_state(result.to_state())
        (question,) = await asyncio.to_thread(store.questions)
        await asyncio.to_thread(store.answer, question.id, "allow", by="ana")
        assert await resume(session, answering(tmp_path)) is not None
        assert sent(tmp_path) == ["report"]
