"""Read the tables of the log through one connection, and convert rows to values.

This module converts columns to values of ``session`` and ``stores.protocol``, and the numbers in
the rows to names. ``migrations/0012_log.sql`` defines the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import apsw
import msgspec

from perdure.errors import SessionNotFound
from perdure.errors.arguments import is_utf8
from perdure.session.entries import Entry
from perdure.session.ids import MOST_SEQ, EntryId, StreamId, entry_id, place_of
from perdure.session.info import SessionInfo, StreamHeader, with_description
from perdure.stores.access.sqlite_connection import Connection, Row, SqlRows
from perdure.stores.protocol import StreamState

if TYPE_CHECKING:
    from perdure.stores.wakeups import Place  # it loads asyncio, which lists do not need

INFO_COLUMNS = """
    s.no, s.id, s.kind, s.origin, s.created_at, s.updated_at, s.title, s.first_text, s.cwd,
    s.parent, s.messages, s.head, s.turns, s.status,
    s.open_turn"""
"""The columns of ``stream AS s`` that `info_of_row` reads, in the order of ``SessionInfo``."""

_STREAM = f"""
SELECT {INFO_COLUMNS},
    s.tip, s.hash, s.epoch, s.owner, s.until, b.header,
    s.namespace, l.n, l.stream, l.seq, l.run, l.depth, l.messages, l.state
FROM stream AS s JOIN birth AS b ON b.stream = s.no LEFT JOIN entry AS l ON l.n = s.leaf
WHERE s.namespace = (SELECT no FROM namespace WHERE name = ?) AND s.id = ?
"""  # noqa: S608 - put together from constants

_NEIGHBOUR_NUMBER = """
SELECT no FROM stream WHERE namespace = (SELECT namespace FROM stream WHERE no = ?) AND id = ?
"""

_NODE_AT = "SELECT n, stream, seq, run, depth, messages, state FROM entry WHERE n = ?"

_NODE_OF = """
SELECT n, stream, seq, run, depth, messages, state FROM entry WHERE stream = ? AND seq = ?
"""

_ENTRY_AT = "SELECT seq, run, ref, at, kind, v, body, stream FROM entry WHERE n = ?"

_ENTRY_OF = "SELECT seq, run, ref, at, kind, v, body FROM entry WHERE stream = ? AND seq = ?"

ENTRY_COLUMNS = "seq, run, ref, at, kind, v, body"
"""The columns that `Tables.entry` reads."""

# Positions of entries that retention removed are never reused.
_NEXT = "max((SELECT coalesce(max(n), 0) FROM entry), (SELECT position FROM removed)) + 1"

NEXT_POSITION = f"SELECT {_NEXT}"
"""Query the position of the next entry."""

NEWEST_SPAN = "SELECT namespace FROM span ORDER BY first DESC LIMIT 1"
"""Query the namespace of the newest span."""

# Every commit to a stream changes its hash, an erasure its epoch, a removal its namespace.
_STILL_STANDS = f"""
SELECT hash = ? AND epoch = ? AND owner IS ? AND until = ? AND namespace > 0, {_NEXT},
    ({NEWEST_SPAN})
FROM stream WHERE no = ?
"""  # noqa: S608 - put together from constants

MOST_STANDING = 1_000
"""Number of streams that the writer caches between commits."""

_header = msgspec.json.Decoder(StreamHeader)


class Node(NamedTuple):
    """A tree entry's location: position, stream number, and place on its branch."""

    n: int
    stream: int
    seq: int
    run: int
    depth: int
    messages: int
    state: int | None


class Stream(msgspec.Struct, frozen=True):
    """A row of ``stream``. `tip` is the position of the stream's own newest tree entry."""

    no: int
    namespace: int
    state: StreamState
    leaf: Node | None
    tip: int | None
    owner: str | None
    until: int

    def with_lease(self, epoch: int, owner: str | None, until: int) -> Stream:
        """Return a copy with the given lease."""
        state = msgspec.structs.replace(self.state, epoch=epoch)
        return msgspec.structs.replace(self, state=state, owner=owner, until=until)


