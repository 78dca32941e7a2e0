"""Verify a whole namespace: every stream and every derived number.

``stores.verification`` recomputes the values that every backend stores (hashes, order, parents,
leaf, counts). This module checks the data that only this backend stores: runs, depths, counts along
branches, inherited states. The check runs on a thread with its own connection, in one snapshot of
the namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, LiteralString

import psycopg
from psycopg import Connection

from perdure.errors import CorruptLog, StoreError
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import SessionInfo, info_after, info_of
from perdure.session.kinds import Compaction, ModelChange, ThinkingChange
from perdure.session.memory.open_entries import CLOSING, OPENING
from perdure.session.messages import MESSAGE
from perdure.stores.chain import genesis_hash
from perdure.stores.postgres.branches import ask_nodes, ask_state
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.faults import is_lost, meaning_of
from perdure.stores.postgres.lists import PARTS, SESSIONS, folder_key, wrong_names
from perdure.stores.postgres.reads import ask_streams
from perdure.stores.postgres.retention.usage import NamespaceTotals, asking_counted, asking_kept
from perdure.stores.postgres.row_builder import left_behind
from perdure.stores.postgres.rows import (
    ENTRY_COLUMNS,
    NODE_COLUMNS,
    Node,
    Row,
    State,
    Stream,
    entry_of,
    node_of,
    place_of,
    stream_of,
)
from perdure.stores.postgres.search.search_index import INDEXED_TEXTS, index_problems
from perdure.stores.protocol import EMPTY, OnProgress, Problem, Verification
from perdure.stores.verification import (
    STEP_BYTES,
    Steps,
    StoredCommit,
    StoredEntry,
    blob_problems,
    content_lost,
    content_steps,
    contents_shown,
    info_faults,
    origin_hash_of,
    stream_problems,
)

FETCHED = 500
"""Maximum number of entries in memory at a time."""

_STREAMS: LiteralString = """
SELECT stream FROM perdure.birth WHERE namespace = %s
UNION SELECT id FROM perdure.stream WHERE namespace = %s ORDER BY 1
"""

_ENTRIES: LiteralString = "SELECT count(*) FROM perdure.entry WHERE namespace = %s"

_HOMELESS: LiteralString = """
SELECT DISTINCT e.stream FROM perdure.entry AS e
WHERE e.namespace = %s AND NOT EXISTS (
    SELECT FROM perdure.stream AS s WHERE s.namespace = e.namespace AND s.id = e.stream)
"""

_ROWS: LiteralString = f"""
SELECT {ENTRY_COLUMNS}, e.salt, e.digest, {NODE_COLUMNS} FROM perdure.entry AS e
WHERE e.namespace = %s AND e.stream = %s ORDER BY e.seq
"""  # noqa: S608 - put together from constants

_COMMITS: LiteralString = """
SELECT coalesce(lag(e.seq) OVER (ORDER BY e.seq) + 1, 0), e.seq,
    e.commit_at, e.commit_epoch, e.chain
FROM perdure.entry AS e
WHERE e.namespace = %s AND e.stream = %s AND e.chain IS NOT NULL ORDER BY e.seq
"""

_FAR: LiteralString = """
SELECT DISTINCT e.far FROM perdure.entry AS e
WHERE e.namespace = %s AND e.stream = %s AND e.run IS NOT NULL AND e.far IS NOT NULL
"""

_BIRTH: LiteralString = """
SELECT genesis, shared_messages, origin, origin_head, origin_leaf, is_path
FROM perdure.birth WHERE namespace = %s AND stream = %s
"""

_OWN_MESSAGES: LiteralString = """
SELECT count(*) FROM perdure.entry WHERE namespace = %s AND stream = %s AND seq <= %s AND kind = %s
"""

_MESSAGES_AT: LiteralString = """
SELECT messages FROM perdure.entry WHERE namespace = %s AND stream = %s AND seq = %s
"""

_LOST_ALIASES: LiteralString = """
SELECT a.name FROM perdure.alias AS a
WHERE a.namespace = %s AND a.stream = %s AND NOT EXISTS (
    SELECT FROM perdure.entry AS e
    WHERE e.namespace = a.namespace AND e.stream = a.stream AND e.seq = a.seq)
