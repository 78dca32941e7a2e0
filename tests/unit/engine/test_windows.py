"""Pinned entries are in the window of a context, wherever they are on the branch."""

from __future__ import annotations

import pytest

from perdure.client.session import Session
from perdure.client.store import Store
from perdure.engine.windows import FollowedWindow, pinned_window
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import MESSAGE, Compaction, Custom, CustomMessage, ModelChange
from perdure.session.messages import TextPart, assistant, tool_call, tool_result, user
from perdure.stores.in_memory.store import MemoryStore
from perdure.tools.decorator import tool
from tests.fakes.chats import Stage, calls, says
from tests.fakes.clock import SeededRandom
from tests.fakes.followed import assert_followed


@pytest.fixture
def store() -> Store:
    return Stage().store


async def grown(store: Store) -> tuple[Session, list[Entry]]:
    """Return a session with a compaction that hides its first two messages."""
    session = await store.create(id="s")
    entries = await session.append(
        user("first"), assistant("one"), user("second"), assistant("two")
    )
    await session.append(Compaction("So far.", first_kept=entries[2].id))
    return session, entries


async def test_pinned_entry_hidden_by_a_compaction_stays_in_the_context(store: Store) -> None:
    session, entries = await grown(store)
    await session.pin(entries[1])
    window = await pinned_window(store.backend, session.id, session.leaf)
    assert [entry.id for entry in window.pinned] == [entries[1].id]
    assert "one" in [item.message.text for item in (await session.context()).messages]
    assert await session.pins() == {entries[1].id}
    await session.unpin(entries[1])
    window = await pinned_window(store.backend, session.id, session.leaf)
    assert (window.pinned, window.pins) == ((), frozenset())


async def test_each_branch_and_each_fork_has_a_separate_window(store: Store) -> None:
    session, entries = await grown(store)
    end = session.leaf
    away = await session.append(user("away"), parent=entries[0])
    await session.pin(away)
    assert (await pinned_window(store.backend, session.id, end)).pins == frozenset()
    fork = await session.fork()
    assert (await pinned_window(store.backend, fork.id, fork.leaf)).pins == {away.id}


async def test_pinned_result_keeps_its_call_in_the_context(store: Store) -> None:
    session = await store.create(id="s")
    asking = assistant(tool_call("a", "look", {}), tool_call("b", "look", {}))
    results = tool_result("a", "red"), tool_result("b", "blue")
    entries = await session.append_many([user("look"), asking, *results, assistant("both")])
    await session.append(Compaction("So far.", first_kept=entries[3].id))
    await session.pin(entries[3])
    window = await pinned_window(store.backend, session.id, session.leaf)
    assert window.pins == {entry.id for entry in entries[1:4]}
    assert [entry.seq for entry in window.pinned] == [1, 2]
    sent = (await session.context()).messages
    assert any(each.entry_ids == (entries[2].id, entries[3].id) for each in sent)


@pytest.mark.parametrize("is_asked_each_time", [True, False])
async def test_updated_window_equals_a_window_read_from_the_store(
    *, is_asked_each_time: bool
) -> None:
    stage = Stage()
    session = await stage.store.create(id="s")
    followed = FollowedWindow(stage.memory, session.id)
    await followed.now()
    seen = -1

    async def is_followed() -> None:
        nonlocal seen
        added = await stage.memory.entries(session.id, after=seen)
        seen = added[-1].seq
        followed.follow(added)
        if is_asked_each_time:
            await assert_followed(followed, stage.memory, session.id)

    first = await session.append(user("one"))
    await is_followed()
    second = await session.append(assistant("two"))
    await is_followed()
    await session.append(Custom("x", 1), CustomMessage("y", (TextPart("z"),)))
    await session.label(second, "here")
    await is_followed()
    await session.append(ModelChange("p:m"), user("three"))
    await is_followed()
    compaction = await session.append(Compaction("So far.", first_kept=second.id))
    await is_followed()
    await session.uncompact(compaction)
    await is_followed()
    await session.branch(first)
    await is_followed()
    await session.append(assistant("another"))
    await is_followed()
    await session.pin(first)
    await is_followed()
    await session.append(user("after a pin"), parent=first)
    await is_followed()
    await assert_followed(followed, stage.memory, session.id)


class Counting(MemoryStore):
    """A store that counts the windows that are read."""

    reads = 0

    async def context_window(
        self, stream: StreamId, leaf: EntryId | None, limit: int | None = None
    ) -> ContextWindow:
        """See ``LogReader``."""
        self.reads += 1
        return await super().context_window(stream, leaf, limit)


async def test_window_is_read_only_once_over_several_turns() -> None:
    stage = Stage(*(says("x") for _ in range(9)))
    counting = Counting(clock=stage.clock, random=SeededRandom(2))
    stage.store.backend = counting
    chat = await stage.chat()
    for _ in range(8):
        await chat.send("go on")
    assert counting.reads == 1
    await chat.session.append(user("from elsewhere"))
    await chat.send("and?")
    assert counting.reads == 1


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_pinned_entry_is_not_read_again_in_later_turns(*, is_hidden: bool) -> None:
    turn = (says(calls("look", "look")), says("x"))
    stage = Stage(*(turn * 10))
    counting = Counting(clock=stage.clock, random=SeededRandom(2))
    stage.store.backend = counting
    chat = await stage.chat([look])
    await chat.send("go on")
    entries = [entry async for entry in chat.session.entries()]
    said = [entry for entry in entries if entry.kind == MESSAGE]
    await chat.session.pin(said[2])
    if is_hidden:
        await chat.session.append(Compaction("So far.", first_kept=said[-1].id))
    await chat.send("go on")
    before = counting.reads
    for _ in range(8):
        await chat.send("go on")
    assert counting.reads == before
    window = await pinned_window(counting, chat.session.id, chat.session.leaf)
    assert len(window.pins) == 3  # the call and its two results