class Tables(SqlRows):
    """Reads and writes the tables through one connection; only one thread at a time may use it.

    Numbers and their names are cached. A cached number never changes after a commit, so only a
    rollback invalidates it (`forget`). For the writer, the object caches the stream states
    (`standing`), the next position (`next_n`) and the namespace of the newest span
    (`newest_namespace`). The values that are cached for the writer are valid as long as no other
    connection commits. After a commit of another connection, the cached streams become `doubted`
    and must be checked before use. `written` are the streams that this transaction has written.
    """

    def __init__(self, db: Connection) -> None:
        super().__init__(db)
        self.kinds: dict[int, str] = {}
        self.kind_numbers: dict[str, int] = {}
        self.stream_ids: dict[int, StreamId] = {}
        self.standing: dict[tuple[str, StreamId], Stream] = {}
        self.doubted: dict[tuple[str, StreamId], Stream] = {}
        self.next_n: int | None = None
        self.newest_namespace: int | None = None
        self.written: set[Place] = set()

    def forget(self) -> None:
        """Clear all caches."""
        self.kinds.clear()
        self.kind_numbers.clear()
        self.stream_ids.clear()
        self.forget_standing()

    def forget_standing(self, *, is_doubted: bool = False) -> None:
        """Remove the stream states from the cache.

        If `is_doubted` is True, move the stream states to `doubted`, because a check can make them
        usable again.
        """
        if is_doubted:
            self.doubted.update(self.standing)
        else:
            self.doubted.clear()
        self.standing.clear()
        self.next_n = self.newest_namespace = None

    # -- names and numbers

    def kind(self, number: int) -> str:
        """Return the name of a kind."""
        name = self.kinds.get(number)
        if name is None:
            name = self.value("SELECT name FROM kind WHERE no = ?", number)
            if not isinstance(name, str):
                raise apsw.CorruptError(f"there is no kind {number}")
            self.kinds[number] = name
        return name

    def kind_number(self, name: str) -> int | None:
        """Return the number of a kind; None if no entry has the kind."""
        number = self.kind_numbers.get(name)
        if number is None:
            number = self.value("SELECT no FROM kind WHERE name = ?", name)
            if number is not None:
                self.kind_numbers[name] = number
        return number

    def stream_id(self, number: int) -> StreamId:
        """Return the id of a stream."""
        found = self.stream_ids.get(number)
        if found is None:
            name = self.value("SELECT id FROM stream WHERE no = ?", number)
            if not isinstance(name, str):
                raise apsw.CorruptError(f"there is no stream {number}")
            found = self.stream_ids[number] = StreamId(name)
        return found

    # -- rows

    def stream(self, namespace: str, stream: str) -> Stream:
        """Return the current row of a stream.

        Raises: SessionNotFound.
        """
        row = self.row(_STREAM, namespace, stream) if is_utf8(stream) else None
        if row is None:
            raise SessionNotFound(stream)
        return self._stream(row)

    def _stream(self, row: Row) -> Stream:
        open_turn, tip, chain, epoch, owner, until, header = row[14:21]
        leaf = None if row[22] is None else Node(*row[22:])
        leaf_id = None if leaf is None else entry_id(self.stream_id(leaf.stream), leaf.seq)
        born = header_in(header, row[1])
        info = with_description(info_of_row(row), born)
        state = StreamState(born, row[11], leaf_id, chain, epoch, open_turn, info)
        return Stream(row[0], row[21], state, leaf, tip, owner, until)

    def node_at(self, n: int) -> Node:
        """Return the tree entry at a position."""
        row = self.row(_NODE_AT, n)
        if row is None:
            raise apsw.CorruptError(f"the entry at position {n} is gone")
        return Node(*row)

    def node_of(self, stream: int, seq: int) -> Node | None:
        """Return the tree entry at `seq` in a stream's own log; None if there is none."""
        row = self.row(_NODE_OF, stream, seq)
        return None if row is None or row[3] is None else Node(*row)

    def entry(self, stream: StreamId, row: Row) -> Entry:
        """Decode an entry of `stream` from `ENTRY_COLUMNS`."""
        seq, run, ref, at, kind, v, body = row
        target = EntryId(ref) if isinstance(ref, str) else None
        if isinstance(ref, int):
            target = entry_id(stream, ref)
        name = self.kinds.get(kind) or self.kind(kind)
        if run is None:
            return Entry(stream, seq, "side", None, target, at, name, v, body)
        return Entry(stream, seq, "tree", target, None, at, name, v, body)

    def entry_at(self, n: int) -> Entry:
        """Return the entry at a position."""
        row = self.row(_ENTRY_AT, n)
        if row is None:
            raise apsw.CorruptError(f"the entry at position {n} is gone")
        return self.entry(self.stream_id(row[7]), row[:7])

    def entry_of(self, stream: int, seq: int) -> Entry | None:
        """Return the entry at `seq` in a stream's own log, a tree or side entry."""
        row = self.row(_ENTRY_OF, stream, seq)
        return None if row is None else self.entry(self.stream_id(stream), row)

    def place(self, stream: int, reference: str) -> tuple[int, int] | None:
        """Return the stream number and seq of an entry id, in the namespace of stream `stream`.

        Returns None if the id is invalid, or the namespace has no such stream.
        """
        named, seq = place_of(reference) or (None, 0)
        if named is None or seq > MOST_SEQ:
            return None
        if named == self.stream_ids.get(stream):
            return stream, seq
        number = self.value(_NEIGHBOUR_NUMBER, stream, named)
        return None if number is None else (int(number), seq)


