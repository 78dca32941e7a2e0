"""Reads of the store: each function reads through one connection in one snapshot.

``SqliteStore`` runs the functions of this module on a reader's thread. No function of this module
writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw
import msgspec

from perdure.errors import ContentNotFound, EntryNotFound, SessionNotFound
from perdure.errors.arguments import is_utf8
from perdure.session.entries import Entry, Positioned
from perdure.session.fold import BranchState, ContextWindow, Placed
from perdure.session.ids import MOST_SEQ, EntryId, StreamId, entry_id, is_number, number_of
from perdure.session.info import IDLE_ORIGINS
from perdure.session.memory.open_entries import CLOSING
from perdure.session.notes import Question
from perdure.stores.access.sqlite_connection import Row
from perdure.stores.append_rules import with_lease
from perdure.stores.key import StoreKey
from perdure.stores.prefixes import only_entry, only_session
from perdure.stores.protocol import EMPTY, FLOW_KINDS, StoreInfo, StreamState, Tail
from perdure.stores.sqlite import branches
from perdure.stores.sqlite.log.spans import AFTER, END
from perdure.stores.sqlite.log.usage import namespace_totals
from perdure.stores.sqlite.migrate import version_of
from perdure.stores.sqlite.payload.cipher import cipher_of
from perdure.stores.sqlite.payload.contents import PackedContent, content_in
from perdure.stores.sqlite.rows import ENTRY_COLUMNS, Node, Tables, namespace_no

_STREAM_NUMBER = """
SELECT no FROM stream WHERE namespace = (SELECT no FROM namespace WHERE name = ?) AND id = ?
"""

_ENTRIES = f"""
SELECT {ENTRY_COLUMNS} FROM entry WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?
"""  # noqa: S608 - put together from constants

_SOME_ENTRIES = f"""
SELECT {ENTRY_COLUMNS} FROM entry AS e WHERE e.stream = ? AND e.seq > ? AND e.seq < ?
"""  # noqa: S608 - put together from constants

_FEED = f"""
SELECT e.seq, e.run, e.ref, e.at, e.kind, e.v, e.body, e.n, e.stream
FROM span AS a
CROSS JOIN entry AS e ON e.n >= max(a.first, ?2) AND e.n < {END}
CROSS JOIN stream AS s ON s.no = e.stream
WHERE {AFTER} AND s.namespace = ?1 AND e.salt IS NOT NULL
ORDER BY a.first, e.n LIMIT ?3
"""  # noqa: S608 - put together from constants

_NOTES_OF_ALL = """
SELECT e.seq, e.run, e.ref, e.at, e.kind, e.v, e.body, e.stream
FROM stream AS s CROSS JOIN entry AS e ON e.stream = s.no
WHERE s.namespace = (SELECT no FROM namespace WHERE name = ?)
    AND e.kind = ? AND e.run IS NULL AND e.salt IS NOT NULL
"""

_NOTES_OF_SOME = """
SELECT e.seq, e.run, e.ref, e.at, e.kind, e.v, e.body, e.stream
FROM json_each(?3) AS named
CROSS JOIN stream AS s ON s.namespace = (SELECT no FROM namespace WHERE name = ?1)
    AND s.id = named.value
CROSS JOIN entry AS e ON e.stream = s.no
WHERE e.kind = ?2 AND e.run IS NULL AND e.salt IS NOT NULL
"""

_NOTES_OF_FLOWS = f"{_NOTES_OF_ALL} AND s.kind = 'flow'"

_POSITION = f"""
SELECT e.n FROM span AS a
CROSS JOIN entry AS e ON e.n >= a.first AND e.n < {END}
CROSS JOIN stream AS s ON s.no = e.stream
WHERE a.namespace = ?1 AND s.namespace = ?1
ORDER BY a.first DESC, e.n DESC LIMIT 1
"""  # noqa: S608 - put together from constants

_IDLE = """
SELECT updated_at, id FROM stream
WHERE kind = 'session' AND namespace = (SELECT no FROM namespace WHERE name = ?)
    AND origin = ? AND status = 'active' AND updated_at <= ? AND turns > 0
