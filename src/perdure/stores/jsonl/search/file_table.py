"""The rows of the index that describe session files and the location of each indexed text.

A row describes the state of a file when it was indexed, so a search can detect changed files. The
location of a text is its line, so a hit can be shown without reading the rest of the file.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterable, Iterator
from pathlib import Path

import msgspec

from perdure.session.ids import StreamId
from perdure.stores.access.sqlite_connection import SqlRows
from perdure.stores.jsonl.disk.feed import FeedMark, trail
from perdure.stores.jsonl.disk.folder import Stamp
from perdure.stores.jsonl.rows import Row
from perdure.stores.jsonl.search.branch_members import BranchMap
from perdure.stores.regular_files import open_to_read, status_of
from perdure.stores.search.rows import Mark
from perdure.stores.search.sqlite_tables import stored_mark

INDEXED = 1
"""The namespace's number in the index; an index file contains only one namespace."""

TABLES = """
CREATE TABLE namespace (
    no   INTEGER PRIMARY KEY,
    name TEXT NOT NULL
) STRICT;
CREATE TABLE session_file (
    name  BLOB PRIMARY KEY,
    known BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE search_place (
    n       INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    target  INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    offset  INTEGER NOT NULL,
    size    INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    v       INTEGER NOT NULL,
    is_side INTEGER NOT NULL,
    is_ours INTEGER NOT NULL,
    part    INTEGER NOT NULL,
    about   TEXT
) STRICT;
CREATE TABLE feed_mark (
    no       INTEGER PRIMARY KEY,
    inode    INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    trail    BLOB NOT NULL,
    position INTEGER NOT NULL
) STRICT;
"""
"""`session_file.known` is a `Known`; `search_place` has a `Place` for each position of a text.

`feed_mark` contains the position up to which the feed was read, and `Catalogue.position`.
"""

EVERYWHERE, NOWHERE = -1, -2
"""Special values of a target: the text is on every branch, or on no branch."""

_PUT_FILE = "INSERT OR REPLACE INTO session_file VALUES (?, ?)"
_REMOVE_FILE = "DELETE FROM session_file WHERE name = ?"
_FEED_MARK = "SELECT inode, size, trail, position FROM feed_mark WHERE no = 1"
_PUT_FEED_MARK = "INSERT OR REPLACE INTO feed_mark VALUES (1, ?, ?, ?, ?)"
_PLACES_OF = "SELECT seq, n FROM search_place WHERE session = ?"
_OF_SESSIONS = "session IN (SELECT value FROM json_each(?))"


class Known(msgspec.Struct, array_like=True, frozen=True):
    """The state of a session file when it was last indexed.

    `number` identifies the session in the index, and -`number` is the position of its title. The
    first `count` of its `entries` are indexed; `last` identifies the line of the last indexed
    entry. If `is_settled` is True, no append can change the seqs of the indexed entries. `end` is
    the end of the last entry in the file. `trail` is the hash of the last bytes before `end`. A
    file without a searchable session has an empty `stream` and the number 0. `file` is the file's
    name in the operating system's encoding.
    Units: bytes, Unix milliseconds.
    """

    file: bytes
    stream: StreamId
    number: int
    inode: int
    size: int
    modified_ns: int
    created_at: int = 0
    subject: str | None = None
    entries: int = 0
    count: int = 0
    is_settled: bool = True
    last: tuple[int, int, int] = (0, 0, 0)
    leaf: int | None = None
    branching: BranchMap = BranchMap()
    end: int = 0
    trail: bytes = b""

    @property
    def name(self) -> str:
        """The name of the file."""
        return os.fsdecode(self.file)

    @property
    def is_whole(self) -> bool:
        """Whether all entries of the file are indexed."""
        return self.count == self.entries

    def looks_like(self, stamp: Stamp) -> bool:
        """Whether the file has not changed since it was indexed."""
        return (
            self.size == stamp.size
            and self.modified_ns == stamp.modified_ns
            and self.inode == stamp.inode
        )

    def begins(self, path: Path, stamp: Stamp) -> bool:
        """Whether the file `path` with that `stamp` still begins with the indexed bytes."""
        if not self.looks_like(stamp) and (stamp.inode != self.inode or stamp.size <= self.size):
            return False
        return trail_of(path, self.end) == self.trail

    def is_in(self, path: Path) -> bool:
        """Whether `path` is still the indexed file and still contains the indexed bytes."""
        try:
            stamp = Stamp.of(status_of(path))
            is_long = stamp.size >= self.end
            return stamp.inode == self.inode and is_long and trail_of(path, self.end) == self.trail
        except OSError:
            return False