def namespace_no(tables: Tables, name: str) -> int | None:
    """Return the number of a namespace; None if the namespace has no data."""
    return tables.value("SELECT no FROM namespace WHERE name = ?", name)


def standing(tables: Tables, namespace: str, stream: StreamId) -> Stream:
    """Return the stream as this transaction sees it. Raises: SessionNotFound."""
    found = tables.standing.get((namespace, stream))
    if found is None:
        doubted = tables.doubted.pop((namespace, stream), None)
        if doubted is None or not _still_stands(tables, doubted):
            found = tables.stream(namespace, stream)
        else:
            found = doubted
        remember(tables, namespace, found)
    return found


def _still_stands(tables: Tables, stream: Stream) -> bool:
    """Return whether the cached `stream` is unchanged, without reading its whole row again.

    If the next position is unknown, the call also caches the next position and the namespace of the
    newest span.
    """
    state = stream.state
    row = tables.row(_STILL_STANDS, state.hash, state.epoch, stream.owner, stream.until, stream.no)
    if row is None or not row[0]:
        return False
    if tables.next_n is None:
        tables.next_n, tables.newest_namespace = int(row[1]), row[2]
    return True


def remember(tables: Tables, namespace: str, stream: Stream) -> None:
    """Cache the state of `stream` for the writer."""
    if len(tables.standing) + len(tables.doubted) >= MOST_STANDING:
        tables.standing.clear()
        tables.doubted.clear()
    id_ = stream.state.header.id
    tables.standing[namespace, id_] = stream
    tables.stream_ids[stream.no] = id_


def next_position(tables: Tables) -> int:
    """Return the position of the next entry."""
    if tables.next_n is None:
        tables.next_n = int(tables.value(NEXT_POSITION))
    return tables.next_n


def info_of_row(row: Row) -> SessionInfo:
    """Return the info of a row that begins with the columns of `INFO_COLUMNS`."""
    return SessionInfo(
        *row[1:11], entries=row[11] + 1, turns=row[12], status=row[13], open_turn=row[14]
    )


def described_row(info: SessionInfo, header: bytes) -> SessionInfo:
    """Add the header's fields to `info`."""
    return with_description(info, header_in(header, info.id))


def header_in(stored: bytes, stream: str) -> StreamHeader:
    """Decode the header of `stream`. Raises: apsw.CorruptError."""
    try:
        return _header.decode(stored)
    except msgspec.MsgspecError as error:
        raise apsw.CorruptError(f"the header of session {stream} is damaged") from error
