"""Verify SQLite's own structure, and every stream and every derived number of a namespace.

``stores.verification`` recomputes the values that every backend stores (hashes, order, parents,
leaf, counts). This module checks the data that only this backend stores: runs, depths, counts along
branches, inherited states. An unreadable part of the file is reported as a problem, and the check
continues after this part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apsw

from perdure.errors import CorruptLog, StoreError
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import SessionInfo, info_after, info_of
from perdure.session.kinds import Compaction, ModelChange, ThinkingChange
from perdure.session.messages import MESSAGE
from perdure.stores.access.sqlite_connection import Row
from perdure.stores.chain import genesis_hash
from perdure.stores.protocol import EMPTY, OnProgress, Problem, Verification
from perdure.stores.sqlite.branches import STATE, Fork, fork_of, node_seen
from perdure.stores.sqlite.log.counts import count_problems
from perdure.stores.sqlite.log.names import name_problems
from perdure.stores.sqlite.log.orphans import stray_problems
from perdure.stores.sqlite.payload.contents import PackedContent, content_in
from perdure.stores.sqlite.rows import Node, Stream, Tables
from perdure.stores.sqlite.search.search_index import index_problems, indexed_texts
from perdure.stores.verification import (
    STEP_BYTES,
    Steps,
    StoredCommit,
    StoredEntry,
    content_lost,
    content_steps,
    contents_shown,
    info_faults,
    origin_hash_of,
    stream_problems,
)

_STREAMS = """
SELECT id FROM stream WHERE namespace = (SELECT no FROM namespace WHERE name = ?) ORDER BY no
"""

_ENTRIES = """
SELECT count(*) FROM stream AS s CROSS JOIN entry AS e ON e.stream = s.no
WHERE s.namespace = (SELECT no FROM namespace WHERE name = ?)
"""

_ROWS = """
SELECT seq, run, ref, at, kind, v, body, salt, digest, n, stream, depth, messages, state
FROM entry WHERE stream = ? AND seq > ? ORDER BY seq
"""

_COMMITS = """
SELECT e.seq, c.count, c.at, c.epoch, c.hash
FROM entry AS e CROSS JOIN commits AS c ON c.first = e.n
WHERE e.stream = ? ORDER BY e.seq
"""

_BLOBS = """
SELECT digest, size, packing, content FROM blob
WHERE namespace = (SELECT no FROM namespace WHERE name = ?)
"""

_BLOB_STEPS = """
SELECT coalesce(sum(1 + size / ?), 0) FROM blob
WHERE namespace = (SELECT no FROM namespace WHERE name = ?)
"""

_HAS_CONTENT = """
SELECT 1 FROM blob WHERE namespace = (SELECT no FROM namespace WHERE name = ?) AND digest = ?
"""

_LOST_ALIASES = """
SELECT name FROM alias AS a
WHERE stream = ? AND NOT EXISTS (SELECT 1 FROM entry WHERE stream = a.stream AND seq = a.seq)
"""

_NO_STATE: Row = (None, None, None, None)

MOST_UNREADABLE = 100
"""After this many unreadable entries the rest of a stream is skipped."""

_UNREADABLE = (apsw.Error, StoreError, UnicodeDecodeError, TypeError, ValueError)
"""Errors that are raised when damaged pages are read; some values have the wrong type."""


def verification(tables: Tables, namespace: str, told: OnProgress | None = None) -> Verification:
    """Implement ``MaintenanceService.verify``."""
    steps = Steps(told, _steps(tables, namespace) if told else 0)
    problems = list(_file_problems(tables))
    streams = entries = erased = 0
    for stream in _streams(tables, namespace, problems.append):
        check = _StreamCheck(tables, namespace, stream, steps)
        problems += check.problems()
        streams += 1
        entries += check.count
        erased += check.erased
    problems += _blob_problems(tables, namespace, steps)
    problems += stray_problems(tables, namespace)
    problems += count_problems(tables, namespace)
    problems += name_problems(tables, namespace)
    problems += index_problems(tables, namespace, steps)
    steps.end()
    return Verification(streams, entries, tuple(problems), erased)


def _steps(tables: Tables, namespace: str) -> int:
    """Return the number of entries, contents and texts to check; 0 if unknown."""
    try:
        contents = int(tables.value(_BLOB_STEPS, STEP_BYTES, namespace))
        return int(tables.value(_ENTRIES, namespace)) + contents + indexed_texts(tables, namespace)
    except _UNREADABLE:
        return 0


def _file_problems(tables: Tables) -> Iterator[Problem]:
    try:
        found = [str(row[0]) for row in tables.rows("PRAGMA quick_check(100)")]
    except apsw.Error as error:
        found = [str(error)]
    for text in found:
        if text != "ok":
            yield Problem(None, None, f"the database file is damaged: {text}")


def _streams(
    tables: Tables, namespace: str, report: Callable[[Problem], None]
) -> Iterator[StreamId]:
    try:
        for row in tables.rows(_STREAMS, namespace):
            yield StreamId(row[0])
    except _UNREADABLE as error:
        report(Problem(None, None, f"the list of sessions cannot be read ({error})"))


def _blob_problems(tables: Tables, namespace: str, steps: Steps) -> Iterator[Problem]:
    try:
        for row in tables.rows(_BLOBS, namespace):
            packed = PackedContent(*row)
            try:
                content_in(packed)
            except CorruptLog:
                yield Problem(None, None, f"the content {packed.digest} is damaged")
            steps.add(content_steps(packed.size))
    except _UNREADABLE as error:
        yield Problem(None, None, f"some contents cannot be read ({error})")


class _StreamCheck:
    """Checks one stream.

    `count` entries are readable, and `erased` of the readable entries were erased.
    """

    def __init__(self, tables: Tables, namespace: str, stream: StreamId, steps: Steps) -> None:
        self.count = 0
        self.erased = 0
        self._tables = tables
        self._namespace = namespace
        self._id = stream
        self._steps = steps
        self._found: list[Problem] = []

    def problems(self) -> list[Problem]:
        """Return every fault of the stream."""
        try:
            self._check(self._tables.stream(self._namespace, self._id))
        except _UNREADABLE as error:
            self._report(None, f"it cannot be read ({error})")
        return self._found

    def _report(self, seq: int | None, problem: str) -> None:
        self._found.append(Problem(self._id, seq, problem))

    def _check(self, stream: Stream) -> None:
        fork = fork_of(self._tables, stream.no)
        origin_hash = b"" if fork is None else self._origin_hash(fork)
        genesis = self._genesis(stream.no)
        is_erased = stream.state.info.status == "erased"
        if not is_erased and genesis != genesis_hash(stream.state.header, origin_hash):
            self._report(None, "the hash its chain begins with is not that of its header")
        shape = _Shape(self._tables, stream, self._report)
        self._found += stream_problems(
            stream.state,
            _commits(self._tables, stream.no),
            self._entries(stream, shape),
            lambda reference: self._sees(stream, reference),
            origin_hash=origin_hash,
            shared_messages=self._shared_messages(stream, fork),
            genesis=genesis,
        )
        shape.end()
        for row in self._tables.rows(_LOST_ALIASES, stream.no):
            self._report(None, f"the foreign id {row[0]!r} stands for no entry")

    def _sees(self, stream: Stream, reference: EntryId) -> bool:
        return node_seen(self._tables, stream.no, stream.state.head, reference) is not None

    def _entries(self, stream: Stream, shape: _Shape) -> Iterator[StoredEntry]:
        for row in self._rows(stream.no):
            entry = self._tables.entry(self._id, row[:7])
            self.count += 1
            self._steps.add()
            self.erased += row[7] is None
            if not isinstance(row[6], bytes):
                self._report(entry.seq, "its body is not kept as bytes")
                continue
            try:
                shape.take(entry, row)
            except _UNREADABLE as error:
                self._report(entry.seq, f"its parent cannot be read ({error})")
            for name in contents_shown(entry):
                if self._tables.value(_HAS_CONTENT, self._namespace, name) is None:
                    self._found.append(content_lost(entry, name))
            yield StoredEntry(entry, row[7], row[8])

    def _rows(self, stream: int) -> Iterator[Row]:
        """Yield the stream's rows in order; report and skip unreadable rows."""
        after, unreadable = EMPTY, 0
        while unreadable < MOST_UNREADABLE:
            try:
                for row in self._tables.rows(_ROWS, stream, after):
                    after = int(row[0])
                    yield row
            except _UNREADABLE as error:
                after += 1
                unreadable += 1
                self._report(after, f"it cannot be read ({error})")
            else:
                return

    def _origin_hash(self, fork: Fork) -> bytes:
        genesis = self._genesis(fork.origin)
        return origin_hash_of(genesis, _commits(self._tables, fork.origin), fork.head)

    def _genesis(self, stream: int) -> bytes:
        return bytes(self._tables.value("SELECT genesis FROM birth WHERE stream = ?", stream))

    def _shared_messages(self, stream: Stream, fork: Fork | None) -> int:
        if fork is None:
            return 0
        if fork.is_path:
            return self._tables.node_at(fork.leaf).messages if fork.leaf is not None else 0
        kept = "SELECT shared_messages FROM birth WHERE stream = ?"
        own = "SELECT count(*) FROM entry WHERE stream = ? AND seq <= ? AND kind = 1"
        origin = int(self._tables.value(kept, fork.origin))
        shared = origin + int(self._tables.value(own, fork.origin, fork.head))
        if shared != self._tables.value(kept, stream.no):
            self._report(None, "the count of messages it took over from its origin is wrong")
        return shared


