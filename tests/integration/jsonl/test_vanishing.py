"""Session files that another process erases during a read count as missing, not damaged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.pi.codec import PI
from perdure.errors import SessionNotFound, StoreUnavailable
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import ForkPoint
from perdure.session.messages import MediaPart, user
from perdure.session.search.values import SearchQuery
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import Folder, file_name_of
from perdure.stores.jsonl.retention.content_gc import LOCK
from perdure.stores.jsonl.search.file_table import Catalogue
from perdure.stores.jsonl.search.index_file import IndexTables
from perdure.stores.jsonl.search.indexer import Index
from perdure.stores.jsonl.search.scan import FolderScan
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.jsonl.store import DialectName, JsonlStore
from perdure.stores.protocol import Commit, Write
from tests.conformance.store.building import create, erasure, header, labelled, replied
from tests.fakes.clock import START_MS
from tests.fakes.meanwhile import meanwhile
from tests.fakes.session_files import file_of
from tests.integration.jsonl.conftest import Opener

GONE, STAYS = StreamId("gone"), StreamId("stays")
SHARED, OWN = b"\x89PNG of both", b"\x89PNG of one"

Reading = Callable[[JsonlStore], Awaitable[object]]


async def verified(store: JsonlStore) -> None:
    assert (await store.maintenance.verify()).problems == ()


async def searched(store: JsonlStore) -> None:
    hits = await store.search.hits(SearchQuery(text="word"))
    assert STAYS in {hit.stream for hit in hits}


async def listed(store: JsonlStore) -> None:
    assert STAYS in {info.id for info in await store.sessions()}


async def fed(store: JsonlStore) -> None:
    assert STAYS in {item.entry.stream for item in await store.feed(0)}


async def vacuumed(store: JsonlStore) -> None:
    await store.maintenance.vacuum()
    assert await store.blob(blob_hash(SHARED)) == SHARED


async def erased(store: JsonlStore) -> None:
    assert (await store.retention.erase(erasure(STAYS))).is_complete


async def noted(store: JsonlStore) -> None:
    assert STAYS in {note.stream for note in await store.notes_of_all(("label",))}


ACROSS: dict[str, Reading] = {
    "verify": verified,
    "search": searched,
    "reindex": lambda store: store.search.reindex(),
    "sessions": listed,
    "feed": fed,
    "notes": noted,
    "find": lambda store: store.find("st"),
    "position": lambda store: store.position(),
    "holdings": lambda store: store.retention.holdings(),
    "quota": lambda store: store.retention.quota(),
    "info": lambda store: store.info(),
    "standings": lambda store: store.maintenance.segment_states(),
    "keys": lambda store: store.retention.forget_keys(START_MS + 1),
    "vacuum": vacuumed,
    "erase": erased,
    "content": lambda store: store.blob(blob_hash(SHARED)),
}
"""Calls that read every session of a folder."""

OF_ONE: dict[str, Reading] = {
    "state": lambda store: store.state(GONE),
    "entries": lambda store: store.entries(GONE),
    "branch": lambda store: store.branch(GONE, None, limit=5),
    "tree": lambda store: store.tree(GONE),
    "window": lambda store: store.context_window(GONE, None),
    "notes": lambda store: store.notes(GONE, ("label",)),
    "lease": lambda store: store.acquire_lease(GONE, "me", 1000),
    "remove": lambda store: store.retention.remove(GONE),
    "sealed": lambda store: store.maintenance.read_segment(GONE, after=-1, upto=1),
}
"""Calls that read the one session that is erased meanwhile."""


async def fill(store: JsonlStore) -> None:
    """Write two sessions that share a content; one of them has another content of its own."""
    for stream, contents in ((GONE, (SHARED, OWN)), (STAYS, (SHARED,))):
        shown = (MediaPart("image/png", f"media://{blob_hash(c)}", len(c)) for c in contents)
        write = Write(
            stream=stream,
            create=header(stream),
            entries=(new_tree(user("a word", *shown)), replied("so"), labelled("here", None)),
        )
        await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))


async def each_moment(folder: Path, open_store: Opener, read: Reading, *, is_known: bool) -> None:
    """Call `read` once for each access to a session's file, and remove the file before that access.

    `is_known`: whether the reader has listed the sessions before.
    """
    for number in count(1):
        place = folder / str(number)
        await fill(await open_store(place))
        store = await open_store(place)
        if is_known:
            await store.sessions()
        path = file_of(place, GONE)
        with meanwhile(path, number, path.unlink) as looks, suppress(SessionNotFound):
            await read(store)
        if looks.count < number:
            return


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("name", ACROSS)
async def test_scan_of_sessions_skips_a_session_removed_during_the_scan(
    folder: Path, open_store: Opener, name: str, *, is_known: bool
) -> None:
    async def read(store: JsonlStore) -> None:
        try:
            await ACROSS[name](store)
        except SessionNotFound as missing:
            pytest.fail(f"{missing}, and nobody asked for it")

    await each_moment(folder, open_store, read, is_known=is_known)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("name", OF_ONE)
async def test_read_of_a_session_removed_during_the_read_raises_not_found(
    folder: Path, open_store: Opener, name: str, *, is_known: bool
) -> None:
    await each_moment(folder, open_store, OF_ONE[name], is_known=is_known)


@pytest.mark.parametrize("is_held", [False, True])
async def test_fork_keeps_content_when_origin_is_erased(
    folder: Path, open_store: Opener, *, is_held: bool
) -> None:
    """The erasure happens before or after the fork has stored all contents."""
    store, other = await open_store(), await open_store()
    await fill(store)
    at = await store.state(GONE)
    fork = header("fork", fork=ForkPoint(GONE, at.leaf, at.head, "path"))
    eraser = threading.Thread(
        target=lambda: asyncio.run(other.retention.erase(erasure(GONE, forks="keep")))
    )

    def erase() -> None:
        eraser.start()
        eraser.join(0.3 if is_held else 60)  # an eraser after the fork has to wait for it

    lock = folder / ".perdure" / "locks" / f"{LOCK}-{file_name_of('')}"
    write = Write(stream=fork.id, create=fork)
    with meanwhile(lock, 2 if is_held else 1, erase):
        try:
            await store.commit(Commit(writes=(write,), at=START_MS))
            is_forked = True
        except SessionNotFound:
            is_forked = False
        await asyncio.to_thread(eraser.join)

    assert is_forked == is_held
    assert (await store.maintenance.verify()).problems == ()


async def test_content_referenced_right_before_a_vacuum_locks_contents_is_kept(
    folder: Path, open_store: Opener
) -> None:
    store, other = await open_store(), await open_store()
    new = Write(stream=STAYS, create=header(STAYS))
    await store.commit(Commit(writes=(new,), at=START_MS, blobs=(OWN,)))
    shown = MediaPart("image/png", f"media://{blob_hash(OWN)}", len(OWN))
    write = Write(stream=STAYS, entries=(new_tree(user("look", shown)),))

    def use() -> None:
        commit = Commit(writes=(write,), at=START_MS, blobs=(OWN,))
        committing = threading.Thread(target=lambda: asyncio.run(other.commit(commit)))
        committing.start()
        committing.join(60)

    lock = folder / ".perdure" / "locks" / f"{LOCK}-{file_name_of('')}"
    with meanwhile(lock, 1, use):
        await store.maintenance.vacuum()

    assert await store.blob(blob_hash(OWN)) == OWN
    assert (await store.maintenance.verify()).problems == ()


@pytest.mark.parametrize("name", ["position", "index"])
async def test_erased_session_gets_no_feed_position(
    folder: Path, open_store: Opener, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With a feed position, a later session of the same name would appear to have lost entries."""
    store, other = await open_store(), await open_store()
    await fill(store)
    (folder / ".perdure" / "feed").unlink()  # as if a tool had written them
    content, extend = file_of(folder, GONE).read_bytes(), Feed.extend
    erase = erasure(GONE)
    has_gone = False

    def late(feed: Feed, stream: StreamId, *arguments: Any, **named: Any) -> None:
        nonlocal has_gone
        if stream == GONE and not has_gone:
            has_gone = True
            eraser = threading.Thread(target=lambda: asyncio.run(other.retention.erase(erase)))
            eraser.start()
            eraser.join()
        extend(feed, stream, *arguments, **named)

    monkeypatch.setattr(Feed, "extend", late)
    await (store.position() if name == "position" else store.search.index())
    (folder / f"later_{GONE}.jsonl").write_bytes(content.splitlines(keepends=True)[0])

    assert has_gone
    problems = (await store.maintenance.verify()).problems
    assert [each for each in problems if "acknowledged" in each.problem] == []


class RewrittenIndex(Index):
    """The index of a folder whose indexed files another program rewrites before each scan."""

    scans = 0

    def scan(self, tables: IndexTables) -> tuple[Catalogue, FolderScan]:
        self.scans += 1
        assert self.scans < 100
        catalogue, found = super().scan(tables)
        return catalogue, msgspec.structs.replace(found, stale={1})


async def test_index_update_fails_if_files_are_rewritten_too_often(
    store: JsonlStore, folder: Path, dialect: DialectName
) -> None:
    await create(store)
    codec = PI if dialect == "pi" else OPERATOR
    sessions = SessionIndex(Folder(folder, is_synced=False), codec)
    with pytest.raises(StoreUnavailable, match="rewritten faster than they are indexed"):
        RewrittenIndex(sessions, Feed(sessions.folder)).next_step()
