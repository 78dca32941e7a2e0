"""Read from the store. Each read is one statement or a few in one round trip; no read writes.

Two statements of one read are consistent, although each has its own snapshot, because a log only
grows. The later statement of a read can only see more entries, and it queries only entries that the
earlier statement found.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import LiteralString, Unpack

from perdure.errors import ContentNotFound, CorruptLog, EntryNotFound, SessionNotFound
from perdure.errors.arguments import is_utf8
from perdure.session.entries import Entry, Positioned
from perdure.session.ids import (
    MOST_SEQ,
    EntryId,
    StreamId,
    blob_hash,
    entry_id,
    number_of,
)
from perdure.session.info import (
    ORIGINS,
    SessionInfo,
    SessionScope,
    Sought,
    is_found,
    is_sought,
    with_description,
)
from perdure.session.notes import Question
from perdure.stores.append_rules import as_of, with_lease
from perdure.stores.name_parts import rounds, sought_parts
from perdure.stores.postgres import branches
from perdure.stores.postgres.branches import ask_stream
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.lists import few_sessions, folder_key
from perdure.stores.postgres.rows import (
    ENTRY_COLUMNS,
    NODE_COLUMNS,
    Row,
    Stream,
    entry_of,
    header_of_row,
    info_of_row,
    is_text,
    stream_of,
)
from perdure.stores.prefixes import only_entry, only_session
from perdure.stores.protocol import EMPTY, StreamState, Tail

PAGE = 200
SETTLE_MS = 50
"""How long a reader of the feed waits for pending commits."""

# Row-level security keeps a function like `split_part` from being a condition of an index, so its
# result is computed as a column first. While a table is small, an equality is planned with any
# index, and that plan is cached: so the entry is the first from its seq on, in order.
STREAM: LiteralString = f"""
WITH s AS MATERIALIZED (
    SELECT *, split_part(leaf, '/', 1) AS leaf_of, split_part(leaf, '/', 2)::bigint AS leaf_seq
    FROM perdure.stream WHERE namespace = %s AND id = ANY(%s)
)
SELECT s.id, s.head, s.leaf, s.tip, s.hash, s.epoch, s.owner, s.until, s.open_turn, s.info,
    b.header, {NODE_COLUMNS}
FROM s
CROSS JOIN LATERAL (
    SELECT header FROM perdure.birth WHERE namespace = s.namespace AND stream = s.id OFFSET 0) AS b
LEFT JOIN LATERAL (
    SELECT * FROM perdure.entry AS l
    WHERE l.namespace = s.namespace AND l.stream = s.leaf_of AND l.seq >= s.leaf_seq ORDER BY l.seq
    LIMIT 1) AS e ON e.seq = s.leaf_seq
"""  # noqa: S608 - put together from constants

_ENTRIES: LiteralString = f"""
SELECT {ENTRY_COLUMNS} FROM perdure.entry AS e
WHERE e.namespace = %s AND e.stream = %s AND e.seq > %s AND e.seq < %s
"""  # noqa: S608 - put together from constants

_OLDEST_FIRST: LiteralString = " ORDER BY e.seq LIMIT %s::bigint"
_NEWEST_FIRST: LiteralString = " ORDER BY e.seq DESC LIMIT %s::bigint"

_PARTIAL: LiteralString = """
SELECT seq, content FROM perdure.partial WHERE namespace = %s AND stream = %s
"""

_ALIASES: LiteralString = """
SELECT name, seq FROM perdure.alias WHERE namespace = %s AND stream = %s ORDER BY seq
"""

# Aliases with a prefix, of the stream and its origins, if the stream sees them; of two equal ones
# the nearer wins.
_ALIASES_LIKE: LiteralString = """
SELECT a.name, a.stream, a.seq
FROM perdure.stream AS s CROSS JOIN LATERAL perdure.lineage(%s, s.id, s.head) AS l
JOIN perdure.alias AS a ON a.namespace = %s AND a.stream = l.kin_stream
    AND a.name >= %s AND a.name < %s