"""

_COLUMNS: LiteralString = """
SELECT kind, origin, updated_at, folder, is_active, created_at
FROM perdure.stream WHERE namespace = %s AND id = %s
"""

# Entries that are open only in the log or only in the stored table.
_OPEN_ENTRIES: LiteralString = """
WITH open AS (
    SELECT q.stream, q.seq FROM perdure.entry AS q
    WHERE q.namespace = %s AND q.kind = ANY(%s) AND q.run IS NULL AND q.salt IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM perdure.entry AS a WHERE a.namespace = q.namespace
                AND a.stream = q.stream AND a.kind = ANY(%s) AND a.run IS NULL AND a.ref = q.seq)
), kept AS (SELECT stream, seq FROM perdure.open_question WHERE namespace = %s)
(SELECT o.*, 'is missing in' FROM open AS o EXCEPT SELECT k.*, 'is missing in' FROM kept AS k)
UNION ALL
(SELECT k.*, 'does not belong in' FROM kept AS k
 EXCEPT SELECT o.*, 'does not belong in' FROM open AS o)
LIMIT 100
"""

_HAS_CONTENT: LiteralString = """
SELECT true FROM perdure.blob WHERE namespace = %s AND digest = %s
"""

_BLOB_STEPS: LiteralString = """
SELECT coalesce(sum(1 + octet_length(content) / %s), 0)::bigint FROM perdure.blob
WHERE namespace = %s
"""

_BLOBS: LiteralString = "SELECT digest, content FROM perdure.blob WHERE namespace = %s"

_UNREADABLE = (StoreError, CorruptLog, UnicodeDecodeError, TypeError, ValueError)
"""Errors that are raised when a damaged value is read."""

Report = Callable[[int | None, str], None]


def verification(database: Database, told: OnProgress | None = None) -> Verification:
    """Implement ``MaintenanceService.verify``. The call blocks."""
    try:
        with database.connect_blocking() as db:
            return _Check(db, database.namespace, told).verification()
    except psycopg.Error as error:
        raise meaning_of(error, database.address) from error


class _Check:
    """Checks a namespace over one connection, in one snapshot."""

    def __init__(self, db: Connection[Row], namespace: str, told: OnProgress | None) -> None:
        self.namespace = namespace
        self._db = db
        self.steps = Steps(told, self._steps() if told else 0)

    def verification(self) -> Verification:
        """Check every stream and every blob."""
        problems: list[Problem] = []
        streams = entries = erased = 0
        for (stream,) in self.rows(Statement(_STREAMS, (self.namespace,) * 2)):
            check = _StreamCheck(self, StreamId(stream))
            failed = self.try_check(check.look, "it cannot be read")
            problems += check.found
            problems += [Problem(StreamId(stream), None, each.problem) for each in failed]
            streams += 1
            entries += check.count
            erased += check.erased
        for (stream,) in self.rows(Statement(_HOMELESS, (self.namespace,))):
            problems.append(Problem(stream, None, "it has entries, but is not in the list"))
        problems += self.try_check(self._counts, "what it holds cannot be counted")
        problems += self.try_check(self._open_entries, "its open entries cannot be read")
        problems += self.try_check(self._names, "the parts of names cannot be read")
        problems += self.try_check(self._contents, "its contents cannot all be read")
        problems += self.try_check(self._index, "its search index cannot be read")
        self.steps.end()
        return Verification(streams, entries, tuple(problems), erased)

    def _steps(self) -> int:
        """Return the number of entries, contents and texts to check; 0 if unknown."""
        try:
            with self._db.transaction():
                contents = self.rows(Statement(_BLOB_STEPS, (STEP_BYTES, self.namespace)))[0][0]
                return int(self.value(_ENTRIES)) + contents + int(self.value(INDEXED_TEXTS))
        except psycopg.DatabaseError as error:
            if is_lost(error):
                raise
            return 0

    def _counts(self) -> Iterator[Problem]:
        (kept,) = self.rows(asking_kept(self.namespace))
        (counted,) = self.rows(asking_counted(self.namespace, kept[1]))
        for name, value, given in zip(NamespaceTotals._fields, kept[2:], counted[3:], strict=True):
            if value != given:
                text = f"the count {name} up to position {kept[1]} is kept as {value}, "
                yield Problem(None, None, f"{text}it should be {given}")

    def _open_entries(self) -> Iterator[Problem]:
        values = (self.namespace, list(OPENING), list(CLOSING), self.namespace)
        for stream, seq, is_what in self.rows(Statement(_OPEN_ENTRIES, values)):
            yield Problem(stream, seq, f"this entry {is_what} the list of open entries")

    def _names(self) -> Iterator[Problem]:
        own = (self.namespace,)
        sessions = self.rows(Statement(SESSIONS, own))
        return wrong_names(self.stream_rows(Statement(PARTS, own)), sessions)

    def _contents(self) -> Iterator[Problem]:
        for digest, content in self.stream_rows(Statement(_BLOBS, (self.namespace,)), 1):
            yield from blob_problems(digest, content)
            self.steps.add(content_steps(len(content)))

    def _index(self) -> Iterable[Problem]:
        return index_problems(self.stream_rows, self.namespace, self.steps)

    def try_check(self, look: Callable[[], Iterable[Problem]], failed: str) -> list[Problem]:
        """Return the problems that `look` finds; stop at a server error caused by a damaged row.

        A server error caused by a damaged row is reported as a problem.
        Raises: psycopg.Error if the server itself fails.
        """
        found: list[Problem] = []
        try:
            with self._db.transaction():  # a savepoint: the snapshot stays the same
                found.extend(look())
        except psycopg.DatabaseError as error:
            if is_lost(error):
                raise
            found.append(Problem(None, None, f"{failed} ({_first_line(error)})"))
        return found

    def rows(self, statement: Statement) -> list[Row]:
        """Return the result of `statement`."""
        return self._db.execute(*statement, binary=True).fetchall()

    def value(self, sql: LiteralString, *values: object) -> Any:
        """Return the first column of the first row; None if there is no row."""
        rows = self.rows(Statement(sql, (self.namespace, *values)))
        return rows[0][0] if rows else None

    def stream_rows(self, statement: Statement, at_once: int = FETCHED) -> Iterator[Row]:
        """Yield the rows of `statement`, with few of them in memory at a time."""
        with self._db.cursor(name="verify", binary=True) as cursor:
            cursor.itersize = at_once
            cursor.execute(*statement)
            yield from cursor


def _first_line(error: psycopg.Error) -> str:
    """Return the first line only, because later lines may quote stored data."""
    return str(error).partition("\n")[0]


class _StreamCheck:
    """Checks one stream, and collects the faults in `found`.

    `count` is the number of the stream's entries. `erased` is the number of its erased entries.
    """

    def __init__(self, check: _Check, stream: StreamId) -> None:
        self.count = 0
        self.erased = 0
        self._check = check
        self._id = stream
        self.found: list[Problem] = []

    def look(self) -> Iterable[Problem]:
        """Find every fault of the stream, and add it to `found`."""
        rows = self._check.rows(ask_streams(self._check.namespace, [self._id]))
        if not rows:
            self._report(None, "its stored state is missing")
            return ()
        try:
            self._look_at(stream_of(rows[0]))
        except _UNREADABLE as error:
            self._report(None, f"it cannot be read ({error})")
        return ()

    def _report(self, seq: int | None, problem: str) -> None:
        self.found.append(Problem(self._id, seq, problem))

    def _look_at(self, stream: Stream) -> None:
        birth = self._birth(self._id)
        origin_hash = b"" if birth[2] is None else self._origin_hash(birth)
        is_erased = stream.state.info.status == "erased"
        if not is_erased and birth[0] != genesis_hash(stream.state.header, origin_hash):
            self._report(None, "the hash its chain begins with is not that of its header")
        far = self._far_nodes()
        shape = _Shape(self._check, stream, far, self._report)
        self.found += stream_problems(
            stream.state,
            list(self._commits(self._id)),
            self._entries(shape),
            far.__contains__,
            origin_hash=origin_hash,
            shared_messages=self._shared_messages(birth),
            genesis=birth[0],
        )
        shape.end()
        self._look_at_rest(stream.state.info)

    def _look_at_rest(self, info: SessionInfo) -> None:
        ns = self._check.namespace
        for (name,) in self._check.rows(Statement(_LOST_ALIASES, (ns, self._id))):
            self._report(None, f"the foreign id {bytes(name)!r} stands for no entry")
        (columns,) = self._check.rows(Statement(_COLUMNS, (ns, self._id)))
        place = folder_key(info.cwd), info.status == "active", info.created_at
        if columns != (info.kind, info.origin, info.updated_at, *place):
            self._report(None, "the columns it is listed by are not what its info says")

    def _entries(self, shape: _Shape) -> Iterator[StoredEntry]:
        statement = Statement(_ROWS, (self._check.namespace, self._id))
        for row in self._check.stream_rows(statement):
            entry = entry_of(row[:9])
            self.count += 1
            self._check.steps.add()
            self.erased += row[9] is None
            shape.take(entry, None if entry.lane == "side" else node_of(row[11:]))
            for name in contents_shown(entry):
                if not self._check.value(_HAS_CONTENT, name):
                    self.found.append(content_lost(entry, name))
            yield StoredEntry(entry, row[9], row[10])

    def _commits(self, stream: str) -> Iterable[StoredCommit]:
        statement = Statement(_COMMITS, (self._check.namespace, stream))
        for first, last, at, epoch, chain in self._check.rows(statement):
            yield StoredCommit(first, last - first + 1, at, epoch, chain)

    def _far_nodes(self) -> dict[EntryId, Node]:
        """Return the nodes of other streams' tree entries that this stream refers to."""
        ns = self._check.namespace
        named = {EntryId(row[0]) for row in self._check.rows(Statement(_FAR, (ns, self._id)))}
        leaf = self._check.value(
            "SELECT leaf FROM perdure.stream WHERE namespace = %s AND id = %s", self._id
        )
        named |= {EntryId(leaf)} if leaf else set()
        nodes = map(node_of, self._check.rows(ask_nodes(ns, self._id, sorted(named))))
        found = {EntryId(f"{node.stream}/{node.seq}"): node for node in nodes}
        return {id_: node for id_, node in found.items() if node.stream != self._id}

    def _birth(self, stream: str) -> Row:
        statement = Statement(_BIRTH, (self._check.namespace, stream))
        rows = self._check.rows(statement)
        if not rows:
            raise ValueError(f"session {stream} is gone")
        return rows[0]

    def _origin_hash(self, birth: Row) -> bytes:
        genesis = self._birth(birth[2])[0]
        return origin_hash_of(genesis, self._commits(birth[2]), birth[3])

    def _shared_messages(self, birth: Row) -> int:
        _, kept, origin, head, leaf, is_path = birth
        if origin is None:
            return 0
        if is_path:
            place = place_of(leaf or "") or ("", EMPTY)
            return int(self._check.value(_MESSAGES_AT, *place) or 0)
        own = int(self._check.value(_OWN_MESSAGES, origin, head, MESSAGE))
        shared = int(self._birth(origin)[1]) + own
        if shared != kept:
            self._report(None, "the count of messages it took over from its origin is wrong")
        return shared