def _commits(tables: Tables, stream: int) -> list[StoredCommit]:
    return [StoredCommit(*row) for row in tables.rows(_COMMITS, stream)]


class _Shape:
    """Recomputes values of a stream from its entries, and compares them with the stored values."""

    def __init__(
        self, tables: Tables, stream: Stream, report: Callable[[int | None, str], None]
    ) -> None:
        self._tables = tables
        self._stream = stream
        self._report = report
        self._tip: Node | None = None
        self._info: SessionInfo = info_of(stream.state.header)

    def take(self, entry: Entry, row: Row) -> None:
        """Compare the next entry with the derived values of its row."""
        self._info = info_after(self._info, (entry,))
        if entry.lane == "side":
            return
        kept = Node(row[9], row[10], row[0], row[1], row[11], row[12], row[13])
        parent = self._parent(entry)
        goes_on = parent is not None and self._tip is not None and parent.n == self._tip.n
        expected = Node(
            n=kept.n,
            stream=kept.stream,
            seq=kept.seq,
            run=parent.run if parent is not None and goes_on else entry.seq,
            depth=parent.depth + 1 if parent else 0,
            messages=(parent.messages if parent else 0) + (entry.kind == MESSAGE),
            state=kept.state,
        )
        for name, is_value, value in zip(Node._fields, kept, expected, strict=True):
            if is_value != value:
                self._report(entry.seq, f"its {name} is kept as {is_value}, it should be {value}")
        self._check_state(entry, kept, parent.state if parent else None)
        self._tip = kept

    def end(self) -> None:
        """Compare the stored values of the stream as a whole."""
        tip = self._tip.n if self._tip else None
        if tip != self._stream.tip:
            self._report(None, f"its tip is kept as {self._stream.tip}, it should be {tip}")
        for fault in info_faults(self._stream.state, self._info):
            self._report(None, fault)

    def _parent(self, entry: Entry) -> Node | None:
        if entry.parent_id is None:
            return None
        place = self._tables.place(self._stream.no, entry.parent_id)
        if place is not None and self._tip is not None and place == self._tip[1:3]:
            return self._tip
        return None if place is None else self._tables.node_of(*place)

    def _check_state(self, entry: Entry, kept: Node, inherited: int | None) -> None:
        position = {Compaction.kind: 0, ModelChange.kind: 1, ThinkingChange.kind: 2}
        if entry.kind not in position:
            if kept.state != inherited:
                self._report(entry.seq, "what its branch has inherited is not its parent's")
            return
        expected: list[Any] = list(self._state(inherited) or _NO_STATE)
        expected[position[entry.kind]] = kept.n
        if entry.kind == Compaction.kind:
            expected[3] = inherited
        if self._state(kept.state) != tuple(expected):
            self._report(entry.seq, "what its branch inherits from it is not what it says")

    def _state(self, number: int | None) -> Row:
        if number is None:
            return _NO_STATE
        return self._tables.row(STATE, number) or ()