WHERE s.namespace = %s AND s.id = %s AND perdure.sees(%s, s.id, s.head, a.stream, a.seq)
ORDER BY l.kin DESC
"""

_NAMED: LiteralString = """
SELECT stream, seq FROM perdure.alias WHERE namespace = %s AND name = %s ORDER BY stream LIMIT 100
"""

_STREAMS_LIKE: LiteralString = """
SELECT id FROM perdure.stream WHERE namespace = %s AND id >= %s AND id < %s ORDER BY id LIMIT 100
"""

_SESSIONS: LiteralString = """
SELECT s.id, s.updated_at, s.info, b.header FROM (
    SELECT namespace, id, updated_at, info FROM perdure.stream
    WHERE namespace = %s AND kind = 'session' AND origin = %s AND is_active = %s
        AND (updated_at, id) < (%s, %s) AND NOT is_erased
    ORDER BY updated_at DESC, id DESC LIMIT %s
) AS s JOIN perdure.birth AS b ON b.namespace = s.namespace AND b.stream = s.id
ORDER BY s.updated_at DESC, s.id DESC
"""

_SESSIONS_OF_FOLDER = _SESSIONS.replace("is_active = %s", "folder = %s")

# OFFSET 0: otherwise the server starts with the entries, most of which are closed.
_OPEN: LiteralString = f"""
OFFSET 0) AS q CROSS JOIN LATERAL (
    SELECT {ENTRY_COLUMNS} FROM perdure.entry AS e
    WHERE e.namespace = q.namespace AND e.stream = q.stream AND e.seq = q.seq AND e.kind = %s
        AND e.run IS NULL AND e.salt IS NOT NULL
    OFFSET 0
) AS e
"""  # noqa: S608 - put together from constants

_OPEN_ENTRIES: LiteralString = f"""
SELECT e.* FROM (SELECT * FROM perdure.open_question WHERE namespace = %s {_OPEN}
"""  # noqa: S608 - put together from constants

_OPEN_ENTRIES_OF: LiteralString = f"""
SELECT e.* FROM (
    SELECT * FROM perdure.open_question WHERE namespace = %s AND stream = %s ORDER BY seq {_OPEN}
"""  # noqa: S608 - put together from constants

_SETTLE: LiteralString = "SELECT perdure.settle(%s::int)"

_FEED: LiteralString = f"""
SELECT {ENTRY_COLUMNS}, e.n FROM perdure.entry AS e
WHERE e.namespace = %s AND e.n > 0 AND e.n > %s AND e.salt IS NOT NULL
    AND e.n <= current_setting('perdure.horizon')::bigint
ORDER BY e.n LIMIT %s
"""  # noqa: S608 - put together from constants

_POSITION: LiteralString = """
SELECT e.n FROM perdure.entry AS e WHERE e.namespace = %s AND e.n > 0
    AND e.n <= current_setting('perdure.horizon')::bigint ORDER BY e.n DESC LIMIT 1
"""

_BLOB: LiteralString = "SELECT content FROM perdure.blob WHERE namespace = %s AND digest = %s"

# ---------------------------------------------------------------- one stream


def ask_streams(namespace: str, streams: list[StreamId]) -> Statement:
    """Query the rows of `streams`, which `stream_of` decodes."""
    return Statement(STREAM, (namespace, streams))


async def standing(db: Database, stream: StreamId) -> Stream:
    """Return the current row of the stream. Raises: SessionNotFound."""
    rows: list[Row] = []
    if is_text(stream):
        (rows,) = await db.ask(ask_streams(db.namespace, [stream]))
    if not rows:
        raise SessionNotFound(stream)
    return stream_of(rows[0])


async def state(db: Database, stream: StreamId) -> StreamState:
    """Return the current state of the stream."""
    db.check_usable()
    found = await standing(db, stream)
    return with_lease(found.state, found.owner, found.until)


async def entries(
    db: Database,
    stream: StreamId,
    after: int = EMPTY,
    limit: int | None = None,
    *,
    kind: str | None = None,
    before: int | None = None,
) -> list[Entry]:
    """Return the stream's own entries after seq `after`.

    With `before`, return only entries before seq `before`, newest first.
    """
    between = (after, MOST_SEQ if before is None else before)
    sql, values = _ENTRIES, [db.namespace, stream, *between]
    if kind is not None:
        sql, values = f"{sql} AND e.kind = %s", [*values, kind if is_text(kind) else ""]
    sql += _OLDEST_FIRST if before is None else _NEWEST_FIRST
    _, (rows,) = await ask_stream(db, stream, Statement(sql, (*values, limit)))
    return [entry_of(row) for row in rows]


async def tail(db: Database, stream: StreamId, limit: int, kinds: Sequence[str] = ()) -> Tail:
    """Return the stream's state, its newest entries, and all visible side entries of `kinds`."""
    branches.check_name(db, stream)
    asked = [ask_streams(db.namespace, [stream])]
    if limit:
        newest = (db.namespace, stream, EMPTY, MOST_SEQ, limit)
        asked.append(Statement(_ENTRIES + _NEWEST_FIRST, newest))
    if kinds:
        asked.append(branches.ask_notes(db.namespace, stream, kinds))
    found, *rows = await db.ask(*asked)
    if not found:
        raise SessionNotFound(stream)
    standing = stream_of(found[0])
    entries = [entry_of(row) for row in reversed(rows[0])] if limit else []
    noted = [entry_of(row[:9]) for row in rows[-1]] if kinds else []
    return as_of(with_lease(standing.state, standing.owner, standing.until), entries, noted)


async def entry(db: Database, stream: StreamId, entry: EntryId) -> Entry:
    """Return an entry that the stream sees."""
    _, found = await branches.entry_seen(db, stream, entry)
    if found is None:
        raise EntryNotFound(entry, stream)
    return found


async def partial(db: Database, stream: StreamId) -> tuple[int, bytes] | None:
    """Return the received part of the answer to the open model call."""
    _, (rows,) = await ask_stream(db, stream, Statement(_PARTIAL, (db.namespace, stream)))
    return (rows[0][0], rows[0][1]) if rows else None


async def resolve(db: Database, stream: StreamId, reference: str) -> EntryId:
    """Return the id of the entry whose full id or foreign id is `reference`."""
    _, found = await branches.entry_seen(db, stream, reference)
    if found is not None:
        return found.id
    exact = await _aliases_between(db, stream, reference, b"\0")
    if reference not in exact:
        raise EntryNotFound(reference, stream)
    return exact[reference]


async def find_entry(db: Database, stream: StreamId, prefix: str) -> EntryId:
    """Resolve an id, a bare seq, a foreign id, or a unique prefix of an id."""
    head, found = await branches.entry_seen(db, stream, prefix)
    if found is not None:
        return found.id
    seq = number_of(prefix)
    if seq is not None and seq <= head:
        return entry_id(stream, seq)
    near = await _aliases_between(db, stream, prefix, b"\xff")
    return only_entry(prefix, near, stream)


async def aliases(db: Database, stream: StreamId) -> dict[str, EntryId]:
    """Map foreign ids to entries of the stream's own log."""
    _, (rows,) = await ask_stream(db, stream, Statement(_ALIASES, (db.namespace, stream)))
    return {name.decode(): entry_id(stream, seq) for name, seq in rows}


async def _aliases_between(
    db: Database, stream: StreamId, start: str, suffix: bytes
) -> dict[str, EntryId]:
    """Map visible foreign ids between `start` and `start` + `suffix` to their entries."""
    if not start or not is_utf8(start):
        return {}
    ns, name = db.namespace, start.encode()
    values = (ns, ns, name, name + suffix, ns, stream, ns)
    (rows,) = await db.ask(Statement(_ALIASES_LIKE, values))
    return {name.decode(): entry_id(of, seq) for name, of, seq in rows}


# ---------------------------------------------------------------- the namespace


async def find(db: Database, prefix: str) -> StreamId:
    """Return the stream with id `prefix`, or the only stream whose id begins with it."""
    db.check_usable()
    rows: list[Row] = []
    if prefix and is_text(prefix):
        statement = Statement(_STREAMS_LIKE, (db.namespace, prefix, prefix + "\U0010ffff"))
        (rows,) = await db.ask(statement)
    return only_session(prefix, [str(row[0]) for row in rows])


async def entries_named(db: Database, alias: str) -> list[EntryId]:
    """Return the entries of all streams with the foreign id `alias`."""
    db.check_usable()
    if not is_utf8(alias):
        return []
    (rows,) = await db.ask(Statement(_NAMED, (db.namespace, alias.encode())))
    return [entry_id(stream, seq) for stream, seq in rows]


async def sessions(
    db: Database,
    *,
    limit: int | None = 50,
    scope: SessionScope = "listed",
    cwd: str | None = None,
    query: str | None = None,
    **sought: Unpack[Sought],
) -> list[SessionInfo]:
    """Return sessions, newest activity first; read pages until enough sessions match.

    With a query or an id prefix, each round first searches the indexes of names and ids. If the
    indexes find only a few sessions, the call reads these sessions instead of further pages.
    """
    db.check_usable()
    after = sought.get("after")
    is_any = query is None and all(sought.get(key) is None for key in sought if key != "after")
    page = min(limit, PAGE) if limit is not None and is_any else PAGE
    found: list[SessionInfo] = []
    last: tuple[int, str] = after or (MOST_SEQ, "\U0010ffff")
    parts, prefix = sought_parts(query), sought.get("id_prefix") or ""
    if not is_text(prefix):
        return []
    reaches, reach, looked = rounds(), 0, 0
    while limit is None or len(found) < limit:
        if (parts or prefix) and looked >= reach:
            reach = next(reaches)
            near = await few_sessions(db, parts, prefix, reach)
            if near is not None:
                own = (one for one in map(_listed, near) if one.origin in ORIGINS[scope])
                fit = (one for one in own if is_found(one, cwd, query) and is_sought(one, sought))
                return list(islice(fit, limit))
        rows = await _page_of_sessions(db, scope, cwd, last, page)
        looked += len(rows)
        listed = map(_listed, rows)
        found += [one for one in listed if is_found(one, cwd, query) and is_sought(one, sought)]
        if len(rows) < page:
            break
        last = (rows[-1][1], rows[-1][0])
    return found[:limit]


def _listed(row: Row) -> SessionInfo:
    name, _, info, header = row
    return with_description(info_of_row(name, info), header_of_row(name, header))


async def _page_of_sessions(
    db: Database, scope: SessionScope, cwd: str | None, last: tuple[int, str], page: int
) -> list[Row]:
    sql = _SESSIONS if cwd is None else _SESSIONS_OF_FOLDER
    asked = [
        Statement(sql, (db.namespace, origin, part, *last, page))
        for origin in ORIGINS[scope]
        for part in ((True, False) if cwd is None else (folder_key(cwd),))
    ]
    rows = [row for part in await db.ask(*asked) for row in part]
    rows.sort(key=lambda row: (row[1], row[0]), reverse=True)
    return rows[:page]


async def open_of_all(db: Database, kind: str) -> list[Entry]:
    """Return the entries of `kind` that are still open, from all streams."""
    (rows,) = await db.ask(Statement(_OPEN_ENTRIES, (db.namespace, kind)))
    return [entry_of(row) for row in rows]


async def open_questions(db: Database, stream: StreamId) -> list[Entry]:
    """Return the open questions in the stream's own log."""
    values = (db.namespace, stream, Question.kind)
    _, (rows,) = await ask_stream(db, stream, Statement(_OPEN_ENTRIES_OF, values))
    return [entry_of(row) for row in rows]


async def feed(db: Database, after: int, limit: int) -> tuple[list[Positioned], bool]:
    """Return entries of all streams after `after`, and whether pending commits hid some entries."""
    settled, rows = await db.ask(
        Statement(_SETTLE, (SETTLE_MS,)), Statement(_FEED, (db.namespace, after, limit))
    )
    return [Positioned(row[9], entry_of(row[:9])) for row in rows], bool(settled[0][0])


async def position(db: Database) -> int:
    """Return the position of the namespace's newest entry."""
    _, rows = await db.ask(Statement(_SETTLE, (SETTLE_MS,)), Statement(_POSITION, (db.namespace,)))
    return int(rows[0][0]) if rows else 0


async def blob(db: Database, digest: str) -> bytes:
    """Return the content with the hash `digest`."""
    db.check_usable()
    rows: list[Row] = []
    if is_text(digest):
        (rows,) = await db.ask(Statement(_BLOB, (db.namespace, digest)))
    if not rows:
        raise ContentNotFound(digest, db.namespace)
    if blob_hash(rows[0][0]) != digest:
        raise CorruptLog(digest, EMPTY, "its content is not what its name says")
    return bytes(rows[0][0])
