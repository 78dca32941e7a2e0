"""Read the streams of an SQLite file as stored segments, and store received segments.

For received entries, perdure computes the place on the branch in the same way as for appended
entries. Received entries keep their salts, digests and hashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import apsw

from perdure.errors import CopyConflict, CorruptLog, EntryNotFound
from perdure.session.ids import MOST_SEQ, StreamId, entry_id
from perdure.stores.access.sqlite_connection import Row
from perdure.stores.maintenance.segments import (
    SealedCommit,
    SegmentState,
    StreamSegment,
    admission_of,
    check,
    check_follows,
    created_at_of,
)
from perdure.stores.protocol import EMPTY
from perdure.stores.sqlite.append import (
    create_stream,
    keep_blobs,
    namespace_number,
    write_admission,
)
from perdure.stores.sqlite.payload.contents import PackedContent
from perdure.stores.sqlite.rows import Stream, Tables
from perdure.stores.verification import StoredEntry

_STANDINGS = """
SELECT s.id, s.head, s.hash, o.id
FROM stream AS s JOIN birth AS b ON b.stream = s.no LEFT JOIN stream AS o ON o.no = b.origin
WHERE s.namespace = (SELECT no FROM namespace WHERE name = ?) ORDER BY s.no
"""

_COMMITS = """
SELECT e.seq, c.count, c.at, c.epoch, c.hash
FROM entry AS e CROSS JOIN commits AS c ON c.first = e.n
WHERE e.stream = ? AND e.seq > ? AND e.seq + c.count - 1 <= ? ORDER BY e.seq LIMIT ?
"""

_ROWS = """
SELECT seq, run, ref, at, kind, v, body, salt, digest FROM entry
WHERE stream = ? AND seq BETWEEN ? AND ? ORDER BY seq
"""

_HASH_BEFORE = """
SELECT c.hash, e.seq + c.count - 1 FROM entry AS e CROSS JOIN commits AS c ON c.first = e.n
WHERE e.stream = ? AND e.seq <= ? ORDER BY e.seq DESC LIMIT 1
"""

_ALIASES = "SELECT name, seq FROM alias WHERE stream = ? AND seq BETWEEN ? AND ? ORDER BY seq, name"

_NAMESPACES = "SELECT name FROM namespace ORDER BY no"


def namespaces(tables: Tables) -> list[str]:
    """Return the names of all namespaces of the file."""
    return [row[0] for row in tables.rows(_NAMESPACES)]


def segment_states(tables: Tables, namespace: str) -> list[SegmentState]:
    """Implement ``MaintenanceService.segment_states``."""
    return [
        SegmentState(StreamId(row[0]), row[1], row[2], row[3])
        for row in tables.rows(_STANDINGS, namespace)
    ]


def read_segment(
    tables: Tables, namespace: str, stream: StreamId, *, after: int, upto: int, limit: int
) -> StreamSegment:
    """Implement ``MaintenanceService.read_segment``."""
    found = tables.stream(namespace, stream)
    rows = list(tables.rows(_COMMITS, found.no, after, upto, limit))
    commits = tuple(_commits(tables, found, rows))
    last = commits[-1].last if commits else after
    return StreamSegment(
        header=found.state.header,
        before=_hash_before(tables, found, after),
        epoch=found.state.epoch,
        commits=commits,
        aliases=tuple((row[0], row[1]) for row in tables.rows(_ALIASES, found.no, after + 1, last)),
        is_erased=found.state.info.status == "erased",
    )


def _commits(tables: Tables, stream: Stream, rows: Sequence[Row]) -> Iterator[SealedCommit]:
    stream_id = stream.state.header.id
    for first, count, at, epoch, chain in rows:
        kept = tables.rows(_ROWS, stream.no, first, min(first + count - 1, MOST_SEQ))
        entries = tuple(_stored_entry(tables, stream_id, row) for row in kept)
        if len(entries) != count:
            raise CorruptLog(stream_id, first, f"of {count} entries of its commit some are gone")
        yield SealedCommit(at, epoch, chain, entries)


def _stored_entry(tables: Tables, stream: StreamId, row: Row) -> StoredEntry:
    body, salt, digest = row[6:9]
    is_sealed = isinstance(body, bytes) and isinstance(digest, bytes)
    if not (is_sealed and isinstance(salt, bytes | None)):
        raise CorruptLog(stream, row[0], "its body, salt or digest is not kept as bytes")
    return StoredEntry(tables.entry(stream, row[:7]), salt, digest)


def _hash_before(tables: Tables, stream: Stream, after: int) -> bytes:
    if after == EMPTY:
        return bytes(tables.value("SELECT genesis FROM birth WHERE stream = ?", stream.no))
    row = tables.row(_HASH_BEFORE, stream.no, after)
    if row is None or row[1] != after:
        raise CorruptLog(stream.state.header.id, after, "no commit ends with it")
    return bytes(row[0])


def receive(
    tables: Tables, namespace: str, share: StreamSegment, contents: Sequence[PackedContent]
) -> None:
    """Implement ``MaintenanceService.receive``, in a transaction that an error rolls back."""
    check(share)
    stream = _stream(tables, namespace, share)
    check_follows(share, stream.state)
    tables.written.add((namespace, stream.state.header.id))
    for commit in share.commits:
        admission = admission_of(stream.state, commit, share.aliases)
        rows = [(row.entry, row.salt, row.digest) for row in commit.rows]
        stream = write_admission(tables, stream, admission, rows, at=commit.at, chain=commit.hash)
    tables.run("UPDATE stream SET epoch = max(epoch, ?) WHERE no = ?", (share.epoch, stream.no))
    if contents:
        keep_blobs(tables, namespace_number(tables, namespace), contents)


def _stream(tables: Tables, namespace: str, share: StreamSegment) -> Stream:
    """Return the stream of `share`; create it if `share` starts at the beginning of the stream."""
    name = share.header.id
    tables.standing.pop((namespace, name), None)
    number = namespace_number(tables, namespace)
    known = tables.value("SELECT no FROM stream WHERE namespace = ? AND id = ?", number, name)
    if known is not None:
        return tables.stream(namespace, name)
    if share.commits and share.first > 0:
        raise CopyConflict(name, EMPTY)
    try:
        new = create_stream(tables, namespace, share.header)
    except apsw.CorruptError as error:
        raise CorruptLog(name, EMPTY, "its origin is damaged") from error
    if not share.is_erased:
        return new
    tables.run("UPDATE birth SET genesis = ? WHERE stream = ?", (share.before, new.no))
    tables.run("UPDATE stream SET hash = ? WHERE no = ?", (share.before, new.no))
    return tables.stream(namespace, name)


# ---------------------------------------------------------------- earlier moments

_POSITION_AT = "SELECT max(first + count - 1) FROM commits WHERE at <= ?"

_POSITION_OF = """
SELECT e.n FROM entry AS e JOIN stream AS s ON s.no = e.stream
WHERE s.namespace = (SELECT no FROM namespace WHERE name = ?) AND s.id = ? AND e.seq = ?
"""

# The shares of a commit to several streams are consecutive and have the same time.
_COMMITS_FROM = """
SELECT c.first, c.count, c.at, e.stream FROM commits AS c JOIN entry AS e ON e.n = c.first
WHERE c.first >= (SELECT max(first) FROM commits WHERE first <= ?) ORDER BY c.first
"""

_STANDINGS_AT = """
SELECT s.id, coalesce(max(e.seq), -1), s.no, b.header, o.id
FROM stream AS s JOIN birth AS b ON b.stream = s.no
LEFT JOIN stream AS o ON o.no = b.origin
LEFT JOIN entry AS e ON e.stream = s.no AND e.n <= ?
WHERE s.namespace = (SELECT no FROM namespace WHERE name = ?) GROUP BY s.no ORDER BY s.no
"""


class Moment(NamedTuple):
    """A point in the history of a store: after the entry at `position`, committed at `at`."""

    position: int
    at: int


def moment_at(tables: Tables, at: int) -> Moment:
    """Return the position of the last entry that was committed at the time `at` or before."""
    return Moment(int(tables.value(_POSITION_AT, at) or 0), at)


def moment_of(tables: Tables, namespace: str, stream: StreamId, seq: int) -> Moment:
    """Return the position and the time of the end of the commit that contains an entry.

    A commit can append to several streams; the position is after the commit's entries in every
    stream of the commit.

    Raises: EntryNotFound.
    """
    n = tables.value(_POSITION_OF, namespace, stream, seq)
    if n is None:
        raise EntryNotFound(entry_id(stream, seq), stream)
    position, at, streams = int(n), 0, set[int]()
    for first, count, made_at, number in tables.rows(_COMMITS_FROM, n):
        if streams and (made_at != at or number in streams):
            break
        position, at = first + count - 1, made_at
        streams.add(number)
    return Moment(position, at)


def standings_at(tables: Tables, namespace: str, moment: Moment) -> list[SegmentState]:
    """Return the states that all streams had at the point `moment` of the store's history."""
    found: list[SegmentState] = []
    for name, head, number, header, origin in list(
        tables.rows(_STANDINGS_AT, moment.position, namespace)
    ):
        if head == EMPTY:
            if created_at_of(header) > moment.at:
                continue
            chain = tables.value("SELECT genesis FROM birth WHERE stream = ?", number)
        else:
            chain = tables.value(_HASH_BEFORE, number, head)
        found.append(SegmentState(StreamId(name), head, bytes(chain), origin))
    return found
