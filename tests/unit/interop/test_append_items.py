from __future__ import annotations

from collections.abc import Iterable

import pytest

from perdure.interop.exports import export_session
from perdure.interop.formats.items import without_source
from perdure.interop.formats.native import move_entry
from perdure.interop.formats.sources.reader import Bounds
from perdure.interop.reports import ExportFormat
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.notes import ImportSource, LeafMoved
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.samples import case
from tests.fakes.sources import empty_store, growing_files, imported

PIECES = Bounds(whole_bytes=0, piece_bytes=400)
FILES = growing_files()
V3 = StreamId("0f6f3f0e-7d55-4c83-9d0a-6f3ad2b7b003")


def parts(entries: Iterable[Entry]) -> list[ImportSource]:
    found = (readable(entry) for entry in entries if entry.kind == ImportSource.kind)
    return [body for body in found if isinstance(body, ImportSource)]


def contents(entries: list[Entry]) -> list[Entry]:
    """Return `entries` without the stored file, renumbered with their references."""
    kept = [e for e in entries if e.kind not in (ImportSource.kind, LeafMoved.kind)]
    ids = {entry.id: EntryId(f"s/{number}") for number, entry in enumerate(kept)}
    stream = StreamId("s")
    return [
        move_entry(entry, stream, number, ids, without_source(entry.body))
        for number, entry in enumerate(kept)
    ]


class Interrupted(MemoryStore):
    """A store whose commits fail from the one numbered `fails_at` on."""

    def __init__(self, fails_at: int) -> None:
        super().__init__(clock=ManualClock(), random=SeededRandom(1))
        self.left = fails_at

    async def commit(self, commit: Commit) -> CommitResult:
        if self.left == 0:
            raise OSError("the machine is gone")
        self.left -= 1
        return await super().commit(commit)


async def test_import_in_pieces_equals_whole_import() -> None:
    for content in FILES:
        with case(content):
            whole, pieces = empty_store(), empty_store()
            once = await imported(whole, content)
            report = await imported(pieces, content, bounds=PIECES)
            assert report == once
            theirs, ours = await whole.entries(once.session), await pieces.entries(once.session)
            assert contents(ours) == contents(theirs)
            assert set(await pieces.aliases(once.session)) == set(await whole.aliases(once.session))
            assert [part.has_more for part in parts(ours)] == [True] * (len(parts(ours)) - 1) + [
                False
            ]
            assert b"".join([await pieces.blob(part.blob) for part in parts(ours)]) == content
            first, last = await whole.state(once.session), await pieces.state(once.session)
            assert last.info.status == "active"
            assert (last.info.messages, last.info.title) == (first.info.messages, first.info.title)
            assert (await pieces.maintenance.verify()).is_ok
            again = await imported(pieces, content, bounds=PIECES)
            assert (again.entries, again.is_new) == (0, False)
            assert await pieces.entries(once.session) == ours


FORMATS: tuple[ExportFormat, ...] = ("pi", "operator")


async def test_import_in_pieces_exports_original_bytes() -> None:
    for content in FILES:
        with case(content):
            store = empty_store()
            report = await imported(store, content, bounds=PIECES)
            for format in FORMATS:
                if report.format == format:
                    assert (await export_session(store, report.session, format)).content == content


async def test_interrupted_import_is_marked_and_resumed() -> None:
    for content in FILES:
        with case(content):
            whole = empty_store()
            once = await imported(whole, content, bounds=PIECES)
            expected = contents(await whole.entries(once.session))
            commits = len(parts(await whole.entries(once.session)))
            for fails_at in range(1, commits, max(1, commits // 5)):
                store = Interrupted(fails_at)
                with pytest.raises(OSError, match="gone"):
                    await imported(store, content, bounds=PIECES)
                [listed] = await store.sessions(scope="all")
                assert listed.status == "importing"
                store.left = -1
                report = await imported(store, content, bounds=PIECES)
                entries = await store.entries(once.session)
                assert contents(entries) == expected
                assert (await store.state(once.session)).info.status == "active"
                assert (await store.state(once.session)).leaf == entries_leaf(entries)
                assert report.entries <= once.entries


def entries_leaf(entries: list[Entry]) -> EntryId | None:
    leaf: EntryId | None = None
    for entry in entries:
        if entry.lane == "tree":
            leaf = entry.id
        elif isinstance(moved := readable(entry), LeafMoved):
            leaf = moved.target
    return leaf
