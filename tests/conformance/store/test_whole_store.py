"""The store as a whole: verify, info, closing and reopening."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import LeaseHeld, StoreUnavailable
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry, Sibling
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.kinds import OPAQUE, Compaction
from perdure.session.notes import CompactionUndone
from perdure.stores.chain import genesis_hash
from perdure.stores.protocol import EMPTY, Commit, Lease, Verification, Write
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import ENCRYPTED, Backend, Data
from tests.conformance.store.building import (
    S,
    append,
    create,
    fork,
    header,
    labelled,
    moved,
    replied,
    said,
    texts,
    turn_finished,
    turn_started,
    unknown,
)
from tests.fakes.clock import START_MS


async def filled(store: SessionStore) -> None:
    """Fill a store with all kinds of content."""
    await create(store, S, said("a", alias="a1"), labelled("x", Sibling(0)))
    lease = await store.acquire_lease(S, "me", 60_000)
    await append(store, S, turn_started(), said("b"), lease=lease)
    await append(store, S, said("waits"))
    await append(store, S, replied("c"), turn_finished(), lease=lease)
    await append(store, S, new_tree(Compaction("gist", EntryId("s/3"))), unknown())
    await append(store, S, new_side(CompactionUndone(), EntryId("s/7")), moved(EntryId("s/0")))
    await append(store, S, NewEntry(OPAQUE, b"\xff"), key="k")
    await fork(store, S, "f", said("in f"))
    shared = (await store.tree(StreamId("f")))[1].id  # s/3, or a copy of it
    await fork(store, StreamId("f"), "g", said("in g"), at=shared, scope="path")
    await fork(store, S, "h", at=None)
    await append(store, StreamId("g"), moved(None), said("second root"))
    write = Write(stream=StreamId("empty"), create=header("empty", kind="flow"))
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=(b"blob", b"")))


# ---------------------------------------------------------------- verify and info


async def test_verify_of_an_empty_store_finds_no_problem(store: SessionStore) -> None:
    assert await store.maintenance.verify() == Verification(0, 0, ())
    assert (await store.maintenance.verify()).is_ok


async def test_verify_reports_progress_to_the_end(store: SessionStore) -> None:
    await filled(store)
    told: list[tuple[int, int]] = []

    found = await store.maintenance.verify(lambda done, steps: told.append((done, steps)))

    assert found == await store.maintenance.verify()
    assert told == sorted(told)
    assert {steps for _, steps in told} == {told[-1][0]}


@pytest.mark.all_only
async def test_verify_reports_several_progress_steps_for_large_content(
    store: SessionStore,
) -> None:
    await create(store)
    contents = [b"content %d" % n for n in range(1200)]
    write = Write(stream=S, entries=(said("a"),))
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=tuple(contents)))
    told: list[tuple[int, int]] = []

    await store.maintenance.verify(lambda done, steps: told.append((done, steps)))

    total = told[-1][1]
    assert total >= 1 + len(contents)
    assert any(total * 0.3 < done < total * 0.9 for done, _ in told)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=(b"x" * 4_000_000,)))
    await store.maintenance.verify(lambda done, steps: told.append((done, steps)))
    assert told[-1][1] - total > 200


async def test_verify_accepts_full_store_and_changes_nothing(
    store: SessionStore,
) -> None:
    await filled(store)
    before = (await store.feed(0), await store.sessions(scope="all"), await store.state(S))

    verification = await store.maintenance.verify()

    assert verification == Verification(5, len(before[0]), ())
    after = (await store.feed(0), await store.sessions(scope="all"), await store.state(S))
    assert after == before


async def test_empty_and_repeated_commits_leave_the_hash_unchanged(
    store: SessionStore,
) -> None:
    await create(store)
    await append(store, S, said("a"), key="k")
    before = (await store.state(S)).hash

    await append(store, S, said("a"), key="k")
    await append(store, S, expected_head=0)

    assert (await store.state(S)).hash == before


async def test_hash_chain_begins_with_the_header_and_differs_between_streams(
    store: SessionStore,
) -> None:
    for name in "ab":
        await create(store, name)
        assert (await store.state(StreamId(name))).hash == genesis_hash(header(name))
    before = {(await store.state(StreamId(name))).hash for name in "ab"}

    for name in "ab":
        await append(store, StreamId(name), said("the same"))

    after = {(await store.state(StreamId(name))).hash for name in "ab"}
    assert len(before | after) == 4


@pytest.mark.needs("pointer_fork")
async def test_hash_chain_of_a_fork_begins_with_the_hash_of_its_origin(store: SessionStore) -> None:
    await create(store, S, said("a"))
    origin = (await store.state(S)).hash

    await fork(store, S, "f")

    state = await store.state(StreamId("f"))
    assert state.hash == genesis_hash(state.header, origin)
    # Later appends to the origin do not change the fork.
    await append(store, S, said("b"))
    assert (await store.state(StreamId("f"))).hash == state.hash
    assert (await store.maintenance.verify()).problems == ()


async def test_info_reports_numbers_of_streams_entries_and_bytes(
    backend: Backend, store: SessionStore
) -> None:
    empty = await store.info()
    await filled(store)
    full = await store.info()
    bodies = sum(len(item.entry.body) for item in await store.feed(0))

    assert (empty.streams, empty.entries) == (0, 0)
    assert (full.streams, full.entries) == (5, len(await store.feed(0)))
    assert full.payload_bytes - empty.payload_bytes == bodies + len(b"blob")
    assert full.size_bytes >= full.payload_bytes
    assert (full.namespace, full.address) == (store.namespace, store.address) != ("", "")
    assert full.backend
    assert full.durability
    assert full.engine
    assert full.schema_version >= 1
    assert full.is_encrypted == (backend.name == ENCRYPTED) == (full.cipher is not None)


# ---------------------------------------------------------------- closing


async def test_store_can_be_closed_twice(store: SessionStore) -> None:
    await create(store)

    await store.close()
    await store.close()


async def test_every_call_after_closing_the_store_raises_store_unavailable(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"))
    lease = Lease(S, "me", 1, 0)
    await store.close()

    for call in (
        append(store, S, said("b")),
        store.acquire_lease(S, "me", 1),
        store.renew_lease(lease, 1),
        store.release_lease(lease),
        store.put_partial(lease, 0, b""),
        store.state(S),
        store.entries(S),
        store.entry(S, EntryId("s/0")),
        store.branch(S, None),
        store.context_window(S, None),
        store.tree(S),
        store.notes(S, ["label"]),
        store.partial(S),
        store.resolve(S, "0"),
        store.aliases(S),
        store.find("s"),
        store.sessions(),
        store.feed(0),
        store.position(),
        store.blob(blob_hash(b"")),
        store.maintenance.verify(),
        store.info(),
    ):
        with pytest.raises(StoreUnavailable) as refused:
            await call
        assert refused.value.store == store.address


async def next_change(store: SessionStore) -> None:
    await anext(store.changes())


async def test_waiting_for_changes_of_closed_store_raises_store_unavailable(
    store: SessionStore,
) -> None:
    await store.close()

    with pytest.raises(StoreUnavailable):
        await next_change(store)


async def test_waiting_for_changes_ends_when_the_store_is_closed(
    store: SessionStore,
) -> None:
    changes = store.changes()

    async def count() -> int:
        return len([None async for _ in changes])

    waiting = asyncio.create_task(count())
    await asyncio.sleep(0)

    await store.close()

    assert await asyncio.wait_for(waiting, 60) <= 1  # each iterator yields once at its beginning


async def test_closing_the_store_finishes_pending_commits(data: Data) -> None:
    store, other = await data.open(), await data.open()
    await create(store)
    commits = [asyncio.create_task(append(store, S, said(str(number)))) for number in range(20)]
    await asyncio.sleep(0)

    await store.close()
    results = await asyncio.gather(*commits, return_exceptions=True)

    done = [entry for result in results if isinstance(result, list) for entry in result]
    refused = [result for result in results if not isinstance(result, list)]
    assert all(isinstance(error, StoreUnavailable) for error in refused)
    assert await other.entries(S) == done


async def test_closing_one_handle_leaves_other_handles_open(data: Data) -> None:
    left, right = await data.open(), await data.open()
    await create(left, S, said("a"))

    await left.close()

    await append(right, S, said("b"))
    assert texts(await right.entries(S)) == ["a", "b"]


# ---------------------------------------------------------------- opening again


async def snapshot(store: SessionStore) -> list[object]:
    """Return all readable data that `filled` created."""
    seen: list[object] = [
        await store.feed(0),
        await store.sessions(scope="all"),
        await store.blob(blob_hash(b"blob")),
        await store.partial(StreamId("f")),
    ]
    for name in ("s", "f", "g", "h", "empty"):
        state = await store.state(StreamId(name))
        seen += [
            state,
            await store.tree(StreamId(name)),
            await store.notes(StreamId(name), ["label", "queued", "turn_started"]),
            await store.aliases(StreamId(name)),
            await store.context_window(StreamId(name), state.leaf),
        ]
    return seen


async def test_handle_opened_later_reads_all_content(data: Data) -> None:
    """A durable backend opens its file again; the memory backend uses the same memory."""
    store = await data.open()
    await filled(store)
    lease = await store.acquire_lease(StreamId("f"), "me", 60_000)
    await append(store, StreamId("f"), turn_started(), lease=lease)
    await store.put_partial(lease, 1, b"half")
    before = await snapshot(store)
    await store.close()

    again = await data.open()

    assert await snapshot(again) == before
    assert await again.partial(StreamId("f")) == (1, b"half")
    with pytest.raises(LeaseHeld):
        await again.acquire_lease(StreamId("f"), "you", 1)
    replay = await append(again, S, NewEntry(OPAQUE, b"\xff"), key="k")
    assert replay == [(await again.entries(S))[-1]]
    assert (await again.maintenance.verify()).problems == ()


async def test_reopened_store_continues_from_last_state(data: Data) -> None:
    for number in range(5):
        store = await data.open()
        if number == 0:
            await create(store)
        entries = await append(store, S, said(str(number)), expected_head=number - 1)
        assert entries[0].seq == number
        await store.close()

    store = await data.open()
    assert texts(await store.entries(S, EMPTY)) == ["0", "1", "2", "3", "4"]
    assert (await store.maintenance.verify()).problems == ()
