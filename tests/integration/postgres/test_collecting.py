"""Contents that nothing refers to are removed while others write; what is used stays."""

from __future__ import annotations

import asyncio
import os

import pytest

from perdure.errors import EntryNotFound
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import MediaPart, user
from perdure.stores.chain import blob_hash
from perdure.stores.keeping.quotas import Quota
from perdure.stores.keeping.retention import KEY_WINDOW_MS
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Commit, Write
from perdure.stores.upkeep import Vacuumed
from tests.conformance.store.building import S, append, create, said, turn_started
from tests.fakes.clock import START_MS, ManualClock
from tests.integration.postgres.conftest import Open

TEXT = b"the same line again and again\n" * 1_000
NOISE = os.urandom(100_000)


async def attach(store: PostgresStore, *contents: bytes, stream: StreamId = S) -> None:
    """Contents, and a message that shows them."""
    shown = [MediaPart("image/png", f"media://{blob_hash(each)}", len(each)) for each in contents]
    write = Write(stream=stream, entries=(new_tree(user("look", *shown)),))
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))


async def leave(store: PostgresStore, *contents: bytes) -> None:
    """Contents that nothing refers to, in a commit that makes a stream of its own."""
    header = StreamHeader(StreamId(f"after-{os.urandom(4).hex()}"), 1)
    write = Write(stream=header.id, create=header)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))


async def test_what_nothing_refers_to_is_removed(store: PostgresStore) -> None:
    await create(store)
    await attach(store, TEXT)
    await leave(store, NOISE, b"another", TEXT)

    done = await store.vacuum()

    assert (done.blobs, done.blob_bytes) == (2, len(NOISE) + len(b"another"))
    assert await store.blob(blob_hash(TEXT)) == TEXT
    with pytest.raises(EntryNotFound):
        await store.blob(blob_hash(NOISE))
    again = await store.vacuum()
    assert again == Vacuumed(0, 0, again.freed_bytes)


async def test_contents_named_in_headers_and_partial_answers_stay(store: PostgresStore) -> None:
    header = StreamHeader(S, START_MS, metadata={"picture": blob_hash(TEXT)})
    write = Write(stream=S, create=header)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=(TEXT, NOISE, b"gone")))
    lease = await store.acquire_lease(S, "me", 60_000)
    await append(store, S, turn_started(), lease=lease)
    await store.put_partial(lease, 0, b"see " + blob_hash(NOISE).encode())

    assert (await store.vacuum()).blobs == 1
    assert await store.blob(blob_hash(TEXT)) == TEXT
    assert await store.blob(blob_hash(NOISE)) == NOISE


async def test_contents_of_other_namespaces_are_no_concern(open_store: Open) -> None:
    mine, other = await open_store(), await open_store(namespace="other")
    for store in (mine, other):
        await create(store)
    await attach(other, TEXT)
    await leave(mine, TEXT)

    assert (await mine.vacuum()).blobs == 1
    assert await other.blob(blob_hash(TEXT)) == TEXT


async def test_what_is_used_again_while_it_is_collected_stays(open_store: Open) -> None:
    store, writer = await open_store(), await open_store()
    await create(store)
    contents = [b"%d " % number * 300 for number in range(300)]
    await leave(store, *contents)

    async def use_every_third() -> None:
        for content in contents[::3]:
            await attach(writer, content)

    await asyncio.gather(store.vacuum(), use_every_third())

    for content in contents[::3]:
        assert await store.blob(blob_hash(content)) == content
    assert (await store.verify()).problems == ()


async def test_old_keys_are_forgotten_and_a_quota_counts_what_is_gone(open_store: Open) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    await store.set_quota(Quota(max_bytes=10_000_000))
    await create(store)
    await append(store, S, said("a"), key="old")
    await leave(store, NOISE)
    before = (await store.quota())[1]
    clock.advance(KEY_WINDOW_MS + 60_000)

    done = await store.vacuum()

    assert (done.keys, done.blobs) == (1, 1)
    assert (await store.quota())[1].bytes == before.bytes - len(NOISE)
