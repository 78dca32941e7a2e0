"""Reads of a session through its handle."""

from __future__ import annotations

import pytest

from perdure.client import reads
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import AmbiguousId, EntryNotFound
from perdure.events.wire import wire
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.kinds import Compaction
from perdure.session.messages import assistant, tool_call, tool_result, user
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import START_MS


@pytest.fixture
async def session(store: Store) -> Session:
    return await store.create(id="s")


async def test_reads_of_an_empty_session_return_no_entries(session: Session) -> None:
    assert await session.path() == []
    assert await session.tree() == ()
    assert await session.messages() == []
    assert [entry async for entry in session.entries()] == []
    assert (await session.context()).messages == ()


async def test_path_of_any_entry_can_be_read(session: Session) -> None:
    a, b, _ = await session.append(user("a"), assistant("b"), user("c"))
    assert await session.path(b) == [a, b]
    assert await session.path("s/0") == [a]


async def test_newest_messages_are_returned_oldest_first(session: Session) -> None:
    await session.append(*(user(str(n)) for n in range(5)), assistant("end"))
    assert [m.text for m in await session.messages(last=2)] == ["4", "end"]
    assert len(await session.messages()) == 6
    assert await session.messages(last=0) == []


async def test_log_is_read_to_its_head_page_by_page(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "_PAGE", 2)
    first = await session.append(*(user(str(n)) for n in range(5)), assistant("end"))
    await session.label(first[0], "x")
    assert [entry.seq async for entry in session.entries()] == list(range(7))
    assert [entry.seq async for entry in session.entries(after=4)] == [5, 6]


async def test_tree_shows_branches_with_their_labels(session: Session) -> None:
    root = await session.append(user("root"))
    first = await session.append(user("one"))
    second = await session.append(user("two"), parent=root)
    await session.label(second, "second")
    (node,) = await session.tree()
    assert node.entry == root
    assert [(child.entry, child.label) for child in node.children] == [
        (first, None),
        (second, "second"),
    ]


async def test_context_begins_at_the_compaction(session: Session) -> None:
    await session.append(user("long ago"), assistant("gone"))
    kept = await session.append(user("recent"))
    await session.append(Compaction("what was", first_kept=kept.id))
    told = str(wire((await session.context()).messages))
    assert "what was" in told
    assert "recent" in told
    assert "long ago" not in told


async def test_token_budget_limits_the_context_but_not_the_path(session: Session) -> None:
    for n in range(20):
        await session.append(user(f"question {n} " + "x" * 400), assistant("y" * 400))
    whole = await session.context()
    small = await session.context(budget_tokens=600)
    assert small.tokens < whole.tokens
    assert small.dropped > 0
    assert len(await session.path()) == 40


async def test_every_call_in_context_has_a_result(session: Session) -> None:
    await session.append(user("go"), assistant(tool_call("c", "find")))
    await session.append(user("never mind"))
    roles = [each.message.role for each in (await session.context()).messages]
    assert roles == ["user", "assistant", "tool", "user"]
    await session.branch("s/1")
    await session.append(tool_result("c", "found"))
    assert "found" in str(wire((await session.context()).messages))


async def test_entry_is_found_by_complete_id_or_alias(
    session: Session, memory: MemoryStore
) -> None:
    entries = tuple(new_tree(user(alias), alias=alias) for alias in ("abc1", "abd2"))
    write = Write(stream=StreamId("s"), entries=entries)
    await memory.commit(Commit(writes=(write,), at=START_MS))
    assert [entry.id for entry in await session.path("abc1")] == ["s/0"]
    assert [entry.id for entry in await session.path("s/1")] == ["s/0", "s/1"]
    for other in ("ab", "abd", "1", "s/", "zzz"):
        with pytest.raises(EntryNotFound):
            await session.path(other)
    assert await session.find("abd") == "s/1"
    with pytest.raises(AmbiguousId):
        await session.find("ab")


async def test_reading_a_session_updates_the_leaf_of_its_handle(
    store: Store, session: Session
) -> None:
    await (await store.open("s")).append(user("by another"))
    assert (session.head, session.leaf) == (-1, None)
    await session.messages()
    assert (session.head, session.leaf) == (0, "s/0")


async def test_fork_of_a_path_has_only_labels_of_that_path(store: Store) -> None:
    session = await store.create()
    first, second = await session.append(user("one"), user("two"))
    await session.branch(first.id)
    other = await session.append(user("three"))
    await session.label(first, "shared")
    await session.label(other, "elsewhere")
    path = await session.fork(at=second)
    assert await path.labels() == {first.id: "shared"}
    assert set((await (await session.fork()).labels()).values()) == {"shared", "elsewhere"}
