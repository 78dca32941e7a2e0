"""Vacuum removes unreferenced contents while others write, and keeps referenced ones."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from perdure.errors import EntryNotFound, Unsupported
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.messages import MediaPart, user
from perdure.stores.maintenance.protocol import VacuumReport
from perdure.stores.postgres.retention import content_gc as postgres_contents
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.policy import KEY_WINDOW_MS
from perdure.stores.retention.quotas import Quota
from perdure.stores.session_store import SessionStore
from perdure.stores.sqlite.maintenance import content_gc as sqlite_contents
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    MINUTE_MS,
    S,
    append,
    create,
    header,
    said,
    turn_started,
)
from tests.fakes.clock import START_MS, ManualClock, SeededRandom

TEXT = b"the same line again and again\n" * 1_000
NOISE = SeededRandom(1)(100_000)

_numbers = count()


@pytest.fixture(autouse=True)
async def vacuuming(store: SessionStore) -> SessionStore:
    try:
        await store.maintenance.vacuum()
    except Unsupported:
        pytest.skip("it has no vacuum")
    return store


async def attach(store: SessionStore, *contents: bytes, stream: StreamId = S) -> None:
    """Append contents, and a message that shows them."""
    shown = [MediaPart("image/png", f"media://{blob_hash(each)}", len(each)) for each in contents]
    write = Write(stream=stream, entries=(new_tree(user("look", *shown)),))
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))


async def leave(store: SessionStore, *contents: bytes) -> None:
    """Store unreferenced contents in a commit that creates its own stream."""
    new = header(f"left-{next(_numbers)}")
    write = Write(stream=new.id, create=new)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))


async def test_vacuum_removes_unreferenced_contents(
    store: SessionStore, vacuuming: SessionStore
) -> None:
    await create(store)
    await attach(store, TEXT)
    await leave(store, NOISE, b"another", TEXT)

    done = await vacuuming.maintenance.vacuum()

    assert (done.blobs, done.blob_bytes) == (2, len(NOISE) + len(b"another"))
    assert await store.blob(blob_hash(TEXT)) == TEXT
    with pytest.raises(EntryNotFound):
        await store.blob(blob_hash(NOISE))
    again = await vacuuming.maintenance.vacuum()
    assert again == VacuumReport(0, 0, again.freed_bytes)


async def test_store_without_contents_has_nothing_to_remove(
    store: SessionStore, vacuuming: SessionStore
) -> None:
    empty = await vacuuming.maintenance.vacuum()
    await create(store)
    created = await vacuuming.maintenance.vacuum()

    assert [empty, created] == [VacuumReport(0, 0, each.freed_bytes) for each in (empty, created)]


async def test_vacuum_keeps_contents_that_headers_and_partials_reference(
    store: SessionStore, vacuuming: SessionStore
) -> None:
    born = StreamHeader(S, START_MS, metadata={"picture": blob_hash(TEXT)})
    write = Write(stream=S, create=born)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=(TEXT, NOISE, b"gone")))
    lease = await store.acquire_lease(S, "me", MINUTE_MS)
    await append(store, S, turn_started(), lease=lease)
    await store.put_partial(lease, 0, b"see " + blob_hash(NOISE).encode())

    assert (await vacuuming.maintenance.vacuum()).blobs == 1
    assert await store.blob(blob_hash(TEXT)) == TEXT
    assert await store.blob(blob_hash(NOISE)) == NOISE


async def test_vacuum_ignores_contents_of_other_namespaces(
    data: Data, store: SessionStore, vacuuming: SessionStore
) -> None:
    other = await data.open("other")
    for each in (store, other):
        await create(each)
    await attach(other, TEXT)
    await leave(store, TEXT)

    assert (await vacuuming.maintenance.vacuum()).blobs == 1
    assert await other.blob(blob_hash(TEXT)) == TEXT


async def test_content_referenced_again_during_vacuum_is_kept(
    data: Data,
    store: SessionStore,
    vacuuming: SessionStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (postgres_contents, sqlite_contents):
        monkeypatch.setattr(module, "BATCH", 4)  # so that commits come between many batches
    writer = await data.open()
    await create(store)
    contents = [b"%d " % number * 300 for number in range(120)]
    await leave(store, *contents)

    async def use_every_third() -> None:
        for content in contents[::3]:
            await attach(writer, content)

    await asyncio.gather(vacuuming.maintenance.vacuum(), use_every_third())

    for content in contents[::3]:
        assert await store.blob(blob_hash(content)) == content
    assert (await store.maintenance.verify()).problems == ()


@pytest.mark.all_only
async def test_other_writers_can_commit_during_vacuum(
    data: Data, store: SessionStore, vacuuming: SessionStore
) -> None:
    writer = await data.open()
    await create(store)
    await leave(store, *(SeededRandom(number)(20_000) for number in range(200)))

    vacuum = asyncio.create_task(vacuuming.maintenance.vacuum())
    while not vacuum.done():
        await append(writer, S, said("still here"))

    assert (await vacuum).blobs == 200
    assert (await store.maintenance.verify()).problems == ()


async def test_concurrent_vacuums_report_each_removal_once(
    data: Data, store: SessionStore, vacuuming: SessionStore
) -> None:
    other = await data.open()
    await leave(store, *(b"%d " % number * 100 for number in range(300)))

    done = await asyncio.gather(vacuuming.maintenance.vacuum(), other.maintenance.vacuum())

    assert sum(each.blobs for each in done) == 300
    assert (await store.maintenance.verify()).problems == ()


async def test_vacuum_deletes_old_idempotency_keys_and_updates_quota(
    store: SessionStore, vacuuming: SessionStore, clock: ManualClock
) -> None:
    limiting = store
    await limiting.retention.set_quota(Quota(max_bytes=10_000_000))
    await create(store)
    await append(store, S, said("a"), key="old")
    await leave(store, NOISE)
    before = (await limiting.retention.quota())[1]
    clock.advance(KEY_WINDOW_MS / 1000 + 60)

    done = await vacuuming.maintenance.vacuum()

    assert (done.keys, done.blobs) == (1, 1)
    assert (await limiting.retention.quota())[1].bytes == before.bytes - len(NOISE)
