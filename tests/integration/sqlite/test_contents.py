"""Large contents: once however often they are used, compressed, checked, removed when unused."""

from __future__ import annotations

import asyncio
import os
import zlib
from pathlib import Path

import pytest

from perdure.errors import CorruptLog, EntryNotFound
from perdure.session.codec import new_side, new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import TurnStarted
from perdure.session.messages import MediaPart, user
from perdure.stores.chain import blob_hash
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.packing.contents import AS_IT_IS, BY_ZLIB, Packed, content_in, packed
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.upkeep import Vacuumed
from tests.fakes.clock import START_MS
from tests.fakes.raw_database import raw_database
from tests.fakes.streams import S, create, say
from tests.integration.sqlite.conftest import Opener

TEXT = b"the same line again and again\n" * 1_000
NOISE = os.urandom(100_000)


async def attach(store: SqliteStore, *contents: bytes, stream: StreamId = S) -> None:
    """Contents, and a message that shows them."""
    shown = [MediaPart("image/png", f"media://{blob_hash(each)}", len(each)) for each in contents]
    write = Write(stream=stream, entries=(new_tree(user("look", *shown)),))
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))


async def leave(store: SqliteStore, *contents: bytes) -> None:
    """Contents that nothing refers to, in a commit that makes a stream of its own."""
    header = StreamHeader(StreamId(f"after-{await store.position()}-{os.urandom(4).hex()}"), 1)
    write = Write(stream=header.id, create=header)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))


@pytest.mark.parametrize("content", [b"", b"x", TEXT, NOISE, NOISE + TEXT * 100, TEXT + NOISE])
def test_a_content_comes_out_as_it_went_in(content: bytes) -> None:
    kept = packed(content)
    assert content_in(kept) == content
    assert kept.size == len(content)
    assert len(kept.kept) <= len(content)


def test_only_what_shrinks_is_compressed() -> None:
    assert (packed(TEXT).packing, packed(NOISE).packing) == (BY_ZLIB, AS_IT_IS)
    assert len(packed(TEXT).kept) < len(TEXT) / 10


@pytest.mark.parametrize(
    "kept",
    [
        b"no zlib",
        zlib.compress(TEXT)[:-10],
        zlib.compress(TEXT + b"more"),
        zlib.compress(b"z" * 10**8),
        zlib.compress(TEXT[::-1]),
    ],
)
def test_what_is_not_the_content_any_more_is_refused(kept: bytes) -> None:
    with pytest.raises(CorruptLog):
        content_in(packed(TEXT)._replace(kept=kept))


def test_a_packing_of_the_future_is_refused() -> None:
    with pytest.raises(CorruptLog):
        content_in(Packed(blob_hash(b"x"), 1, 9, b"x"))


async def test_a_content_is_kept_once_for_all_who_use_it(open_store: Opener, path: Path) -> None:
    store = await open_store()
    for stream in (S, StreamId("t")):
        await create(store, stream)
        await attach(store, TEXT, NOISE, stream=stream)
        await attach(store, TEXT, stream=stream)

    assert await store.blob(blob_hash(TEXT)) == TEXT
    info = await store.info()
    assert info.payload_bytes < 2 * (len(TEXT) + len(NOISE))
    with raw_database(path) as db:
        ((count, kept_bytes),) = db.execute("SELECT count(*), sum(length(content)) FROM blob")
    assert count == 2
    assert kept_bytes < len(NOISE) + len(TEXT) / 10


async def test_a_damaged_content_is_refused_and_named(open_store: Opener, path: Path) -> None:
    store = await open_store()
    await create(store)
    await attach(store, TEXT)
    with raw_database(path) as db:
        db.execute("UPDATE blob SET content = ?", (zlib.compress(TEXT[1:]),))

    with pytest.raises(CorruptLog):
        await store.blob(blob_hash(TEXT))
    (problem,) = (await store.verify()).problems
    assert blob_hash(TEXT) in problem.problem


# ---------------------------------------------------------------- vacuum


async def test_what_nothing_refers_to_is_removed_and_its_space_given_back(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await create(store)
    await attach(store, TEXT)
    await leave(store, NOISE, b"another", TEXT)

    done = await store.vacuum()

    assert done == Vacuumed(2, len(NOISE) + len(b"another"), done.freed_bytes)
    assert done.freed_bytes > 0.9 * len(NOISE)
    assert await store.blob(blob_hash(TEXT)) == TEXT
    with pytest.raises(EntryNotFound):
        await store.blob(blob_hash(NOISE))
    assert await store.vacuum() == Vacuumed(0, 0, 0)
    with raw_database(path) as db:
        assert db.pragma("freelist_count") == 0


async def test_a_store_without_contents_has_nothing_to_remove(store: SqliteStore) -> None:
    assert await store.vacuum() == Vacuumed(0, 0, 0)
    await create(store)
    assert await store.vacuum() == Vacuumed(0, 0, 0)


async def test_contents_named_in_headers_and_partial_answers_stay(store: SqliteStore) -> None:
    header = StreamHeader(S, START_MS, metadata={"picture": blob_hash(TEXT)})
    write = Write(stream=S, create=header)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=(TEXT, NOISE, b"gone")))
    lease = await store.acquire_lease(S, "me", 60_000)
    turn = Write(stream=S, entries=(new_side(TurnStarted(1, "agent")),), lease=lease)
    await store.commit(Commit(writes=(turn,), at=START_MS))
    await store.put_partial(lease, 0, b"see " + blob_hash(NOISE).encode())

    assert (await store.vacuum()).blobs == 1
    assert await store.blob(blob_hash(TEXT)) == TEXT
    assert await store.blob(blob_hash(NOISE)) == NOISE


async def test_contents_of_other_namespaces_are_no_concern(open_store: Opener) -> None:
    mine, other = await open_store(), await open_store(namespace="other")
    for store in (mine, other):
        await create(store)
    await attach(other, TEXT)
    await leave(mine, TEXT)

    assert (await mine.vacuum()).blobs == 1
    assert await other.blob(blob_hash(TEXT)) == TEXT


async def test_what_is_used_again_while_it_is_collected_stays(open_store: Opener) -> None:
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


async def test_others_read_and_write_while_it_runs(open_store: Opener) -> None:
    store, writer = await open_store(), await open_store()
    await create(store)
    await leave(store, *(os.urandom(20_000) for _ in range(200)))

    vacuum = asyncio.create_task(store.vacuum())
    while not vacuum.done():
        await say(writer, "still here")
    assert (await vacuum).blobs == 200
    assert (await store.verify()).problems == ()
