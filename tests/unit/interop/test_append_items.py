from __future__ import annotations

from collections.abc import Iterable

import pytest

from perdure.errors import FormatError
from perdure.interop.exports import export_session
from perdure.interop.formats.items import without_source
from perdure.interop.formats.native import move_entry
from perdure.interop.formats.sources.reader import BOUNDS, Bounds
from perdure.interop.reports import ExportFormat
from perdure.session.codec import readable
from perdure.session.entries import Entry, NewEntry, Sibling
from perdure.session.ids import EntryId, StreamId, entry_place
from perdure.session.kinds import OPAQUE
from perdure.session.notes import ImportSource, LeafMoved
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult, Write
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.samples import case
from tests.fakes.sources import FIXTURES, empty_store, growing_files, imported, pi_file

PIECES = Bounds(whole_bytes=0, piece_bytes=400)
FILES = growing_files()
V3 = StreamId("0f6f3f0e-7d55-4c83-9d0a-6f3ad2b7b003")


def parts(entries: Iterable[Entry]) -> list[ImportSource]:
    found = (readable(entry) for entry in entries if entry.kind == ImportSource.kind)
    return [body for body in found if isinstance(body, ImportSource)]


def contents(entries: list[Entry]) -> list[Entry]:
    """Return `entries` without import sources and leaf moves, renumbered from 0."""
    kept = [e for e in entries if e.kind not in (ImportSource.kind, LeafMoved.kind)]
    ids = {entry.id: EntryId(f"s/{number}") for number, entry in enumerate(kept)}
    stream = StreamId("s")
    return [
        move_entry(entry, stream, number, ids, without_source(entry.body))
        for number, entry in enumerate(kept)
    ]


class Interrupted(MemoryStore):
    """A store whose commits fail, beginning with commit number `fails_at`."""

    def __init__(self, fails_at: int) -> None:
        super().__init__(clock=ManualClock(), random=SeededRandom(1))
        self.left = fails_at

    async def commit(self, commit: Commit) -> CommitResult:
        if self.left == 0:
            raise OSError("the machine is gone")
        self.left -= 1
        return await super().commit(commit)


async def test_import_in_pieces_equals_import_of_the_whole_file() -> None:
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


async def test_file_imported_in_pieces_is_exported_with_its_original_bytes() -> None:
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
            for fails_at in range(1, commits, max(1, commits // 3)):
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


OLDER = FIXTURES / "older_imports"
"""Imports by a version that skipped calls without an id (before commit 12914aca)."""


GROWTH = {
    "gemini": (
        b'{"id":"u9","type":"user","content":"And pears?"}\n',
        b'{"id":"g9","type":"gemini","content":"No."}\n',
    ),
    "copilot": (
        (
            b'{"type":"user.message","id":"c9","data":{"content":"And pears?"},'
            b'"parentId":"c0de0004-0000-4000-8000-000000000000"}\n'
        ),
        b'{"type":"assistant.message","id":"ca","parentId":"c9","data":{"content":"No."}}\n',
    ),
}


@pytest.mark.parametrize("bounds", [BOUNDS, PIECES])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gemini_middle", ["Which apples keep?", "I read.", "Boskoop."]),
        ("gemini_end", ["Which apples keep?", "I read."]),
        ("copilot_middle", ["Which apples keep?", "Boskoop."]),
        ("copilot_first", []),
    ],
)
async def test_file_imported_by_an_older_version_can_grow(
    name: str, said: list[str], bounds: Bounds
) -> None:
    store = empty_store()
    stream = (await imported(store, OLDER / f"{name}.jsonl")).session
    content = b"".join([await store.blob(part.blob) for part in parts(await store.entries(stream))])
    entries: list[Entry] = []
    for line, text in zip(GROWTH[name.partition("_")[0]], ("And pears?", "No."), strict=True):
        content += line
        said = [*said, text]
        report = await imported(store, content, bounds=bounds)
        assert (report.session, report.messages, report.is_new) == (stream, 1, False)
        entries = await store.entries(stream)
        path = await store.branch(stream, (await store.state(stream)).leaf)
        assert [entry.message.text for entry in path if entry.message is not None] == said
        assert path == [entry for entry in entries if entry.lane == "tree"]
    assert (await imported(store, content, bounds=bounds)).entries == 0
    assert (await store.maintenance.verify()).is_ok
    assert b"".join([await store.blob(part.blob) for part in parts(entries)]) == content


async def test_append_continues_after_an_unreadable_last_entry() -> None:
    lines = pi_file("v3.jsonl").splitlines(keepends=True)
    begin, content = b"".join(lines[:3]), b"".join(lines[:4])
    reading, store = empty_store(), empty_store()
    stream = (await imported(reading, begin)).session
    entries = await reading.entries(stream)
    unread = entries[-1]
    assert (unread.lane, unread.seq) == ("tree", (await reading.state(stream)).head)
    written = [
        NewEntry(
            kind=OPAQUE if entry is unread else entry.kind,
            body=lines[2].rstrip() if entry is unread else entry.body,
            v=entry.v,
            lane=entry.lane,
            parent=None if entry.parent_id is None else Sibling(entry_place(entry.parent_id)[1]),
            at=entry.at,
        )
        for entry in entries
    ]
    header = (await reading.state(stream)).header
    write = Write(stream=stream, create=header, entries=tuple(written), is_received=True)
    await store.commit(Commit(writes=(write,), at=unread.at, blobs=(begin,)))
    report = await imported(store, content)
    assert (report.session, report.entries) == (stream, 1)
    tree = [entry for entry in await store.entries(stream) if entry.lane == "tree"]
    assert await store.branch(stream, (await store.state(stream)).leaf) == tree
    assert OPAQUE in [entry.kind for entry in tree]


async def test_import_of_growing_file_adds_same_entries_as_one_import() -> None:
    for content in FILES:
        lines = content.splitlines(keepends=True)
        whole = empty_store()
        once = await imported(whole, content)
        for count in range(1, len(lines), max(1, len(lines) // 3)):
            with case((content, count)):
                growing = empty_store()
                try:
                    before = await imported(growing, b"".join(lines[:count]))
                except FormatError:
                    continue  # its first line names no session
                after = await imported(growing, content)
                assert after.session == once.session
                assert before.entries + after.entries == once.entries
                assert before.messages + after.messages == once.messages


class Overtaken(MemoryStore):
    """A store in which another import of `file` ends just before the next commit."""

    file: bytes | None = None

    async def commit(self, commit: Commit) -> CommitResult:
        if self.file is not None:
            file, self.file = self.file, None
            await imported(self, file)
        return await super().commit(commit)


async def test_concurrent_imports_of_a_grown_file_add_each_entry_once() -> None:
    whole, once = pi_file("v3.jsonl"), empty_store()
    await imported(once, b"".join(whole.splitlines(keepends=True)[:9]))
    await imported(once, whole)
    store = Overtaken(clock=ManualClock(), random=SeededRandom(1))
    await imported(store, b"".join(whole.splitlines(keepends=True)[:9]))
    store.file = whole
    report = await imported(store, whole)
    assert (report.session, report.entries) == (V3, 0)
    assert contents(await store.entries(V3)) == contents(await once.entries(V3))
