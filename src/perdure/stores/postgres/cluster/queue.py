"""`ClusterService`: each call is one statement, on the connections of the store.

DBOS stores queued work in its own schema, ``perdure_work``, which the first worker creates. DBOS's
function for SQL clients queues the work, so a program that only enqueues does not need DBOS.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import LiteralString

import msgspec
import psycopg
from psycopg import errors

from perdure.errors import StoreError
from perdure.session.ids import StreamId
from perdure.stores.cluster.protocol import (
    PROTOCOL,
    RANKS,
    ClusterStatus,
    Order,
    QueueInfo,
    Work,
    WorkerFacts,
    WorkerInfo,
)
from perdure.stores.postgres.cluster.limits import PostgresLimits
from perdure.stores.postgres.cluster.liveness import SILENCE_S, PostgresLiveness
from perdure.stores.postgres.cluster.takeover import BEGUN, REQUEUE, begun_work
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.faults import is_passing
from perdure.stores.postgres.rows import Row, struct_of

_log = logging.getLogger(__name__)

_UNPREPARED = (
    errors.UndefinedFunction,
    errors.UndefinedTable,
    errors.InvalidSchemaName,
    errors.InsufficientPrivilege,
)
"""The server's errors if the schema ``perdure_work``, or the right to use it, is missing."""

STALLED_MS = round(SILENCE_S * 1000)

_CLASS: LiteralString = """
INSERT INTO perdure.work_class VALUES (%s, %s, %s) ON CONFLICT DO NOTHING
"""

_ENQUEUE: LiteralString = """
SELECT perdure_work.enqueue_workflow(
    workflow_name => 'perdure.turn', queue_name => %s,
    positional_args => ARRAY[to_json(%s::text)], workflow_id => %s, app_version => %s,
    priority => %s::int, queue_partition_key => %s, delay_until_epoch_ms => %s,
    application_name => 'perdure'
)
"""

_CLASSES: LiteralString = """
SELECT queue, requires FROM perdure.work_class WHERE namespace = %s ORDER BY queue
"""

_STATES: LiteralString = """
SELECT workflow_uuid, status FROM perdure_work.workflow_status WHERE workflow_uuid = ANY(%s)
"""

_ADOPT: LiteralString = """
UPDATE perdure_work.workflow_status AS w SET application_version = %s
WHERE w.status IN ('ENQUEUED', 'DELAYED') AND w.application_version <> %s
    AND w.queue_name IN (SELECT queue FROM perdure.work_class WHERE namespace = %s)
    AND NOT EXISTS (
        SELECT FROM perdure.worker AS o
        WHERE o.state <> 'dead' AND o.protocol::text = w.application_version
    )
"""

_BUSY: LiteralString = """
SELECT DISTINCT queue_partition_key FROM perdure_work.workflow_status
WHERE status IN ('ENQUEUED', 'PENDING') AND queue_partition_key = ANY(%s)
    AND queue_name IN (SELECT queue FROM perdure.work_class WHERE namespace = %s)
"""

_LOSSES: LiteralString = """
SELECT count(*) FROM perdure.lost_work WHERE namespace = %s AND work = %s
"""

_FORGET: LiteralString = "DELETE FROM perdure.lost_work WHERE namespace = %s AND work = %s"

_KNOW_UPKEEP: LiteralString = """
INSERT INTO perdure.upkeep (namespace, task) SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING
"""

# It waits for no other worker: one that was stopped may have locked the rows.
_TAKE_UPKEEP: LiteralString = """
UPDATE perdure.upkeep AS u SET worker = %s, begun_at = clock_timestamp()
FROM (
    SELECT f.namespace, f.task FROM perdure.upkeep AS f
    JOIN unnest(%s::text[], %s::float8[]) AS t (task, every_s) USING (task)
    WHERE f.namespace = %s AND CASE
        WHEN f.worker IS NULL
            THEN f.begun_at <= clock_timestamp() - make_interval(secs => t.every_s)
        ELSE f.worker = %s OR NOT EXISTS (
            SELECT FROM perdure.worker AS w WHERE w.id = f.worker AND w.state <> 'dead'
        )
    END
    FOR UPDATE OF f SKIP LOCKED
) AS due
WHERE u.namespace = due.namespace AND u.task = due.task
RETURNING u.task
"""

_END_UPKEEP: LiteralString = """
UPDATE perdure.upkeep SET worker = NULL WHERE namespace = %s AND task = %s AND worker = %s
"""

_WORKERS: LiteralString = """
SELECT id, owner, version, protocol, namespaces, agents, slots, running, state,
    extract(epoch FROM clock_timestamp() - started_at)::float8,
    extract(epoch FROM clock_timestamp() - beat_at)::float8, queues
FROM perdure.worker
WHERE state <> 'dead' OR died_at > clock_timestamp() - interval '1 hour'
ORDER BY started_at, id
"""

_COUNTS: LiteralString = "SELECT name, n FROM perdure.cluster_count ORDER BY name"

_QUEUES: LiteralString = """
SELECT w.queue_name, count(*) FILTER (WHERE w.status = 'ENQUEUED'),
    count(*) FILTER (WHERE w.status = 'DELAYED'), count(*) FILTER (WHERE w.status = 'PENDING'),
    (extract(epoch FROM clock_timestamp()) - (min(w.created_at)
        FILTER (WHERE w.status = 'ENQUEUED')) / 1000.0)::float8
FROM perdure_work.workflow_status AS w
WHERE w.queue_name = ANY(%s) AND w.status IN ('ENQUEUED', 'DELAYED', 'PENDING')
GROUP BY w.queue_name
"""


