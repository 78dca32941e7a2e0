"""Take over from dead workers: fence their sessions, and queue their work again.

Fencing the sessions and queueing their work are one transaction, so a worker that dies in between
leaves no partial change. No step waits for a lock, because a worker that was stopped inside a
commit holds the row of its session. If the server waits for the stopped worker's next message,
perdure ends the worker's connection, even if the connection belongs to a pooler. The server itself
might never end the connection, because it applies no time limit between the messages of a pipeline.
A session whose row is still locked is left for the next try, and does not delay other sessions.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import LiteralString

from msgspec import DecodeError
from psycopg import Connection, errors

from perdure.session.ids import StreamId
from perdure.stores.cluster.protocol import Work, work_of
from perdure.stores.postgres.cluster.live import FORGET_LIVE
from perdure.stores.postgres.rows import Row, key_of

STALLED_S = 1.0
"""A transaction that blocks a takeover is ended if it waits for its client this long."""

ENDING_S = 0.2
"""Maximum time that a takeover waits until the ended connections hold no lock."""

_LOOK_S = 0.01

_log = logging.getLogger(__name__)

NAMESPACE: LiteralString = "SELECT set_config('perdure.namespace', %s, true)"

BEGUN: LiteralString = """
SELECT executor_id, workflow_uuid FROM perdure_work.workflow_status
WHERE status = 'PENDING' AND name = 'perdure.turn' AND executor_id = ANY(%s)
"""

# As DBOS resumes a workflow, but only if the worker has it still.
REQUEUE: LiteralString = """
UPDATE perdure_work.workflow_status
SET status = 'ENQUEUED', owner_xid = NULL, recovery_attempts = 0, started_at_epoch_ms = NULL,
    workflow_deadline_epoch_ms = NULL, deduplication_id = NULL, completed_at = NULL,
    updated_at = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
WHERE workflow_uuid = ANY(%s) AND status = 'PENDING' AND executor_id = %s
"""

_LOCKED: LiteralString = """
WITH free AS MATERIALIZED (
    SELECT id FROM perdure.stream WHERE namespace = %s AND id = ANY(%s)
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT id FROM perdure.stream
WHERE namespace = %s AND id = ANY(%s) AND id NOT IN (SELECT id FROM free)
"""

# As the login: it may end its own connections, which the role of the store may not.
_AS_LOGIN: LiteralString = "SELECT set_config('role', 'none', true)"

# One connection each time: what it does is looked up just before it is ended. An `xmax` that is the
# id of several lockers (a multixact) may equal the id of a transaction in any database.
_END_STALLED: LiteralString = """
SELECT a.pid, pg_terminate_backend(a.pid) FROM perdure.stream AS s
JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = s.xmax
JOIN pg_stat_activity AS a USING (pid)
WHERE s.namespace = %s AND s.id = ANY(%s) AND a.pid <> ALL(%s) AND a.wait_event = 'ClientRead'
    AND a.state_change < clock_timestamp() - make_interval(secs => %s)
    AND a.datname = current_database() AND a.usename = session_user
    AND EXISTS (
        SELECT FROM pg_locks AS r WHERE r.pid = a.pid AND r.locktype = 'relation'
            AND r.database = a.datid AND r.relation = 'perdure.stream'::regclass
    )
LIMIT 1
"""

_STILL_LOCK: LiteralString = "SELECT FROM pg_locks WHERE pid = ANY(%s) LIMIT 1"

_FENCE: LiteralString = """
UPDATE perdure.stream SET epoch = epoch + 1, owner = NULL, until = 0
WHERE namespace = %s AND id = ANY(%s) AND owner = %s
"""

# A turn that still waited for its slot cannot have killed the worker. Where turns are limited, each
# that runs has a granted slot (client/cluster/limits.py).
_BLAME: LiteralString = """
INSERT INTO perdure.lost_work (namespace, work, worker)
SELECT %s, work, %s FROM unnest(%s::text[]) AS work
WHERE NOT EXISTS (SELECT FROM perdure.work_limit WHERE turns IS NOT NULL) OR EXISTS (
    SELECT FROM perdure.work_slot AS s WHERE s.granted_at IS NOT NULL
        AND s.id = encode(sha256(convert_to(%s || work, 'UTF8')), 'hex')
)
ON CONFLICT DO NOTHING
"""


def begun_work(rows: Iterable[Row]) -> dict[str, list[Work]]:
    """Return the work that each worker has begun (rows of `BEGUN`); omit other programs' work."""
    found: dict[str, list[Work]] = defaultdict(list)
    for worker, id in rows:
        try:
            found[worker].append(work_of(id))
        except DecodeError:
            continue
    return found


def take_over(db: Connection[Row], worker: str, owner: str, works: Iterable[Work]) -> int:
    """Fence the sessions of `works`, which a dead worker has begun, and queue the work again.

    Return how many pieces of work were queued again. If the row of a session stays locked, the next
    call handles the work of that session.
    """
    by_namespace: dict[str, list[Work]] = defaultdict(list)
    for work in works:
        by_namespace[key_of(work.namespace)].append(work)
    count = 0
    for key, begun in by_namespace.items():
        taken, locked = _take_free(db, key, begun, worker, owner)
        count += taken
        if locked and _end_stalled(db, key, [work.stream for work in locked]):
            count += _take_free(db, key, locked, worker, owner)[0]
    return count


def _take_free(
    db: Connection[Row], key: str, begun: list[Work], worker: str, owner: str
) -> tuple[int, list[Work]]:
    """Take over work whose session is not locked; return its count, and the remaining work."""
    streams = [work.stream for work in begun]
    with db.transaction():
        db.execute(NAMESPACE, (key,))
        locked = {row[0] for row in db.execute(_LOCKED, (key, streams, key, streams))}
        free = [work for work in begun if work.stream not in locked]
        count = 0
        if free:
            ids, freed = [work.id for work in free], [work.stream for work in free]
            db.execute(_FENCE, (key, freed, owner))
            db.execute(FORGET_LIVE, (key, freed))
            db.execute(_BLAME, (key, worker, ids, worker))
            count = db.execute(REQUEUE, (ids, worker)).rowcount
    return count, [work for work in begun if work.stream in locked]


def _end_stalled(db: Connection[Row], key: str, streams: list[StreamId]) -> bool:
    """End idle connections that lock a row of `streams`; return True if a connection was ended.

    The call ignores connections of another login, because the server does not let this login end
    such connections.
    """
    seen: list[int] = []
    ended: list[int] = []
    with suppress(errors.InsufficientPrivilege):
        while (found := _end_next(db, key, streams, seen)) is not None:
            pid, was_ended = found
            seen.append(pid)
            if was_ended:
                ended.append(pid)
    if ended:
        pids = ", ".join(map(str, ended))
        _log.warning("ended stalled transactions of a dead worker: server process %s", pids)
        _wait_unlocked(db, ended)
    return bool(ended)


def _end_next(
    db: Connection[Row], key: str, streams: list[StreamId], seen: list[int]
) -> Row | None:
    """End one more stalled connection; return its process, and whether it was ended.

    Each call has its own transaction, because within one transaction the server always shows the
    activity at the time of the first query.
    """
    with db.transaction():
        db.execute(_AS_LOGIN)
        db.execute(NAMESPACE, (key,))
        return db.execute(_END_STALLED, (key, streams, seen, STALLED_S)).fetchone()


def _wait_unlocked(db: Connection[Row], pids: list[int]) -> None:
    until = time.monotonic() + ENDING_S
    while db.execute(_STILL_LOCK, (pids,)).rowcount and time.monotonic() < until:
        time.sleep(_LOOK_S)
