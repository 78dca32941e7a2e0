"""A chat between two turns: its branch, its compaction, its model."""

from __future__ import annotations

import pytest

from perdure.client.agents.chat import Chat
from perdure.engine.hooks.points import BeforeModelCall
from perdure.engine.turns.config import CompactionSettings
from perdure.errors import InvalidTransition, LeafConflict, TurnFailed
from perdure.models.scenario import Hang
from perdure.session.codec import body_of, new_side
from perdure.session.kinds import BranchSummary, Compaction
from perdure.session.ledger import ModelCalled, ModelFinished
from perdure.session.messages import Message, assistant, user
from perdure.session.notes import NodeEntered
from perdure.stores.protocol import Commit, Write
from tests.fakes.chats import Stage, says


async def talked() -> tuple[Stage, Chat]:
    stage = Stage(says("one"), says("two"), says("three"))
    chat = await stage.chat()
    await chat.send("first")
    await chat.send("second, which went wrong")
    return stage, chat


async def test_leaving_a_branch_adds_its_summary() -> None:
    _, chat = await talked()
    path = await chat.session.path()
    moved = await chat.branch(path[1], with_summary=True)
    assert moved is not None
    assert moved.parent_id == path[1].id
    summary = body_of(moved)
    assert isinstance(summary, BranchSummary)
    assert "went wrong" in summary.summary
    assert summary.from_id == path[1].id
    assert summary.usage is not None
    ledger = [body_of(entry) async for entry in chat.session.entries()]
    called = [body for body in ledger if isinstance(body, ModelCalled)]
    assert called[-1].purpose == "summary"
    finished = [body for body in ledger if isinstance(body, ModelFinished)]
    assert finished[-1].usage == summary.usage
    assert (await chat.send("third")).text


async def test_branching_without_a_summary_calls_no_model() -> None:
    _, chat = await talked()
    path = await chat.session.path()
    before = [entry async for entry in chat.session.entries()]
    moved = await chat.branch(path[1])
    assert moved is not None
    assert [entry.kind async for entry in chat.session.entries()][len(before) :] == ["leaf"]


async def test_leaving_an_empty_branch_adds_no_summary() -> None:
    _, chat = await talked()
    path = await chat.session.path()
    await chat.session.branch(path[1])
    moved = await chat.branch(path[3], with_summary=True)
    assert moved is not None
    assert moved.kind == "leaf"
    assert await chat.branch(path[3], with_summary=True) is None


async def test_too_short_branch_summary_raises_turn_failed() -> None:
    stage, chat = await talked()
    path = await chat.session.path()

    def short(point: BeforeModelCall) -> Message:
        return assistant("no")

    stage.store.hooks.on("before_model_call", short)
    with pytest.raises(TurnFailed, match="too short"):
        await chat.branch(path[0], with_summary=True)
    assert (await chat.session.path())[-1].id == path[-1].id
    assert (await stage.kinds())[-1] == "model_finished"


async def test_branching_from_an_unexpected_leaf_is_rejected_before_model_call() -> None:
    stage, chat = await talked()
    path = await chat.session.path()
    kinds = await stage.kinds()
    for target in (path[0], path[-1]):
        with pytest.raises(LeafConflict):
            await chat.branch(target, expected_leaf=path[1], with_summary=True)
    assert await stage.kinds() == kinds
    assert await chat.branch(path[1], expected_leaf=path[-1], with_summary=True) is not None


async def test_entry_appended_during_the_summary_is_not_lost() -> None:
    stage, chat = await talked()
    path = await chat.session.path()
    other = await stage.store.open(chat.id)

    async def late(_: BeforeModelCall) -> None:
        await other.append(user("said meanwhile"))

    stage.store.hooks.on("before_model_call", late)
    with pytest.raises(LeafConflict):
        await chat.branch(path[1], with_summary=True)
    assert (await chat.session.messages())[-1].text == "said meanwhile"


async def test_branching_before_the_root_adds_a_summary_without_parent() -> None:
    _, chat = await talked()
    moved = await chat.branch(None, focus="names", with_summary=True)
    assert moved is not None
    assert moved.parent_id is None


async def test_branching_during_a_turn_is_rejected() -> None:
    stage = Stage(says(Hang()))
    chat = await stage.chat()
    turn = chat.send("go")
    await turn.started()
    with pytest.raises(InvalidTransition):
        await chat.branch(None, with_summary=True)
    await chat.suspend()


async def test_node_compaction_summarises_only_messages_of_the_current_node() -> None:
    stage = Stage(says("one"), says("two"))
    settings = CompactionSettings(is_enabled=False, strategy="node")
    chat = await stage.chat(compaction=settings)
    await chat.send("earlier work")
    await chat.send("the work of this node")
    begins = (await chat.session.path())[2]
    entered = new_side(NodeEntered("plan", "flow"), begins.id)
    write = Write(stream=chat.id, entries=(entered,))
    await stage.memory.commit(Commit(writes=(write,), at=stage.clock.now_ms()))
    made = await chat.compact()
    assert made is not None
    compaction = body_of(made)
    assert isinstance(compaction, Compaction)
    assert "the work of this node" in compaction.summary
    assert "earlier work" not in compaction.summary
    assert len((await chat.session.context()).messages) == 1
