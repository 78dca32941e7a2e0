"""Update the rows of lists, name parts and open entries in the transaction of a commit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import LiteralString

from perdure.errors import CorruptLog
from perdure.session.ids import StreamId
from perdure.session.info import IDLE_ORIGINS, SessionInfo
from perdure.session.memory.open_entries import OPEN_KINDS, opened_and_closed
from perdure.stores.name_parts import LONG_NAME, end_of, is_renamed, parts_of
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.row_builder import Share
from perdure.stores.postgres.rows import Contents, Row, Stream, info_of_row
from perdure.stores.protocol import Problem

_LIST: LiteralString = """
UPDATE perdure.stream SET folder = %s, is_active = %s, created_at = %s
WHERE namespace = %s AND id = %s
"""

_ASK: LiteralString = "INSERT INTO perdure.open_question VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"

_CLOSE: LiteralString = """
DELETE FROM perdure.open_question WHERE namespace = %s AND stream = %s AND seq = %s
"""

_FORGET: LiteralString = """
DELETE FROM perdure.open_question WHERE namespace = %s AND stream = %s AND seq BETWEEN %s AND %s
"""

_OPEN_KINDS = frozenset(OPEN_KINDS)

_ADD: LiteralString = """
INSERT INTO perdure.name_part SELECT %s, p.part, %s FROM unnest(%s::bytea[]) AS p (part)
ON CONFLICT DO NOTHING
"""

_REMOVE: LiteralString = """
DELETE FROM perdure.name_part WHERE namespace = %s AND stream = %s AND part = ANY(%s::bytea[])
"""

_COUNT: LiteralString = """
SELECT count(*) FROM (
    SELECT 1 FROM perdure.name_part WHERE namespace = %s AND part >= %s AND part < %s LIMIT %s
) AS p
"""

_COUNT_LONG = _COUNT.replace("part >= %s AND part < %s", "part = %s")

# OFFSET 0: otherwise the server may start with the turns of all sessions.
_IDLE: LiteralString = """
SELECT s.updated_at, s.id FROM perdure.stream AS s
WHERE s.namespace = %s AND s.kind = 'session' AND s.origin = %s AND s.is_active
    AND s.updated_at <= %s AND NOT s.is_erased AND EXISTS (
        SELECT 1 FROM perdure.entry AS e
        WHERE e.namespace = s.namespace AND e.stream = s.id AND e.kind = 'turn_started'
            AND e.run IS NULL
        OFFSET 0
    )