ORDER BY updated_at DESC, id DESC
"""

# A received file may list a closed entry: the log decides.
_OPEN_ENTRIES = """
SELECT e.seq, e.run, e.ref, e.at, e.kind, e.v, e.body, e.stream
FROM open_question AS q CROSS JOIN entry AS e ON e.stream = q.stream AND e.seq = q.seq
WHERE q.namespace = (SELECT no FROM namespace WHERE name = ?1) AND e.kind = ?2
    AND e.run IS NULL AND e.salt IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM entry AS c INDEXED BY entry_note WHERE c.stream = q.stream
            AND c.kind IN (?3, ?4, ?5, ?6, ?7, ?8, ?9) AND c.kind > 31
            AND c.seq > q.seq AND c.run IS NULL AND c.ref = q.seq)
"""

_OPEN_ENTRIES_OF = _OPEN_ENTRIES + " AND q.stream = ?10 ORDER BY e.seq"

_STREAMS_LIKE = """
SELECT id FROM stream
WHERE namespace = (SELECT no FROM namespace WHERE name = ?) AND id >= ? AND id < ?
ORDER BY id LIMIT 100
"""

_ALIAS = "SELECT name, seq FROM alias WHERE stream = ? AND name = ?"

_ALIASES_LIKE = "SELECT name, seq FROM alias WHERE stream = ? AND name >= ? AND name < ?"

_NAMED = """
SELECT s.id, a.seq FROM alias AS a CROSS JOIN stream AS s ON s.no = a.stream
WHERE a.name = ? AND s.namespace = (SELECT no FROM namespace WHERE name = ?)
ORDER BY a.stream LIMIT 100
"""

_BLOB = """
SELECT digest, size, packing, content FROM blob
WHERE namespace = (SELECT no FROM namespace WHERE name = ?) AND digest = ?
"""


# ---------------------------------------------------------------- one stream


def state(tables: Tables, namespace: str, stream: StreamId) -> StreamState:
    """Return the current state of the stream."""
    found = tables.stream(namespace, stream)
    return with_lease(found.state, found.owner, found.until)


def entries(
    tables: Tables,
    namespace: str,
    stream: StreamId,
    after: int = EMPTY,
    limit: int | None = None,
    *,
    kind: str | None = None,
    before: int | None = None,
) -> list[Entry]:
    """Return the stream's own entries after seq `after`, in order.

    If `before` is given, return only entries before seq `before`, newest first.
    """
    number = _number(tables, namespace, stream)
    most = -1 if limit is None else limit
    if kind is None and before is None:
        return [tables.entry(stream, row) for row in tables.rows(_ENTRIES, number, after, most)]
    sql, values = _SOME_ENTRIES, [number, after, MOST_SEQ if before is None else before]
    if kind is not None:
        of_kind = tables.kind_number(kind) if is_utf8(kind) else None
        if of_kind is None:
            return []
        sql, values = branches.with_note_index(f"{sql} AND e.kind = ?", of_kind), [*values, of_kind]
    order = "" if before is None else " DESC"
    rows = tables.rows(f"{sql} ORDER BY e.seq{order} LIMIT ?", *values, most)
    return [tables.entry(stream, row) for row in rows]


def tail(
    tables: Tables, namespace: str, stream: StreamId, limit: int, kinds: Sequence[str] = ()
) -> Tail:
    """Return the stream's state, its newest entries, and all visible side entries of `kinds`."""
    found = state(tables, namespace, stream)
    newest = entries(tables, namespace, stream, found.head - limit)
    return found, newest, notes(tables, namespace, stream, kinds) if kinds else []