class _Shape:
    """Recomputes values of a stream from its entries, and compares them with the stored values."""

    def __init__(
        self, check: _Check, stream: Stream, far: dict[EntryId, Node], report: Report
    ) -> None:
        self._check = check
        self._stream = stream
        self._far = far
        self._report = report
        self._tip: Node | None = None
        self._own: dict[EntryId, Node] = {}
        self._states: dict[EntryId, State] = {}
        self._info: SessionInfo = info_of(stream.state.header)

    def take(self, entry: Entry, kept: Node | None) -> None:
        """Compare the next entry with the derived values of its row."""
        self._info = info_after(self._info, (entry,))
        if kept is None:
            return
        id_ = entry.parent_id
        parent = None if id_ is None else self._own.get(id_) or self._far.get(id_)
        goes_on = parent is not None and self._tip is not None and parent == self._tip
        inherited = parent.state if parent else None
        is_left = entry.kind in (Compaction.kind, ModelChange.kind, ThinkingChange.kind)
        expected = Node(
            stream=kept.stream,
            seq=kept.seq,
            run=parent.run if parent is not None and goes_on else entry.seq,
            depth=parent.depth + 1 if parent else 0,
            messages=(parent.messages if parent else 0) + (entry.kind == MESSAGE),
            state=entry.id if is_left else inherited,
        )
        for name, is_value, value in zip(Node._fields, kept, expected, strict=True):
            if is_value != value:
                self._report(entry.seq, f"its {name} is kept as {is_value}, it should be {value}")
        if is_left and self._state(entry.id) != left_behind(
            self._state(inherited), inherited, entry
        ):
            self._report(entry.seq, "what its branch inherits from it is not what it says")
        self._own[entry.id] = self._tip = kept

    def end(self) -> None:
        """Compare the stored values of the stream as a whole."""
        tip = self._tip.seq if self._tip else None
        if tip != self._stream.tip:
            self._report(None, f"its tip is kept as {self._stream.tip}, it should be {tip}")
        for fault in info_faults(self._stream.state, self._info):
            self._report(None, fault)

    def _state(self, name: EntryId | None) -> State:
        if name is None:
            return State()
        if name not in self._states:
            rows = self._check.rows(ask_state(self._check.namespace, name))
            self._states[name] = State(*rows[0]) if rows else State()
        return self._states[name]
