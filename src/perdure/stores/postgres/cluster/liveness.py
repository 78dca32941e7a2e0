"""The liveness of a worker: it reports twice a second, and takes over from silent workers.

All times are from the server's clock. A worker has a separate connection for its reports, used by
one thread, so that a busy event loop does not look like a dead worker. The worker holds an advisory
lock on the connection for its reports. If a worker's lock is free, the worker's process has ended,
and another worker can take over at once. If a worker that was declared dead reports again, its
process was not dead, but only suspended. The epochs of a worker that was declared dead were raised,
so it cannot write the rest of its old work. A worker that reports again after it was declared dead
continues as a new worker.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import LiteralString

import psycopg
from psycopg import Connection

from perdure.secrets.mask import log_failure
from perdure.stores.cluster.protocol import PROTOCOL, WorkerFacts
from perdure.stores.postgres.cluster.live import SWEEP
from perdure.stores.postgres.cluster.takeover import BEGUN, NAMESPACE, begun_work, take_over
from perdure.stores.postgres.migrate import APP_ROLE
from perdure.stores.postgres.rows import Row, key_of

BEAT_S = 0.5
"""How often a worker reports."""

LOOK_S = 0.25
"""How often a worker looks for silent workers."""

SILENCE_S = 1.5
"""A worker that has not reported for this long is declared dead."""

DEAD_LOCK_S = 0.6
"""A worker whose lock is free is declared dead after this silence, longer than `BEAT_S`."""

SWEEP_S = 10.0
"""How often a worker looks for work of all dead workers, not only of recently dead ones."""

RECENT_S = 30.0
"""Each look searches for work of workers that died within this time: they may wake up again."""

RECONNECT_S = 0.1
CONNECT_S = 2
FIRST_CONNECT_S = 10
"""Longest wait for the connection in `PostgresLiveness.start`, which does not retry."""

_CLASS = 20583
"""First key of the workers' advisory locks; the second key is the worker's number."""

_log = logging.getLogger(__name__)

# A stopped worker, or one that the server cannot reach, must not keep what it locked in a takeover:
# the server ends its session, which is never idle for that long otherwise. A worker that stands
# still as it registers has no such locks, and its start is not tried again: the last statement.
_LIMIT_SILENCE: LiteralString = """
SELECT set_config('idle_in_transaction_session_timeout', %s, false),
    set_config('idle_session_timeout', %s, false)
"""

_SET_UP: LiteralString = """
SELECT set_config('statement_timeout', '5000', false), set_config('lock_timeout', '2000', false),
    set_config('synchronous_commit', 'off', false)
"""

_REGISTER: LiteralString = """
INSERT INTO perdure.worker (id, owner, version, protocol, namespaces, agents, slots)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET beat_at = clock_timestamp()
RETURNING no, clock_timestamp()
"""

_LOCK: LiteralString = "SELECT pg_try_advisory_lock(%s, %s)"

_BEAT: LiteralString = """
UPDATE perdure.worker SET beat_at = clock_timestamp(), running = %s, queues = %s,
    state = CASE state WHEN 'dead' THEN 'dead' ELSE %s END
