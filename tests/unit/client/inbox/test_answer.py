"""If an answer and the end of its turn are concurrent, only the first is stored."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

import perdure
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.conversation.workspace import Workspace
from perdure.client.inbox.answer import answer_question
from perdure.errors import AlreadyAnswered, InvalidEntry, QuestionClosed
from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import Answer, Question, QuestionWithdrawn
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.chats import MODEL, Stage, calls, says, until
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.rivals import meanwhile

WRITE = '{"path": "a.txt", "content": "x"}'
"""The arguments of a call that needs approval."""


async def asked(stage: Stage) -> str:
    """Wait for the only open question; return its id."""

    async def is_asked() -> bool:
        return bool(await stage.store.questions())

    await until(is_asked)
    return (await stage.store.questions())[0].id


async def test_only_one_of_concurrent_answer_and_abort_is_stored(tmp_path: Path) -> None:
    outcomes: set[str] = set()
    for round_ in range(25):
        stage = Stage(says(calls("write_file", json=WRITE)), says("done"))
        agent = Agent("helper", model=MODEL, tools=("write_file",))
        place = Workspace(working_dir=str(tmp_path))
        chat = await stage.runtime(agent).start(agent, id="s", workspace=place)
        chat.send("go")
        question = await asked(stage)

        async def answer(
            stage: Stage = stage, question: str = question, ticks: int = round_ // 5
        ) -> str:
            for _ in range(ticks):
                await asyncio.sleep(0)
            try:
                await stage.store.answer(question, "deny", by="me")
            except QuestionClosed:
                return "withdrawn"
            return "answered"

        async def abort(chat: Chat = chat, ticks: int = round_ % 5) -> None:
            for _ in range(ticks):
                await asyncio.sleep(0)
            await chat.abort()

        outcome, _ = await asyncio.gather(answer(), abort())
        outcomes.add(outcome)
        kinds = await stage.kinds()
        closed = [kinds.count(Answer.kind), kinds.count(QuestionWithdrawn.kind)]
        assert closed == ([1, 0] if outcome == "answered" else [0, 1])
        assert await stage.store.questions() == []
    assert outcomes == {"answered", "withdrawn"}


async def test_two_concurrent_answers_store_one_entry(tmp_path: Path) -> None:
    stage = Stage(says(calls("write_file", json=WRITE)), says("done"))
    agent = Agent("helper", model=MODEL, tools=("write_file",))
    place = Workspace(working_dir=str(tmp_path))
    chat = await stage.runtime(agent).start(agent, id="s", workspace=place)
    turn = chat.send("go")
    question = await asked(stage)
    given = await asyncio.gather(
        *(stage.store.answer(question, choice, by="me") for choice in ("deny", "allow", "deny")),
        return_exceptions=True,
    )
    assert sum(isinstance(each, AlreadyAnswered) for each in given) in (1, 2)
    await turn
    assert (await stage.kinds()).count(Answer.kind) == 1


async def test_answer_after_expiry_is_refused_and_not_stored() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))
    now = clock.now_ms()
    asked = Question("approval", "May I?", ("allow", "deny"), expires_at=now + 1_000)
    opening = StreamHeader(StreamId("s"), now)
    write = Write(stream=opening.id, create=opening, entries=(new_side(asked),))
    ((question,),) = (await store.commit(Commit(writes=(write,), at=now))).entries
    clock.advance(1.0)

    with pytest.raises(QuestionClosed) as refused:
        await answer_question(store, clock, question, asked, Answer("allow", by="me"))

    assert refused.value.reason == "expired"
    assert len(await store.entries(opening.id)) == 1


async def test_answer_outside_of_choices_is_rejected_and_not_stored() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        question = Question("approval", "May I?", ("allow", "deny"))
        write = Write(stream=session.id, entries=(new_side(question),))
        ((asked,),) = (await store.backend.commit(Commit(writes=(write,), at=1))).entries
        with pytest.raises(InvalidEntry, match="'perhaps' is none of the answers allow, deny"):
            await session.answer(asked.id, "perhaps", by="me")
        assert (await store.backend.entries(session.id))[-1] == asked


async def test_answer_given_just_before_another_answer_is_the_only_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(says(calls("write_file", json=WRITE)), says("done"))
    agent = Agent("helper", model=MODEL, tools=("write_file",))
    place = Workspace(working_dir=str(tmp_path))
    chat = await stage.runtime(agent).start(agent, id="s", workspace=place)
    turn = chat.send("go")
    question = await asked(stage)
    rival = partial(stage.store.answer, question, "deny", by="bob")
    meanwhile(monkeypatch, stage.memory, Answer.kind, rival)
    with pytest.raises(AlreadyAnswered, match="by bob"):
        await stage.store.answer(question, "allow", by="ana")
    await turn
    assert (await stage.kinds()).count(Answer.kind) == 1
