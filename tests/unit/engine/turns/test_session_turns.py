"""The turns of one session: their settings, their starting points and their reads."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from perdure.client.agents.chat import Chat
from perdure.client.agents.runners import answering
from perdure.errors import InvalidTransition, TurnOpen
from perdure.events.types import Event
from perdure.models.scenario import Hang, Reply
from perdure.session.codec import body_of, new_side
from perdure.session.ids import StreamId
from perdure.session.kinds import ModelChange, ThinkingChange
from perdure.session.ledger import ModelCalled, TurnRequested, TurnStarted
from perdure.session.messages import user
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.chats import Stage, calls, says


async def models_called(stage: Stage) -> list[str]:
    session = await stage.store.open("s")
    bodies = [body_of(entry) async for entry in session.entries()]
    return [body.model for body in bodies if isinstance(body, ModelCalled)]


async def test_change_of_model_applies_only_on_its_branch() -> None:
    stage = Stage(says("one"), says("two"))
    chat = await stage.chat()
    await chat.send("hi")
    there = chat.session.leaf
    await chat.session.append(ModelChange("scripted:echo"))
    await chat.send("hi")
    await chat.session.branch(there)
    await chat.send("hi")
    assert await models_called(stage) == ["scripted:test", "scripted:echo", "scripted:test"]


async def test_unknown_thinking_level_is_ignored() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.session.append(ThinkingChange("furious"))
    assert (await chat.send("hi")).text == "one"


async def test_new_turn_fails_while_open_turn_is_not_resumed() -> None:
    stage = Stage(says("so", Hang()))
    chat = await stage.chat()
    chat.send("go")
    await stage.kept()
    await chat.suspend()
    with pytest.raises(TurnOpen, match="resume it"):
        await chat.send("another")
    with pytest.raises(TurnOpen):
        await chat.compact()


async def test_recovery_without_open_turn_raises_invalid_transition() -> None:
    chat = await Stage().chat()
    with pytest.raises(InvalidTransition, match="recover"):
        await chat.recover()


class Counting:
    """A store that counts the calls to another store."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self.store, name)


async def counted(*replies: Reply) -> tuple[Stage, Chat, Counting]:
    """Return a chat with a tool, on a store that counts its calls."""
    stage = Stage(*replies)
    counting = Counting(stage.memory)
    stage.store.backend = cast("SessionStore", counting)

    async def look() -> str:
        """Look."""
        return "seen"

    return stage, await stage.chat([look]), counting


async def test_turn_directly_after_a_turn_reads_no_entries() -> None:
    _, chat, counting = await counted(says("one"), says(calls("look", "look")), says("two"))
    await chat.send("hi")
    counting.asked.clear()
    await chat.send("and?")
    # Its lease is acquired in its first commit and released in its last one.
    assert counting.asked - Counter(capabilities=99, address=99) == {"commit": 5}


async def test_requested_turn_takes_the_lease_in_its_first_commit() -> None:
    _, chat, counting = await counted(says("one"))
    write = Write(stream=StreamId(chat.id), entries=(new_side(TurnRequested(user("hi"))),))
    ((request,),) = (await counting.commit(Commit(writes=(write,), at=1))).entries
    counting.asked.clear()
    with answering(StreamId(chat.id), request.seq):
        await chat.send("hi")
    reads = {"tail": 2, "context_window": 1}  # the workspace is looked at too
    assert counting.asked - Counter(capabilities=99, address=99, marks=99) == {"commit": 2, **reads}


async def test_next_turn_reads_only_entries_of_other_writers() -> None:
    _, chat, counting = await counted(says("one"), says("two"))
    await chat.send("hi")
    await chat.session.append(user("by the way"))
    counting.asked.clear()
    await chat.send("and?")
    assert counting.asked["entries"] == 1
    # The workspace is read too: the other writer may have changed the folder.
    assert counting.asked["tail"] == 2
    assert not counting.asked["context_window"]


@pytest.mark.parametrize("k", [0, 1, 3])
async def test_each_additional_tool_call_adds_one_commit(k: int) -> None:
    answers = [says(calls(*["look"] * k)), says("so")] if k else [says("so")]
    stage, chat, counting = await counted(*answers)
    await chat.session.end()
    counting.asked.clear()
    await chat.send("go")
    assert counting.asked["commit"] == (k + 3 if k else 2)
    assert (await chat.session.info()).status == "active"
    kinds = await stage.kinds()
    ended = kinds.index("session_ended")
    assert kinds[ended + 1 : ended + 3] == ["episode", "session_reopened"]


async def test_turn_starts_at_the_current_head_after_an_append_of_another_writer() -> None:
    stage = Stage(says("one"), says("two"))
    chat = await stage.chat()
    await chat.send("hi")
    before = await chat.session.append(user("by the way"))
    turn = chat.send("and?")
    events = [event async for event in turn]
    started = (await stage.memory.notes(chat.id, (TurnStarted.kind,)))[-1]
    body = body_of(started)
    assert isinstance(body, TurnStarted)
    assert (body.base, body.number) == (before.id, 2)
    assert isinstance(events[0], Event)
    assert events[0].seq == started.seq