"""

# OFFSET 0: the server starts with the parts, whatever its estimate of sessions.
_NAMED: LiteralString = """
SELECT s.id, s.updated_at, s.info, s.header FROM (
    SELECT namespace, stream FROM perdure.name_part
    WHERE namespace = %s AND part >= %s AND part < %s
    UNION SELECT namespace, stream FROM perdure.name_part WHERE namespace = %s AND part = %s
    OFFSET 0
) AS p CROSS JOIN LATERAL (
    SELECT s.id, s.updated_at, s.info, b.header FROM perdure.stream AS s
    JOIN perdure.birth AS b ON b.namespace = s.namespace AND b.stream = s.id
    WHERE s.namespace = p.namespace AND s.id = p.stream AND s.kind = 'session' AND NOT s.is_erased
    OFFSET 0
) AS s
"""

_WITH_PREFIX: LiteralString = """
SELECT s.id, s.updated_at, s.info, b.header FROM (
    SELECT * FROM perdure.stream WHERE namespace = %s AND id >= %s AND id < %s OFFSET 0
) AS s JOIN perdure.birth AS b ON b.namespace = s.namespace AND b.stream = s.id
WHERE s.kind = 'session' AND NOT s.is_erased
"""

_COUNT_PREFIX: LiteralString = """
SELECT count(*) FROM (
    SELECT 1 FROM perdure.stream WHERE namespace = %s AND id >= %s AND id < %s LIMIT %s
) AS s
"""

PARTS: LiteralString = "SELECT part, stream FROM perdure.name_part WHERE namespace = %s"

SESSIONS: LiteralString = """
SELECT id, info FROM perdure.stream WHERE namespace = %s AND kind = 'session'
"""


def folder_key(cwd: str | None) -> bytes | None:
    """Return the index key of a folder.

    The folder's name itself is not the key, because PostgreSQL cannot store or index every text.
    """
    if cwd is None:
        return None
    return hashlib.sha256(cwd.encode("utf-8", "surrogatepass")).digest()[:16]


def listing(namespace: str, stream: Stream) -> Statement:
    """Return the statement that updates the list row of the stream."""
    info = stream.state.info
    values = (*_place(info), info.created_at, namespace, info.id)
    return Statement(_LIST, values)


def first_listing(namespace: str, stream: Stream) -> list[Statement]:
    """Return the statements that add a new stream and its name parts to the lists."""
    info = stream.state.info
    return [listing(namespace, stream), *_changed(namespace, info.id, frozenset(), parts_of(info))]


def kept_beside(namespace: str, share: Share) -> list[Statement]:
    """Return the statements that update lists and open entries for `share`; usually none."""
    after = share.after
    moved = _place(share.before.state.info) != _place(after.state.info)
    found = [listing(namespace, after)] if moved else []
    found += listed_changed(namespace, share.before.state.info, after.state.info)
    if _OPEN_KINDS.isdisjoint(share.columns.kinds):
        return found
    stream = after.state.header.id
    for is_open, seq in opened_and_closed(share.entries, stream):
        found.append(Statement(_ASK if is_open else _CLOSE, (namespace, stream, seq)))
    return found


def forgetting(namespace: str, stream: str, seqs: tuple[int, int]) -> Statement:
    """Return the statement that removes erased entries from the table of open entries."""
    return Statement(_FORGET, (namespace, stream, *seqs))


def _place(info: SessionInfo) -> tuple[bytes | None, bool]:
    return folder_key(info.cwd), info.status == "active"


# ---------------------------------------------------------------- parts of names


def listed_changed(namespace: str, before: SessionInfo, after: SessionInfo) -> list[Statement]:
    """Return the statements that update the index of lists for a changed stream; usually none."""
    if not is_renamed(before, after):
        return []
    return _changed(namespace, after.id, parts_of(before), parts_of(after))


def unlisted(namespace: str, info: SessionInfo) -> list[Statement]:
    """Return the statements that remove a stream from the index of lists."""
    return _changed(namespace, info.id, parts_of(info), frozenset())


def _changed(
    namespace: str, stream: StreamId, old: frozenset[bytes], new: frozenset[bytes]
) -> list[Statement]:
    found: list[Statement] = []
    if old - new:
        found.append(Statement(_REMOVE, (namespace, stream, Contents(sorted(old - new)))))
    if new - old:
        found.append(Statement(_ADD, (namespace, stream, Contents(sorted(new - old)))))
    return found


async def few_sessions(
    db: Database, parts: Sequence[bytes], prefix: str, most: int
) -> list[Row] | None:
    """Return the sessions whose ids begin with `prefix`, or whose names may contain all `parts`.

    The sessions with the newest activity come first. Return None if there are too many candidates
    both for `prefix` and for `parts`. There are too many candidates for `prefix` if more than
    `most` sessions match. There are too many candidates for `parts` if more than `most` sessions
    have the rarest of `parts`, or if more than `most` sessions have a name that is too long for the
    index.
    """
    ns = db.namespace
    ids = (ns, prefix, prefix + "\U0010ffff")
    counts = await db.ask(
        Statement(_COUNT_PREFIX, (*ids, most + 1)),
        Statement(_COUNT_LONG, (ns, LONG_NAME, most + 1)),
        *(Statement(_COUNT, (ns, part, end_of(part), most + 1)) for part in parts),
    )
    prefixed, long, *counted = [rows[0][0] for rows in counts]
    if prefix and prefixed <= most:
        asked = Statement(_WITH_PREFIX, ids)
    elif parts and max(min(counted), long) <= most:
        part = parts[counted.index(min(counted))]
        asked = Statement(_NAMED, (ns, part, end_of(part), ns, LONG_NAME))
    else:
        return None
    (rows,) = await db.ask(asked)
    return sorted(rows, key=lambda row: (row[1], row[0]), reverse=True)


def wrong_names(parts: Iterable[Row], sessions: Iterable[Row]) -> Iterator[Problem]:
    """Yield every session whose stored parts differ from the parts of its name and id."""
    kept: dict[str, tuple[int, int]] = {}
    for part, stream in parts:
        count, mixed = kept.get(stream, (0, 0))
        kept[stream] = count + 1, mixed ^ hash(bytes(part))
    for id_, info in sessions:
        try:
            right, mixed = parts_of(info_of_row(id_, info)), 0
        except CorruptLog:  # reported with its stream
            kept.pop(id_, None)
            continue
        for part in right:
            mixed ^= hash(part)
        if kept.pop(id_, (0, 0)) != (len(right), mixed):
            text = "the parts of its name, by which lists find it, are wrong"
            yield Problem(StreamId(id_), None, text)
    for stream in sorted(kept):
        yield Problem(StreamId(stream), None, "lists have parts of its name, and it is in none")


async def idle_sessions(db: Database, upto: int) -> list[StreamId]:
    """Implement ``NamespaceReader.idle_sessions``."""
    asked = [Statement(_IDLE, (db.namespace, origin, upto)) for origin in IDLE_ORIGINS]
    rows = sorted((row for part in await db.ask(*asked) for row in part), reverse=True)
    return [StreamId(row[1]) for row in rows]