def entry(tables: Tables, namespace: str, stream: StreamId, entry: EntryId) -> Entry:
    """Return an entry that the stream sees."""
    number, head = _standing(tables, namespace, stream)
    found = branches.entry_seen(tables, number, head, entry)
    if found is None:
        raise EntryNotFound(entry, stream)
    return found


def visible_ids(
    tables: Tables, namespace: str, stream: StreamId, entries: Sequence[EntryId]
) -> frozenset[EntryId]:
    """Return the `entries` that the stream sees."""
    return branches.visible_ids(tables, *_standing(tables, namespace, stream), entries)


def around(  # noqa: PLR0917 - as the protocol has them
    tables: Tables,
    namespace: str,
    stream: StreamId,
    leaf: EntryId,
    entries: Sequence[EntryId],
    reach: int,
) -> list[Placed]:
    """Return the `entries` on the branch to `leaf`, each with up to `reach` neighbors per side."""
    number, head = _standing(tables, namespace, stream)
    end = _node(tables, number, head, leaf)
    places = [place for each in entries if (place := tables.place(number, each))]
    nodes = [node for place in places if (node := tables.node_of(*place))]
    return branches.around(tables, end, nodes, reach)


def branch(
    tables: Tables,
    namespace: str,
    stream: StreamId,
    leaf: EntryId | None,
    *,
    limit: int | None = None,
    kind: str | None = None,
) -> list[Entry]:
    """Return the branch to `leaf`."""
    number, head = _standing(tables, namespace, stream)
    if leaf is None:
        return []
    return branches.branch(tables, _node(tables, number, head, leaf), limit, kind)


def newest(
    tables: Tables,
    namespace: str,
    stream: StreamId,
    *,
    limit: int | None = None,
    kind: str | None = None,
) -> tuple[StreamState, list[Entry]]:
    """Return the state of the stream, and the branch to its leaf."""
    found = tables.stream(namespace, stream)
    entries = branches.branch(tables, found.leaf, limit, kind) if found.leaf else []
    return found.state, entries


def context_window(
    tables: Tables, namespace: str, stream: StreamId, leaf: EntryId | None, limit: int | None = None
) -> ContextWindow:
    """Return the context window of the branch to `leaf`, or only its newest `limit` entries."""
    number, head = _standing(tables, namespace, stream)
    if leaf is None:
        return ContextWindow(None, (), BranchState(), 0)
    return branches.window(tables, number, head, _node(tables, number, head, leaf), limit)


def tree(tables: Tables, namespace: str, stream: StreamId, limit: int | None = None) -> list[Entry]:
    """Return the newest `limit` tree entries that the stream sees."""
    return branches.tree(tables, *_standing(tables, namespace, stream), limit)


