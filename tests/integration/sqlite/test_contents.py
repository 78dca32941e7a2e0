"""Large contents: stored once, compressed, checked, and removed when unused."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from perdure.errors import CorruptLog
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.messages import MediaPart, user
from perdure.stores.maintenance.protocol import VacuumReport
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.payload.contents import (
    AS_IT_IS,
    BY_ZLIB,
    PackedContent,
    content_in,
    pack_content,
)
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import START_MS
from tests.fakes.raw_database import raw_database
from tests.fakes.streams import S, create
from tests.integration.sqlite.conftest import Opener

TEXT = b"the same line again and again\n" * 1_000
NOISE = os.urandom(100_000)


async def attach(store: SqliteStore, *contents: bytes, stream: StreamId = S) -> None:
    """Commit `contents`, and a message that shows them."""
    shown = [MediaPart("image/png", f"media://{blob_hash(each)}", len(each)) for each in contents]
    write = Write(stream=stream, entries=(new_tree(user("look", *shown)),))
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))


@pytest.mark.parametrize("content", [b"", b"x", TEXT, NOISE, NOISE + TEXT * 100, TEXT + NOISE])
def test_content_is_compressed_and_read_back_unchanged(content: bytes) -> None:
    kept = pack_content(content)
    assert content_in(kept) == content
    assert kept.size == len(content)
    assert len(kept.kept) <= len(content)


def test_only_compressible_content_is_compressed() -> None:
    assert (pack_content(TEXT).packing, pack_content(NOISE).packing) == (BY_ZLIB, AS_IT_IS)
    assert len(pack_content(TEXT).kept) < len(TEXT) / 10


@pytest.mark.parametrize(
    "kept",
    [
        b"no zlib",
        zlib.compress(TEXT)[:-10],
        zlib.compress(TEXT + b"more"),
        zlib.compress(b"z" * 10**7),
        zlib.compress(TEXT[::-1]),
    ],
)
def test_content_with_altered_bytes_is_rejected(kept: bytes) -> None:
    with pytest.raises(CorruptLog):
        content_in(pack_content(TEXT)._replace(kept=kept))


def test_unknown_compression_is_rejected() -> None:
    with pytest.raises(CorruptLog):
        content_in(PackedContent(blob_hash(b"x"), 1, 9, b"x"))


async def test_shared_content_is_stored_once(open_store: Opener, path: Path) -> None:
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


async def test_damaged_content_raises_an_error_and_is_reported_by_verify(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await create(store)
    await attach(store, TEXT)
    with raw_database(path) as db:
        db.execute("UPDATE blob SET content = ?", (zlib.compress(TEXT[1:]),))

    with pytest.raises(CorruptLog):
        await store.blob(blob_hash(TEXT))
    problems = [each.problem for each in (await store.maintenance.verify()).problems]
    assert f"the content {blob_hash(TEXT)} is damaged" in problems


async def test_space_of_removed_contents_is_freed(open_store: Opener, path: Path) -> None:
    store = await open_store()
    await create(store)
    header = StreamHeader(StreamId("left"), START_MS)
    write = Write(stream=header.id, create=header)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=(NOISE,)))

    done = await store.maintenance.vacuum()

    assert done.freed_bytes > 0.9 * len(NOISE)
    assert await store.maintenance.vacuum() == VacuumReport(0, 0, 0)
    with raw_database(path) as db:
        assert db.pragma("freelist_count") == 0
