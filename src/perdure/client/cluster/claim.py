"""Claim work in the order of priority, and the work of each session in the order of requests.

DBOS first selects the sessions whose work a worker takes, and applies the priority only within a
session. perdure needs the opposite: the priority decides between sessions, and the requests of one
session stay in order. `claim_by_priority` makes DBOS claim work with a single SQL statement of
perdure, in place of the statement of DBOS.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import sqlalchemy

SCHEMA = "perdure_work"
"""The database schema in which DBOS stores work."""

APPLICATION = "perdure"

CLAIM = "start_queued_partitioned_workflows"
"""Name of the DBOS function that claims work and that `claim_by_priority` replaces."""

_LOOKED_FOR = (
    "w.queue_name = %(queue)s AND w.status = 'ENQUEUED' AND w.application_version = %(version)s"
    " AND (%(only)s::text[] IS NULL OR w.queue_partition_key = ANY(%(only)s::text[]))"
)

# `first` orders by the seq of the request, in the id of the work; what continues a turn has none.
# `waiting` reads one row of an index for each session: its first one, by priority. The rows are
# locked once they are chosen: a query with both a limit and locks could skip a locked row, and take
# a later one of the same session.
_CLAIM = f"""
WITH RECURSIVE waiting (session, priority) AS (
    (
        SELECT w.queue_partition_key, w.priority FROM {SCHEMA}.workflow_status AS w
        WHERE {_LOOKED_FOR} AND w.queue_partition_key IS NOT NULL
        ORDER BY w.queue_partition_key, w.priority LIMIT 1
    )
    UNION ALL
    SELECT n.* FROM waiting AS p CROSS JOIN LATERAL (
        SELECT w.queue_partition_key, w.priority FROM {SCHEMA}.workflow_status AS w
        WHERE {_LOOKED_FOR} AND w.queue_partition_key > p.session
        ORDER BY w.queue_partition_key, w.priority LIMIT 1
    ) AS n
), chosen AS MATERIALIZED (
    SELECT p.session FROM waiting AS p
    WHERE NOT EXISTS (
        SELECT FROM {SCHEMA}.workflow_status AS w
        WHERE w.queue_name = %(queue)s AND w.status = 'PENDING'
            AND w.queue_partition_key = p.session
    )
    ORDER BY p.priority, random() LIMIT %(most)s
), first AS MATERIALIZED (
    SELECT f.id FROM chosen AS c CROSS JOIN LATERAL (
        SELECT w.workflow_uuid AS id FROM {SCHEMA}.workflow_status AS w
        WHERE {_LOOKED_FOR} AND w.queue_partition_key = c.session
        ORDER BY (w.workflow_uuid::json->>2)::bigint NULLS FIRST, w.created_at LIMIT 1
    ) AS f
), free AS MATERIALIZED (
    SELECT w.workflow_uuid AS id FROM {SCHEMA}.workflow_status AS w
    WHERE w.workflow_uuid IN (SELECT f.id FROM first AS f) AND {_LOOKED_FOR}
    FOR UPDATE SKIP LOCKED
)
UPDATE {SCHEMA}.workflow_status AS w
SET status = 'PENDING', owner_xid = %(claim)s, executor_id = %(worker)s, rate_limited = false,
    recovery_attempts = w.recovery_attempts + 1, application_name = %(application)s,
    started_at_epoch_ms = floor(extract(epoch FROM now()) * 1000)::bigint,
    updated_at = floor(extract(epoch FROM now()) * 1000)::bigint
FROM free AS f WHERE w.workflow_uuid = f.id AND {_LOOKED_FOR}
RETURNING w.workflow_uuid
"""  # noqa: S608 - put together from constants

_MOST = 8_192
"""The most pieces of work that one claim takes."""


def claim_by_priority(
    database: Any, engine: sqlalchemy.Engine, only: Callable[[str], list[str] | None]
) -> None:
    """Replace the statement with which the DBOS system `database` on `engine` claims work.

    `only` returns the sessions whose work this worker is allowed to take from a queue; None: all
    sessions.
    """

    def claim(
        queue: Any,
        executor_id: str,
        app_version: str,
        max_tasks: int = sys.maxsize,
        *,
        owner_xid: str | None = None,
        is_latest_version: bool | None = None,
    ) -> list[str]:
        del is_latest_version  # it decides about work without a version, and ours has one
        values = {
            "queue": queue.name,
            "only": only(queue.name),
            "version": app_version,
            "most": min(max_tasks, _MOST),
            "claim": owner_xid,
            "worker": executor_id,
            "application": APPLICATION,
        }
        with engine.begin() as db:
            return [row[0] for row in db.exec_driver_sql(_CLAIM, values)]

    setattr(database, CLAIM, claim)
