"""Read the streams of a database as stored segments, and store received segments.

For received entries, perdure computes the place on the branch in the same way as for appended
entries. Received entries keep their salts, digests and hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString

from perdure.errors import CopyConflict, CorruptLog, SessionExists, SessionNotFound
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.stores.append_rules import Admission
from perdure.stores.maintenance.protocol import SOME_COMMITS
from perdure.stores.maintenance.segments import (
    SealedCommit,
    SegmentState,
    StreamSegment,
    admission_of,
    check,
    check_follows,
    created_at_of,
    origins_first,
)
from perdure.stores.postgres.append import (
    LOCK,
    Appender,
    Request,
    keeping,
    look_up,
    statements_of,
    stream_in,
)
from perdure.stores.postgres.births import copy_in
from perdure.stores.postgres.database import Connected, Database, Statement, run_statements
from perdure.stores.postgres.reads import ask_streams
from perdure.stores.postgres.retention.usage import resetting
from perdure.stores.postgres.row_builder import Facts, NotLookedUp, share_placed
from perdure.stores.postgres.rows import ENTRY_COLUMNS, Row, Stream, entry_of, stream_of
from perdure.stores.protocol import EMPTY, Commit
from perdure.stores.verification import StoredEntry

# One statement, so one snapshot: a commit to several streams is seen completely or not at all.
_STANDINGS: LiteralString = """
SELECT s.id, s.head, s.hash, b.origin, b.header
FROM perdure.stream AS s
JOIN perdure.birth AS b ON b.namespace = s.namespace AND b.stream = s.id
WHERE s.namespace = %s
"""

_COMMITS: LiteralString = """
SELECT e.seq, e.commit_at, e.commit_epoch, e.chain FROM perdure.entry AS e
WHERE e.namespace = %s AND e.stream = %s AND e.seq > %s AND e.seq <= %s AND e.chain IS NOT NULL
ORDER BY e.seq LIMIT %s
"""

_ROWS: LiteralString = f"""
SELECT {ENTRY_COLUMNS}, e.salt, e.digest FROM perdure.entry AS e
WHERE e.namespace = %s AND e.stream = %s AND e.seq > %s AND e.seq <= %s ORDER BY e.seq
"""  # noqa: S608 - put together from constants

_BEFORE: LiteralString = """
SELECT CASE WHEN %s < 0 THEN b.genesis ELSE (
    SELECT e.chain FROM perdure.entry AS e
    WHERE e.namespace = %s AND e.stream = %s AND e.seq = %s
) END FROM perdure.birth AS b WHERE b.namespace = %s AND b.stream = %s
"""

_ALIASES: LiteralString = """
SELECT name, seq FROM perdure.alias
WHERE namespace = %s AND stream = %s AND seq > %s AND seq <= %s ORDER BY seq, name
"""

_RAISE_EPOCH: LiteralString = """
UPDATE perdure.stream SET epoch = greatest(epoch, %s) WHERE namespace = %s AND id = %s
"""


# No further entries can be appended here either.
_CLOSE: LiteralString = """
WITH closed AS (
    UPDATE perdure.stream SET is_erased = true
    WHERE namespace = %s AND id = %s AND NOT is_erased RETURNING 1
) SELECT perdure.count(%s, -1, 0, 0) FROM closed
"""


async def segment_states(db: Database) -> list[SegmentState]:
    """Implement ``MaintenanceService.segment_states``."""
    (rows,) = await db.ask(Statement(_STANDINGS, (db.namespace,)))
    found = {StreamId(row[0]): SegmentState(*row[:4]) for row in rows}
    born = {row[0]: (created_at_of(row[4]), row[0]) for row in rows}
    ordered = sorted(found, key=lambda each: born[each])
    return [found[each] for each in origins_first({each: found[each].origin for each in ordered})]


async def read_segment(
    db: Database, stream: StreamId, *, after: int, upto: int, limit: int = SOME_COMMITS
) -> StreamSegment:
    """Implement ``MaintenanceService.read_segment``."""
    ns = db.namespace
    streams, before, ends = await db.ask(
        ask_streams(ns, [stream]),
        Statement(_BEFORE, (after, ns, stream, after, ns, stream)),
        Statement(_COMMITS, (ns, stream, after, upto, limit)),
    )
    if not streams:
        raise SessionNotFound(stream)
    if before[0][0] is None:
        raise CorruptLog(stream, after, "no commit ends with it")
    last = ends[-1][0] if ends else after
    rows, aliases, still = await db.ask(
        Statement(_ROWS, (ns, stream, after, last)),
        Statement(_ALIASES, (ns, stream, after, last)),
        ask_streams(ns, [stream]),
    )
    if not still:  # removed meanwhile: missing parts are not lost
        raise SessionNotFound(stream)
    state = stream_of(streams[0]).state
    return StreamSegment(
        header=state.header,
        before=before[0][0],
        epoch=state.epoch,
        commits=_commits(stream, after, ends, rows),
        aliases=tuple((bytes(name).decode(), seq) for name, seq in aliases),
        is_erased=state.info.status == "erased",
    )


def _commits(
    stream: StreamId, after: int, ends: Sequence[Row], rows: Sequence[Row]
) -> tuple[SealedCommit, ...]:
    if len(rows) != (ends[-1][0] - after if ends else 0):
        raise CorruptLog(stream, after + 1, "entries behind it are gone")
    stored = [StoredEntry(entry_of(row[:9]), row[9], row[10]) for row in rows]
    found: list[SealedCommit] = []
    first = after + 1
    for last, at, epoch, chain in ends:
        own = tuple(stored[first - after - 1 : last - after])
        found.append(SealedCommit(at, epoch, chain, own))
        first = last + 1
    return tuple(found)


async def receive(
    db: Database, appender: Appender, share: StreamSegment, contents: Sequence[bytes]
) -> None:
    """Implement ``MaintenanceService.receive``."""
    check(share)
    stream = share.header.id
    appender.forget(stream)
    is_new = not share.commits or share.first == 0
    async with db.connection() as connected, connected.transaction():
        try:
            genesis = share.before if share.is_erased else None
            here = await _stream(connected, db.namespace, share.header, genesis, is_new=is_new)
        except SessionNotFound:
            if is_new:
                raise
            raise CopyConflict(stream, EMPTY) from None
        except SessionExists:  # another copy is just creating it
            raise CopyConflict(stream, EMPTY) from None
        check_follows(share, here.state)
        for commit in share.commits:
            admission = admission_of(here.state, commit, share.aliases)
            here = await _write_commit(connected, db.namespace, here, admission, commit)
        statements = [keeping(db.namespace, blob_hash(content), content) for content in contents]
        own = (db.namespace, stream)
        statements.append(Statement(_RAISE_EPOCH, (share.epoch, *own)))
        if share.is_erased:
            statements.append(Statement(_CLOSE, (*own, db.namespace)))
            statements.append(resetting(db.namespace))
        await run_statements(connected, db.namespace, statements)


async def _stream(
    db: Connected, namespace: str, header: StreamHeader, genesis: bytes | None, *, is_new: bool
) -> Stream:
    """Lock and return the stream of `header`; with `is_new`, create it if it is missing.

    Raises: SessionNotFound if the stream is missing, unless `is_new`. The call also raises the
    errors of `copy_in` for a new stream.
    """
    await run_statements(db, namespace, [Statement(LOCK, (namespace, [header.id]))])
    try:
        return await stream_in(db, namespace, header.id)
    except SessionNotFound:
        if not is_new:
            raise
    return await copy_in(db, namespace, header, genesis)


async def _write_commit(
    db: Connected, namespace: str, stream: Stream, admission: Admission, commit: SealedCommit
) -> Stream:
    """Write `commit` and return the new state of the stream."""
    rows = [(row.entry, row.salt, row.digest) for row in commit.rows]
    facts = Facts()
    while True:
        try:
            share = share_placed(stream, admission, rows, facts, commit.hash)
            break
        except NotLookedUp as unknown:
            await look_up(db, namespace, stream, facts, unknown)
    request = Request(Commit(writes=(), at=commit.at), b"", b"", ())
    await run_statements(db, namespace, statements_of(namespace, share, request, None))
    return share.after