class PostgresCluster:
    """`ClusterService` on the connections of one store."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._db = database
        self.conninfo = database.route.pooled
        self.direct = database.route.direct
        self.limits = PostgresLimits(database, namespace)
        self._known: set[str] = set()
        self._has_warned = False
        self._upkeep: set[str] = set()

    def liveness(self, facts: WorkerFacts) -> PostgresLiveness:
        return PostgresLiveness(self.direct, facts)

    def may_pass(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.Error) and is_passing(error)

    async def enqueue(self, order: Order) -> bool:
        work = order.work
        statements = [
            Statement(
                _ENQUEUE,
                (
                    order.queue,
                    work.id,
                    work.id,
                    str(PROTOCOL),
                    RANKS[order.priority],
                    work.stream,
                    order.due_at,
                ),
            )
        ]
        if order.queue not in self._known:
            values = (self._db.namespace, order.queue, order.requires)
            statements.insert(0, Statement(_CLASS, values))
        try:
            await self._db.ask_once(*statements)
        except StoreError as error:
            if not isinstance(error.__cause__, _UNPREPARED):
                raise
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "%s: no worker has prepared the schema perdure_work for this login yet; "
                    "requests wait in the log until one does",
                    self._db.address,
                )
            return False
        self._known.add(order.queue)
        return True

    async def requirements(self) -> dict[str, bytes]:
        (rows,) = await self._db.ask(Statement(_CLASSES, (self._db.namespace,)))
        return {row[0]: bytes(row[1]) for row in rows}

    async def states_of(self, works: Sequence[Work]) -> dict[str, str]:
        rows = await self._of_work(Statement(_STATES, ([work.id for work in works],)))
        return {row[0]: row[1] for row in rows}

    async def adopt(self) -> None:
        ours = str(PROTOCOL)
        await self._of_work(Statement(_ADOPT, (ours, ours, self._db.namespace)))

    async def busy(self, streams: Sequence[StreamId]) -> set[StreamId]:
        values = (list(streams), self._db.namespace)
        return {StreamId(row[0]) for row in await self._of_work(Statement(_BUSY, values))}

    async def limit_stalls(self) -> None:
        await self._db.limit_idle(STALLED_MS)

    async def begun(self, worker: str) -> list[Work]:
        rows = await self._of_work(Statement(BEGUN, ([worker],)))
        return begun_work(rows).get(worker, [])

    async def requeue(self, worker: str, works: Sequence[Work]) -> None:
        await self._of_work(Statement(REQUEUE, ([work.id for work in works], worker)))

    async def losses(self, work: Work) -> int:
        (rows,) = await self._db.ask(Statement(_LOSSES, (self._db.namespace, work.id)))
        return int(rows[0][0])

    async def forget_losses(self, work: Work) -> None:
        await self._db.ask(Statement(_FORGET, (self._db.namespace, work.id)))

    async def take_upkeep(self, worker: str, every_s: Mapping[str, float]) -> set[str]:
        tasks, namespace = list(every_s), self._db.namespace
        if not self._upkeep.issuperset(tasks):
            await self._db.ask(Statement(_KNOW_UPKEEP, (namespace, tasks)))
            self._upkeep.update(tasks)
        values = (worker, tasks, list(every_s.values()), namespace, worker)
        (rows,) = await self._db.ask_once(Statement(_TAKE_UPKEEP, values))
        return {row[0] for row in rows}

    async def end_upkeep(self, worker: str, task: str) -> None:
        await self._db.ask(Statement(_END_UPKEEP, (self._db.namespace, task, worker)))

    async def status(self) -> ClusterStatus:
        workers, counts = await self._db.ask(Statement(_WORKERS), Statement(_COUNTS))
        required = await self.requirements()
        rows = await self._of_work(Statement(_QUEUES, (list(required),)))
        found = {row[0]: row for row in rows}
        return ClusterStatus(
            workers=tuple(struct_of(WorkerInfo, row) for row in workers),
            queues=tuple(
                _queue(queue, requires, found.get(queue), workers)
                for queue, requires in required.items()
            ),
            counts={row[0]: row[1] for row in counts},
        )

    async def _of_work(self, statement: Statement) -> list[Row]:
        """Return rows from the schema ``perdure_work``; no rows if the schema is missing."""
        try:
            (rows,) = await self._db.ask(statement)
        except StoreError as error:
            if not isinstance(error.__cause__, _UNPREPARED):
                raise
            return []
        return rows


def _queue(queue: str, requires: bytes, row: Row | None, workers: Sequence[Row]) -> QueueInfo:
    _, waiting, scheduled, running, oldest_s = row or (queue, 0, 0, 0, None)
    required = msgspec.json.decode(requires, type=dict[str, object])
    return QueueInfo(
        queue=queue,
        agent=str(required.get("agent", "")),
        waiting=waiting,
        scheduled=scheduled,
        running=running,
        oldest_s=oldest_s,
        served_by=tuple(row[0] for row in workers if row[8] == "alive" and queue in row[-1]),
    )
