"""Questions that a program asks outside a turn."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import cast

import pytest

import perdure
from perdure.client.agents.agent import Agent
from perdure.client.inbox.details import in_full
from perdure.errors import (
    AlreadyAnswered,
    EntryNotFound,
    InvalidEntry,
    QuestionClosed,
    QuestionNotFound,
    WrongArgument,
)
from perdure.types import Answer, Question
from tests.fakes.chats import MODEL, Stage, says
from tests.fakes.rivals import meanwhile

CALL = perdure.tool_call("c1", "send", {"text": "x" * 3000, "api_key": "sk-" + "a1B2" * 12})


async def test_question_is_listed_until_it_is_answered() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        asked = await session.ask("Which one?", ["a", "b"])
        assert [each.id for each in await store.questions()] == [asked.id]
        assert await session.answer_to(asked) is None
        with pytest.raises(InvalidEntry):
            await store.answer(asked.id, "c", by="ana")
        await store.answer(asked.id, "b", by="ana", note="it is cheaper")
        assert await session.answer_to(asked.id) == Answer("b", "ana", "it is cheaper")
        assert await store.questions() == []
        with pytest.raises(AlreadyAnswered):
            await session.answer(asked, "a", by="ben")
        assert await session.withdraw(asked) is None
        kinds = [event.type async for event in _events(session)]
        assert kinds == ["inbox:question", "inbox:answer"]


async def _events(session: perdure.Session):  # noqa: ANN202 - an iterator of events
    number = 0
    async for event in session.watch(-1):
        if event.type.startswith("inbox:"):
            number += 1
            yield event
        if number == 2:
            return


async def test_question_without_choices_accepts_text() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(id="s", lazy=True)
        asked = await session.ask("How?")
        assert not session.is_draft
        with pytest.raises(InvalidEntry):
            await store.answer(asked.id, "  ", by="ana")
        await store.answer(asked.id, "By train.", by="ana")
        answer = await session.answer_to(asked)
        assert answer is not None
        assert answer.choice == "By train."


async def test_withdrawn_question_accepts_no_answer() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        asked = await session.ask("Which one?", ["a"])
        assert await session.withdraw(asked) is not None
        assert await session.withdraw(asked) is None
        assert await store.questions() == []
        with pytest.raises(QuestionClosed) as refused:
            await store.answer(asked.id, "a", by="ana")
        told = "cannot be answered any more: the program that asked it has withdrawn it"
        assert str(refused.value) == f"question {asked.id} {told}"
        assert refused.value.reason == "cancelled"
        assert await session.answer_to(asked) is None


async def test_only_one_of_concurrent_answer_and_withdrawal_is_stored() -> None:
    outcomes: set[str] = set()
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        for number in range(20):
            asked = await session.ask("Which one?", ["a"])

            async def answer(id: str = asked.id, ticks: int = number) -> str:
                for _ in range(ticks):
                    await asyncio.sleep(0)
                try:
                    await store.answer(id, "a", by="ana")
                except QuestionClosed:
                    return "withdrawn"
                return "answered"

            outcome, withdrawn = await asyncio.gather(answer(), session.withdraw(asked))
            assert (withdrawn is None) == (outcome == "answered")
            assert (await session.answer_to(asked) is None) == (outcome == "withdrawn")
            outcomes.add(outcome)
    assert outcomes == {"answered", "withdrawn"}


async def test_secret_in_a_question_is_masked() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        said = await session.append(perdure.assistant(CALL))
        await session.ask("May it?", ["allow", "deny"], call=CALL, about=said)
        (asked,) = await store.questions()
        shown = asked.question.arguments or {}
        assert (asked.question.call_id, asked.question.tool, asked.about) == ("c1", "send", said.id)
        assert cast("dict[str, object]", shown["text"])["bytes"] == 3000
        assert "a1B2" not in repr(shown)
        assert (await in_full(store.backend, asked)).arguments == CALL.args


async def test_invalid_questions_are_rejected() -> None:
    async with perdure.open("memory:") as store:
        session, other = await store.create(id="s"), await store.create(id="t")
        for text, choices in ((" ", ["a"]), ("Which?", ["a", "a"]), ("Which?", [""])):
            with pytest.raises(WrongArgument):
                await session.ask(text, choices)
        with pytest.raises(WrongArgument):
            await session.ask("Which?", "ab")
        with pytest.raises(EntryNotFound):
            await session.ask("Which?", about="s/9")
        said = await session.append(perdure.user("Hello"))
        for wrong, error in ((said, InvalidEntry), (await other.ask("Which?"), EntryNotFound)):
            with pytest.raises(error):
                await session.answer_to(wrong)
            with pytest.raises(error):
                await session.withdraw(wrong)
        with pytest.raises(QuestionNotFound):
            await store.answer("s", "a", by="ana")


async def test_question_stays_open_during_turns_and_after_forks(tmp_path: Path) -> None:
    stage = Stage(says("one"), says("two"))
    agent = Agent("helper", model=MODEL)
    async with stage.runtime(agent) as runtime:
        chat = await runtime.start(agent, id="s")
        asked = await chat.session.ask("Which one?", ["a", "b"])
        turn = chat.send("go")
        during = await chat.session.ask("And which?", ["a", "b"])
        assert (await turn).text == "one"
        assert await chat.questions() == []
        assert await (await chat.session.fork()).questions() == []
        await stage.store.answer(asked.id, "b", by="ana")
        assert (await chat.send("more")).text == "two"
        await chat.end()
    assert [each.id for each in await stage.store.questions()] == [during.id]
    assert await chat.session.answer_to(asked) == Answer("b", "ana")


async def test_imported_question_is_not_listed_and_its_answer_has_no_effect(
    tmp_path: Path,
) -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        answered = await session.ask("Which one?", ["a", "b"])
        await store.answer(answered.id, "a", by="ana")
        await session.ask("And which?", ["a", "b"])
        await session.export("perdure", tmp_path / "s.perdure")
    async with perdure.open("memory:") as other:
        await other.import_files([tmp_path / "s.perdure"])
        received = await other.open("s")
        assert await other.questions() == []
        assert await received.answer_to(answered.id) is None
        with pytest.raises(QuestionClosed, match="it was not asked in this store"):
            await other.answer("s/2", "a", by="eve")
        own = await received.ask("Now which?", ["a"])
        assert [each.id for each in await other.questions()] == [own.id]
        await other.answer(own.id, "a", by="ana")
        assert await received.answer_to(own) == Answer("a", "ana")


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_question_of_the_same_user_can_be_answered_without_trust(
    tmp_path: Path, *, is_trusted: bool
) -> None:
    address = f"sqlite:///{tmp_path / 's.db'}"
    async with perdure.open(address) as store:
        session = await store.create(id="s")
        asked = await session.ask("Which one?", ["a"])
    async with perdure.open(address, is_trusted=is_trusted) as store:
        (found,) = await store.questions()
        assert isinstance(found.question, Question)
        await store.answer(found.id, "a", by="ana")
        assert await (await store.open("s")).answer_to(asked.id) == Answer("a", "ana")


async def test_answer_just_before_a_withdrawal_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        asked = await session.ask("Which one?", ["a"])
        answer = partial(store.answer, asked.id, "a", by="ana")
        meanwhile(monkeypatch, store.backend, "question_withdrawn", answer)
        assert await session.withdraw(asked) is None
        assert await session.answer_to(asked) is not None
        assert "question_withdrawn" not in [each.kind async for each in session.entries()]