class Place(msgspec.Struct, array_like=True, frozen=True):
    """The location of a text: its session's number, its seq, and its line (see ``rows.Row``).

    `target` is the seq of an entry; the text is on exactly those branches that contain the entry
    `target`. `target` can also be `EVERYWHERE` or `NOWHERE`. Units: bytes, Unix milliseconds.
    """

    session: int
    seq: int
    target: int
    at: int
    offset: int
    size: int
    kind: str
    v: int
    is_side: bool
    is_ours: bool
    part: int
    about: str | None


class Catalogue:
    """The state of the index: how far the log and the feed were read, and the indexed files.

    Every entry up to `position` is indexed, and no entry will be added before `position`. A
    `position` of 0 means that the position is unknown.
    """

    def __init__(
        self,
        mark: Mark = Mark(),  # noqa: B008 - it is immutable
        feed: FeedMark = FeedMark(),  # noqa: B008 - it is immutable
        position: int = 0,
        files: Iterable[Known] = (),
    ) -> None:
        self.mark = mark
        self.feed = feed
        self.position = position
        self.by_name = {known.name: known for known in files}
        self.by_number = {known.number: known for known in self.by_name.values() if known.number}

    def numbers_of(self, streams: Collection[StreamId]) -> set[int]:
        """Return the numbers that the sessions `streams` have in the index."""
        return {number for number, known in self.by_number.items() if known.stream in streams}


_known = msgspec.msgpack.Decoder(Known)
_encode = msgspec.msgpack.Encoder().encode


def catalogue_in(tables: SqlRows) -> Catalogue:
    """Return the state of the index. Raises: ValueError for damaged rows."""
    files = [_known.decode(row[0]) for row in tables.rows("SELECT known FROM session_file")]
    if any("/" in known.name or known.name in ("", ".", "..") for known in files):
        raise ValueError("the search index names a file outside of its folder")
    inode, size, trail, position = next(tables.rows(_FEED_MARK), (0, 0, b"", 0))
    return Catalogue(stored_mark(tables, INDEXED), FeedMark(inode, size, trail), position, files)


def put_files(tables: SqlRows, files: Iterable[Known]) -> None:
    """Store the state of each of `files`."""
    tables.run_many(_PUT_FILE, [(known.file, _encode(known)) for known in files])


def remove_files(tables: SqlRows, files: Iterable[Known]) -> None:
    """Remove the rows of `files`."""
    tables.run_many(_REMOVE_FILE, [(known.file,) for known in files])


def put_feed_mark(tables: SqlRows, feed: FeedMark, position: int) -> None:
    """Store the position up to which the feed was read, and `Catalogue.position`."""
    tables.run(_PUT_FEED_MARK, (feed.inode, feed.end, feed.trail, position))


def put_places(tables: SqlRows, places: Iterable[tuple[int, Place]]) -> None:
    """Store the places of texts; each place comes with the position of its text."""
    marks = ", ".join("?" * (1 + len(Place.__struct_fields__)))
    rows = [(position, *msgspec.structs.astuple(place)) for position, place in places]
    tables.run_many(f"INSERT INTO search_place VALUES ({marks})", rows)  # noqa: S608 - put together from constants


def place_at(tables: SqlRows, position: int) -> Place | None:
    """Return the place of the text at `position`; None if it is not indexed."""
    row = next(tables.rows("SELECT * FROM search_place WHERE n = ?", position), None)
    return None if row is None else Place(*row[1:])


def places_of(tables: SqlRows, number: int) -> Iterator[Place]:
    """Yield the places of the indexed texts of a session."""
    rows = tables.rows("SELECT * FROM search_place WHERE session = ? ORDER BY seq", number)
    return (Place(*row[1:]) for row in rows)


def positions_of(tables: SqlRows, numbers: Collection[int]) -> list[int]:
    """Return the positions of the indexed texts and titles of the sessions `numbers`."""
    sql = f"SELECT n FROM search_place WHERE {_OF_SESSIONS}"  # noqa: S608 - put together from constants
    found = [row[0] for row in tables.rows(sql, _listed(numbers))]
    return [*(-number for number in numbers), *found]


def seqs_of(tables: SqlRows, number: int, indexed: Container[int]) -> set[int]:
    """Return the seqs of the session's texts whose positions are among `indexed`."""
    return {seq for seq, position in tables.rows(_PLACES_OF, number) if position in indexed}


def remove_places(tables: SqlRows, numbers: Collection[int]) -> None:
    """Remove the places of all texts of the sessions `numbers`."""
    tables.run(f"DELETE FROM search_place WHERE {_OF_SESSIONS}", (_listed(numbers),))  # noqa: S608 - put together from constants


def _listed(numbers: Collection[int]) -> str:
    return msgspec.json.encode(sorted(numbers)).decode()


def trail_of(path: Path, end: int) -> bytes:
    """Return the hash of the last bytes before `end` in the file at `path`."""
    with open_to_read(path, buffering=0) as file:
        return trail(file, end)


def place_of_row(row: Row) -> tuple[int, int, int]:
    """Return the fields that distinguish the line of `row` from other lines."""
    return row.offset, row.size, row.part