def notes(tables: Tables, namespace: str, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
    """Return the side entries of `kinds` that the stream sees."""
    number, head = _standing(tables, namespace, stream)
    return branches.notes(tables, number, head, kinds)


def partial(tables: Tables, namespace: str, stream: StreamId) -> tuple[int, bytes] | None:
    """Return the received part of the open turn's answer."""
    number = _number(tables, namespace, stream)
    row = tables.row("SELECT seq, content FROM partial WHERE stream = ?", number)
    return None if row is None else (row[0], row[1])


def resolved(tables: Tables, namespace: str, stream: StreamId, reference: str) -> Entry:
    """Return the entry that `resolve` finds."""
    return entry(tables, namespace, stream, resolve(tables, namespace, stream, reference))


def resolve(tables: Tables, namespace: str, stream: StreamId, reference: str) -> EntryId:
    """Return the id of the entry whose full id or foreign id is `reference`."""
    number, head = _standing(tables, namespace, stream)
    exact = _exact(tables, number, head, reference)
    if exact is None:
        raise EntryNotFound(reference, stream)
    return exact


def find_entry(tables: Tables, namespace: str, stream: StreamId, prefix: str) -> EntryId:
    """Resolve an id, a bare seq, a foreign id, or a unique prefix of an id."""
    number, head = _standing(tables, namespace, stream)
    seq = number_of(prefix)
    if seq is not None and seq <= head:
        return entry_id(stream, seq)
    exact = _exact(tables, number, head, prefix)
    if exact is not None:
        return exact
    near: dict[str, EntryId] = {}
    if prefix and is_utf8(prefix) and not is_number(prefix):
        near = _foreign_ids(tables, number, head, _ALIASES_LIKE, prefix, _after(prefix))
    return only_entry(prefix, near, stream)


def aliases(tables: Tables, namespace: str, stream: StreamId) -> dict[str, EntryId]:
    """Map foreign ids to entries of the stream's own log."""
    number = _number(tables, namespace, stream)
    rows = tables.rows("SELECT name, seq FROM alias WHERE stream = ? ORDER BY seq", number)
    return {name: entry_id(stream, seq) for name, seq in rows}


def _number(tables: Tables, namespace: str, stream: StreamId) -> int:
    number = tables.value(_STREAM_NUMBER, namespace, stream) if is_utf8(stream) else None
    if number is None:
        raise SessionNotFound(stream)
    return int(number)


def _standing(tables: Tables, namespace: str, stream: StreamId) -> tuple[int, int]:
    number = _number(tables, namespace, stream)
    tables.stream_ids[number] = stream
    return number, tables.value("SELECT head FROM stream WHERE no = ?", number)


def _node(tables: Tables, stream: int, head: int, reference: EntryId) -> Node:
    node = branches.node_seen(tables, stream, head, reference)
    if node is None:
        raise EntryNotFound(reference, tables.stream_id(stream))
    return node


def _exact(tables: Tables, number: int, head: int, reference: str) -> EntryId | None:
    """Return the visible entry whose full id or foreign id is `reference`."""
    found = branches.entry_seen(tables, number, head, reference)
    if found is not None:
        return found.id
    if not reference or not is_utf8(reference):
        return None
    return _foreign_ids(tables, number, head, _ALIAS, reference).get(reference)


def _foreign_ids(
    tables: Tables, number: int, head: int, sql: str, *values: str
) -> dict[str, EntryId]:
    """Map foreign ids to visible entries; a fork's own entries take precedence."""
    found: dict[str, EntryId] = {}
    for near, _, _ in reversed(list(branches.lineage(tables, number, head))):
        for name, seq in list(tables.rows(sql, near, *values)):
            if branches.is_seen(tables, number, head, (near, seq)):
                found[name] = entry_id(tables.stream_id(near), seq)
    return found


def _after(prefix: str) -> str:
    """Return a text that sorts after every text with `prefix`."""
    return prefix + "\U0010ffff" * 4


# ---------------------------------------------------------------- the namespace


def find(tables: Tables, namespace: str, prefix: str) -> StreamId:
    """Return the stream with id `prefix`, or the only stream whose id begins with it."""
    found: list[str] = []
    if prefix and is_utf8(prefix):
        found = [row[0] for row in tables.rows(_STREAMS_LIKE, namespace, prefix, _after(prefix))]
    return only_session(prefix, found)


def entries_named(tables: Tables, namespace: str, alias: str) -> list[EntryId]:
    """Return the entries of all streams with the foreign id `alias`."""
    if not is_utf8(alias):
        return []
    return [entry_id(row[0], row[1]) for row in tables.rows(_NAMED, alias, namespace)]


def idle_sessions(tables: Tables, namespace: str, upto: int) -> list[StreamId]:
    """Implement ``NamespaceReader.idle_sessions``."""
    rows = [row for each in IDLE_ORIGINS for row in tables.rows(_IDLE, namespace, each, upto)]
    return [StreamId(row[1]) for row in sorted(rows, reverse=True)]


def open_of_all(tables: Tables, namespace: str, kind: str) -> list[Entry]:
    """Return the entries of `kind` that are still open, from all streams."""
    return _open_entries(tables, tables.rows(_OPEN_ENTRIES, namespace, *_kinds_for(tables, kind)))


def open_questions(tables: Tables, namespace: str, stream: StreamId) -> list[Entry]:
    """Return the open questions in the stream's own log, in order."""
    number = _number(tables, namespace, stream)
    kinds = _kinds_for(tables, Question.kind)
    return _open_entries(tables, tables.rows(_OPEN_ENTRIES_OF, namespace, *kinds, number))


def _kinds_for(tables: Tables, kind: str) -> list[int]:
    """Return the numbers of `kind` and of the kinds in `CLOSING`.

    If no entry has a kind, its number is -1.
    """
    return [tables.kind_number(each) or -1 for each in (kind, *CLOSING)]


def _open_entries(tables: Tables, rows: Iterable[Row]) -> list[Entry]:
    return [tables.entry(tables.stream_id(row[7]), row[:7]) for row in list(rows)]


def notes_of_all(
    tables: Tables,
    namespace: str,
    kinds: Sequence[str],
    streams: Sequence[StreamId] | None = None,
) -> list[Entry]:
    """Return the side entries of `kinds` in the own logs of `streams`, or of all streams."""
    numbers = [number for kind in dict.fromkeys(kinds) if (number := tables.kind_number(kind))]
    sql = _NOTES_OF_FLOWS if set(kinds).issubset(FLOW_KINDS) else _NOTES_OF_ALL
    among: tuple[str, ...] = ()
    if streams is not None:
        named = sorted({stream for stream in streams if is_utf8(stream)})
        sql, among = _NOTES_OF_SOME, (msgspec.json.encode(named).decode(),)
    found = [
        tables.entry(tables.stream_id(row[7]), row[:7])
        for number in numbers
        for row in list(
            tables.rows(branches.with_note_index(sql, number), namespace, number, *among)
        )
    ]
    return sorted(found, key=lambda entry: (entry.stream, entry.seq))


def feed(tables: Tables, namespace: str, after: int, limit: int = 1000) -> list[Positioned]:
    """Return entries of all streams after position `after`."""
    number = namespace_no(tables, namespace)
    return [
        Positioned(row[7], tables.entry(tables.stream_id(row[8]), row[:7]))
        for row in list(tables.rows(_FEED, number, max(after, 0) + 1, limit))
    ]


def position(tables: Tables, namespace: str) -> int:
    """Return the position of the namespace's newest entry."""
    return tables.value(_POSITION, namespace_no(tables, namespace)) or 0


def has_open_erasures(tables: Tables) -> bool:
    """Return whether an erasure of some namespace is unfinished."""
    return tables.row("SELECT 1 FROM erasure WHERE is_done = 0 LIMIT 1") is not None


def blob(tables: Tables, namespace: str, digest: str) -> bytes:
    """Return the content with the hash `digest`."""
    row = tables.row(_BLOB, namespace, digest) if is_utf8(digest) else None
    if row is None:
        raise ContentNotFound(digest, namespace)
    return content_in(PackedContent(*row))


def info(
    tables: Tables, namespace: str, address: str, durability: str, key: StoreKey | None
) -> StoreInfo:
    """Implement ``SessionStore.info``."""
    found = namespace_totals(tables, namespace)
    return StoreInfo(
        address=address,
        backend="sqlite",
        namespace=namespace,
        durability=durability,
        schema_version=version_of(tables.db),
        streams=found.streams,
        entries=found.entries,
        size_bytes=tables.db.pragma("page_count") * tables.db.pragma("page_size"),
        payload_bytes=found.body_bytes + found.content_bytes,
        is_encrypted=key is not None,
        engine=f"SQLite {apsw.sqlite_lib_version()}",
        cipher=cipher_of(key),
    )