WHERE id = %s RETURNING state
"""

_REVIVE: LiteralString = """
UPDATE perdure.worker SET state = %s, beat_at = clock_timestamp(), died_at = NULL
WHERE id = %s AND state = 'dead'
"""

_UNBLAME: LiteralString = "DELETE FROM perdure.lost_work WHERE namespace = %s AND worker = %s"

# The silence before this connection began is perhaps not a worker's: the server was gone, and it
# may have been replaced by another one, which has been running for long.
_BURY: LiteralString = """
UPDATE perdure.worker AS w SET state = 'dead', died_at = clock_timestamp(), running = 0
WHERE w.state <> 'dead' AND w.id <> %s AND (
    greatest(w.beat_at, %s) < clock_timestamp() - make_interval(secs => %s)
    OR greatest(w.beat_at, %s)
        < clock_timestamp() - make_interval(secs => %s)
    AND NOT EXISTS (
        SELECT FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = w.no::oid
            AND l.objsubid = 2
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
)
RETURNING w.id
"""

_DEAD: LiteralString = """
SELECT id, owner, died_at > clock_timestamp() - make_interval(secs => %s) FROM perdure.worker
WHERE state = 'dead'
"""

_FORGET_DEAD: LiteralString = """
DELETE FROM perdure.worker
WHERE state = 'dead' AND died_at < clock_timestamp() - interval '1 day'
"""

_COUNT: LiteralString = """
INSERT INTO perdure.cluster_count AS c VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET n = c.n + excluded.n
"""

_LEAVE: LiteralString = "DELETE FROM perdure.worker WHERE id = %s"


class PostgresLiveness:
    """`Liveness`: reports for one worker on a separate thread, from `start` until `stop`."""

    def __init__(self, conninfo: str, facts: WorkerFacts) -> None:
        self._conninfo = conninfo
        self._facts = facts
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="perdure-liveness", daemon=True)
        self._beaten_at = self._swept_at = 0.0
        self._connected_at: datetime | None = None
        self.dead_owners: frozenset[str] = frozenset()
        self.is_draining = False
        self.queues: frozenset[str] = frozenset()
        self.running: Callable[[], int] = lambda: 0

    def start(self) -> None:
        """Register the worker, and start reporting. The call blocks until the worker is registered.

        Raises: psycopg.Error.
        """
        with self._connected(FIRST_CONNECT_S):
            pass
        self._thread.start()

    def stop(self) -> None:
        """Stop reporting, and remove the worker. The call blocks."""
        self._stop.set()
        self._thread.join()

    # ------------------------------------------------------------ on the thread

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._connected() as db:
                    while not self._stop.wait(LOOK_S):
                        self._look(db)
                    db.execute(_LEAVE, (self._facts.id,))
            except Exception as error:  # noqa: BLE001 - also of the queue: a worker must report on
                log_failure(_log, error, "a worker could not report; it tries again")
                self._stop.wait(RECONNECT_S)

    def _connected(self, connect_s: int = CONNECT_S) -> Connection[Row]:
        db = psycopg.connect(
            self._conninfo,
            autocommit=True,
            connect_timeout=connect_s,
            tcp_user_timeout=round(SILENCE_S * 1000),
        )
        try:
            db.execute(_SET_UP)
            if _is_free(db):
                db.execute(b"SET ROLE " + APP_ROLE.encode())
            facts = self._facts
            row = db.execute(
                _REGISTER,
                (
                    facts.id,
                    facts.owner,
                    facts.version,
                    PROTOCOL,
                    list(facts.namespaces),
                    list(facts.agents),
                    facts.slots,
                ),
            ).fetchone()
            assert row is not None
            number, self._connected_at = row
            db.execute(_LOCK, (_CLASS, number))
            silence_ms = f"{SILENCE_S * 1000:.0f}"
            db.execute(_LIMIT_SILENCE, (silence_ms, silence_ms))
        except BaseException:
            db.close()
            raise
        return db

    def _look(self, db: Connection[Row]) -> None:
        now = time.monotonic()
        if now - self._beaten_at >= BEAT_S - LOOK_S / 2:
            self._beaten_at = now
            self._beat(db)
        since = self._connected_at
        values = (self._facts.id, since, SILENCE_S, since, DEAD_LOCK_S, _CLASS)
        buried = db.execute(_BURY, values).fetchall()
        if buried:
            _log.warning("workers are dead: %s", ", ".join(str(row[0]) for row in buried))
            self._count(db, "takeovers", len(buried))
        is_sweep = now - self._swept_at >= SWEEP_S
        if is_sweep:
            self._swept_at = now
            db.execute(_FORGET_DEAD)
            self._sweep_live(db)
        dead = db.execute(_DEAD, (RECENT_S,)).fetchall()
        self.dead_owners = frozenset(str(row[1]) for row in dead)
        due = [(str(id), str(owner)) for id, owner, is_recent in dead if is_recent or is_sweep]
        if due:
            self._take_over(db, due)

    def _sweep_live(self, db: Connection[Row]) -> None:
        for key in map(key_of, self._facts.namespaces):
            with db.transaction():
                db.execute(NAMESPACE, (key,))
                db.execute(SWEEP, (key,))

    def _beat(self, db: Connection[Row]) -> None:
        state = "draining" if self.is_draining else "alive"
        row = db.execute(
            _BEAT, (self.running(), list(self.queues), state, self._facts.id)
        ).fetchone()
        if row is None:  # removed: it was dead for a day
            raise psycopg.OperationalError("this worker is not registered any more")
        if row[0] == "dead":
            self._revive(db, state)

    def _revive(self, db: Connection[Row], state: str) -> None:
        _log.warning("this worker was silent for too long: others took its work over")
        with db.transaction():
            db.execute(_REVIVE, (state, self._facts.id))
            self._count(db, "false_takeovers", 1)
            for namespace in self._facts.namespaces:
                key = key_of(namespace)
                db.execute(NAMESPACE, (key,))
                db.execute(_UNBLAME, (key, self._facts.id))

    def _take_over(self, db: Connection[Row], dead: Iterable[tuple[str, str]]) -> None:
        owners = dict(dead)
        for id, works in begun_work(db.execute(BEGUN, (list(owners),))).items():
            count = take_over(db, id, owners[id], works)
            if count:
                self._count(db, "requeued", count)

    def _count(self, db: Connection[Row], name: str, count: int) -> None:
        db.execute(_COUNT, (name, count))


def _is_free(db: Connection[Row]) -> bool:
    """Return whether this login bypasses row-level security."""
    row = db.execute(
        "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    return row is not None and bool(row[0])
