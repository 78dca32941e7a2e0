"""Summaries requested between two turns."""

from __future__ import annotations

from functools import partial

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.conversation.workspace import Workspace
from perdure.engine.summaries import compact, entries_left, summarise_branch
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.session_turns import Terms
from perdure.errors import HeadConflict, TurnOpen
from perdure.models.scenario import Hang
from perdure.session.codec import body_of
from perdure.session.ids import StreamId
from perdure.session.ledger import ModelCalled, ModelFinished
from perdure.session.messages import assistant, user
from perdure.session.notes import SessionReopened
from tests.fakes.chats import MODEL, Stage, says
from tests.fakes.rivals import meanwhile


def under(stage: Stage) -> tuple[Environment, Terms]:
    """Return the `Environment` and the `Terms` of a session's turns."""
    agent = Agent("helper", model=MODEL)
    turns = stage.runtime().host.running(StreamId("s"), agent, Workspace(), prompt=None)
    return turns.environment, turns.terms


async def test_ended_session_is_reopened_for_summary() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.send("hi")
    await chat.end()
    assert await compact(*under(stage), focus=None) is None
    log = await stage.memory.entries(StreamId("s"))
    kinds = [entry.kind for entry in log[-3:]]
    assert kinds == ["session_reopened", "model_called", "model_finished"]
    closing = body_of(log[-1])
    assert isinstance(closing, ModelFinished)
    assert closing.error_code == "nothing_to_compact"
    assert log[-1].about == log[-2].id
    await stage.memory.acquire_lease(StreamId("s"), "another", 1_000)  # it was given back


async def test_session_with_open_turn_is_not_summarized() -> None:
    stage = Stage(says(Hang()))
    chat = await stage.chat()
    await chat.send("go").started()
    await chat.suspend()
    with pytest.raises(TurnOpen):
        await compact(*under(stage), focus=None)
    with pytest.raises(TurnOpen):
        await summarise_branch(*under(stage), None, focus=None)


async def test_branch_without_messages_needs_no_model_call() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.send("hi")
    before = await stage.kinds()
    here = (await stage.memory.state(StreamId("s"))).leaf
    assert await summarise_branch(*under(stage), here, focus=None) is None
    assert await stage.kinds() == before


async def test_shared_entries_are_not_part_of_the_abandoned_branch() -> None:
    store = Stage().store
    session = await store.create(id="s")
    a, b, c = await session.append(user("a"), assistant("b"), user("c"))
    d = await session.append(user("d"), parent=a)
    backend = store.backend
    left = await entries_left(backend, session.id, c.id, d.id)
    assert [entry.id for entry in left] == [b.id, c.id]
    assert [e.id for e in await entries_left(backend, session.id, c.id, None)] == [a.id, b.id, c.id]
    assert await entries_left(backend, session.id, a.id, c.id) == []


@pytest.mark.parametrize("is_ended", [False, True])
async def test_append_just_before_the_first_commit_prevents_a_conditional_compaction(
    monkeypatch: pytest.MonkeyPatch, is_ended: bool
) -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.send("hi")
    if is_ended:
        await chat.end()
    head = (await stage.memory.state(chat.id)).head
    first = SessionReopened.kind if is_ended else ModelCalled.kind
    meanwhile(monkeypatch, stage.memory, first, partial(chat.session.append, user("meanwhile")))
    with pytest.raises(HeadConflict):
        await compact(*under(stage), focus=None, expected_head=head)
    assert (await stage.memory.state(chat.id)).head == head + 1
