"""The queues of a worker, on DBOS: each turn is one workflow without steps.

DBOS stores the waiting, running and finished work in the schema ``perdure_work`` of the store's
database. DBOS never receives a message: the inputs of its workflows are ids. This module uses the
public names and some private names of DBOS 3.4. `_listening_queues` lets a worker change its queues
after the launch. Two other private names of DBOS give each worker its own number of slots, because
DBOS itself stores one number for all workers. Another private name is the function that claims
work, which `claim.py` replaces. A version of DBOS that lacks one of the private names is rejected.
A process can run only one instance of DBOS.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from perdure.client.cluster.claim import APPLICATION, CLAIM, SCHEMA, claim_by_priority
from perdure.client.cluster.poll_gate import PollGate
from perdure.client.cluster.requirements import FLOW_QUEUE
from perdure.errors import ConfigError
from perdure.stores.cluster.protocol import PROTOCOL, Work, work_of

WORKFLOW = "perdure.turn"

POLL_S = 0.05
"""How often a worker looks for work in each of its queues."""

DONE_KEPT_S = 600
"""How long records of ended work are kept, to recognize work that is queued again by mistake."""

CONNECTIONS = 8
CONNECT_S = 10
RECONNECT_S = 0.1

STALLED_MS = 1_500
"""The server ends a transaction that is idle longer than this: other transactions need its rows.

During the launch, the limit is `LAUNCHING_MS`.
"""

LAUNCHING_MS = 30_000
"""Time limit of an idle transaction in a launch; a launch is not retried, but delays others."""

_LAUNCH = (20_584, 0)
"""The key of the advisory lock that a worker has during its launch."""

_LIMIT = "SELECT set_config('idle_in_transaction_session_timeout', %s, %s)"

_LIMITED = "limit_ms"

_LISTENED = "_listening_queues"
_SLOTS = "_worker_concurrency"

_GRANTS = (
    f"GRANT USAGE ON SCHEMA {SCHEMA} TO perdure_app",
    f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {SCHEMA} TO perdure_app",
)

_FORGET_DONE = f"""
WITH done AS (
    DELETE FROM {SCHEMA}.workflow_status
    WHERE name = '{WORKFLOW}' AND status IN ('SUCCESS', 'ERROR', 'CANCELLED')
        AND updated_at < extract(epoch FROM clock_timestamp()) * 1000 - {DONE_KEPT_S * 1000}
    RETURNING workflow_uuid
), inputs AS (
    DELETE FROM {SCHEMA}.workflow_input WHERE workflow_uuid IN (SELECT workflow_uuid FROM done)
)
DELETE FROM {SCHEMA}.workflow_output WHERE workflow_uuid IN (SELECT workflow_uuid FROM done)
"""  # noqa: S608 - put together from constants

_WITH_WORK = f"""
SELECT q FROM unnest(%s::text[]) AS q WHERE EXISTS (
    SELECT FROM {SCHEMA}.workflow_status WHERE queue_name = q AND status = 'ENQUEUED'
        AND (q <> ALL(%s::text[]) OR queue_partition_key = ANY(%s::text[]))
)
"""  # noqa: S608 - put together from constants

SERVER_ERRORS: tuple[type[Exception], ...] = (psycopg.Error, DBAPIError)
"""The errors that a launch raises if the server rejects it or becomes unavailable."""

Perform = Callable[[Work], Coroutine[Any, Any, str]]
"""Does a piece of work on the worker's event loop, and returns how it ended."""

logging.getLogger("dbos").setLevel(logging.ERROR)


class DbosQueue:
    """Takes work from queues and passes it to `perform`.

    All methods of this class except `perform` block. `flows` contains, for each queue, the flows
    that this worker is allowed to run.
    """

    def __init__(
        self, conninfo: str, worker: str, perform: Perform, slots: int, *, direct: str
    ) -> None:
        has_pooler = direct != conninfo
        self._direct = direct if has_pooler else None
        self._worker = worker
        self._perform = perform
        self._slots = slots
        self._loop = asyncio.get_running_loop()
        self._listened: list[str] = []
        self._registered: dict[str, Any] = {}
        self.flows: Mapping[str, Collection[str]] = {}
        self._has_launched = False
        self._is_closing = threading.Event()
        self._gate = PollGate(self._listened, self._with_work, POLL_S)
        self._polling: sqlalchemy.Connection | None = None
        self._engine = sqlalchemy.create_engine(
            "postgresql+psycopg://",
            creator=lambda: self._connected(conninfo, has_pooler=has_pooler),
            pool_size=CONNECTIONS,
            max_overflow=0,
            pool_pre_ping=True,
        )
        if has_pooler:
            event.listen(self._engine, "begin", self._limit_transaction)
        else:
            event.listen(self._engine, "checkout", self._limit_connection)
        config: DBOSConfig = {
            "name": APPLICATION,
            "system_database_engine": self._engine,
            "dbos_system_schema": SCHEMA,
            "application_version": str(PROTOCOL),
            "executor_id": worker,
            "serializer": DBOSPortableJSONSerializer(),
            "use_listen_notify": False,
            "log_level": "ERROR",
            "enable_otlp": False,
        }
        self._dbos: Any = DBOS(config=config)
        listen_to(self._dbos, self._listened)

        async def work(id: str) -> str:
            return await self._work(id)

        DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(work)

    def launch(self) -> None:
        """Create or update the schema of the queues, and get ready to take work.

        Raises: one of `SERVER_ERRORS`; the caller must then close the queue.
        """
        log = logging.getLogger("dbos")
        log.setLevel(logging.CRITICAL)  # the caller reports what it raises
        try:
            with self._alone():
                DBOS.launch()
        finally:
            log.setLevel(logging.ERROR)
        self._has_launched = True
        keep_queues(self._dbos, self._registered)
        order_claims(self._dbos, self._engine, self._only)
        self._gate.start(self._dbos.background_thread_stop_events)
        with suppress(DBAPIError), self._engine.begin() as db:  # only its owner may
            for grant in _GRANTS:
                db.exec_driver_sql(grant)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Inside the ``with`` block, other workers must wait before they launch.

        Behind a connection pooler, the lock of DBOS does not work. If the server is behind a
        connection pooler, this method takes a lock over a direct connection.
        """
        if self._direct is None:
            yield
            return
        with psycopg.connect(self._direct, connect_timeout=CONNECT_S, autocommit=True) as db:
            # A statement that waits would keep an index from being built, which waits for it.
            while db.execute("SELECT pg_try_advisory_lock(%s, %s)", _LAUNCH).fetchone() != (True,):
                time.sleep(POLL_S)
            yield

    def listen(self, queues: Iterable[str]) -> None:
        """From the next second on, take work from exactly these queues.

        DBOS also continues to poll the queues of earlier calls. `flows` prevents this worker from
        taking the flows in a queue of an earlier call.
        """
        wanted = sorted(queues)
        for queue in wanted:
            if queue not in self._registered:
                registered = DBOS.register_queue(
                    queue,
                    worker_concurrency=self._slots,
                    partition_concurrency=1,
                    polling_interval_sec=POLL_S,
                    on_conflict="always_update",
                )
                _require(registered, _SLOTS)
                setattr(registered, _SLOTS, self._slots)
                self._registered[queue] = registered
        self._listened[:] = wanted

    def stop_taking(self) -> None:
        """Take no more work; running work continues."""
        for stop in self._dbos.background_thread_stop_events:
            stop.set()

    def forget_done(self) -> None:
        """Delete the records of work that ended more than `DONE_KEPT_S` ago."""
        with self._engine.begin() as db:
            db.exec_driver_sql(_FORGET_DONE)

    def close(self) -> None:
        """Stop. Work that has not ended stays assigned to this worker until others take it over."""
        self._is_closing.set()
        self._gate.stop()
        self._end_polling()
        DBOS.destroy()
        self._engine.dispose()

    def _connected(self, conninfo: str, *, has_pooler: bool) -> psycopg.Connection:
        """Connect to the server; after the launch, wait while the server is unavailable.

        Without this method, DBOS would wait longer after each try, and notice the return of the
        server up to a minute late.
        """
        while True:
            try:
                db = psycopg.connect(conninfo, connect_timeout=CONNECT_S, autocommit=True)
            except psycopg.OperationalError:
                if not self._has_launched or self._is_closing.wait(RECONNECT_S):
                    raise
            else:
                break
        if has_pooler:
            db.prepare_threshold = None  # the next transaction may be on another connection
        db.autocommit = False
        return db

    @property
    def _limit_ms(self) -> int:
        return STALLED_MS if self._has_launched else LAUNCHING_MS

    def _limit_transaction(self, db: sqlalchemy.Connection) -> None:
        db.exec_driver_sql(_LIMIT, (str(self._limit_ms), True))

    def _limit_connection(self, db: Any, record: ConnectionPoolEntry, _: object) -> None:
        """Set the time limit for idle transactions of a connection, unless it is already set."""
        limit = self._limit_ms
        if record.info.get(_LIMITED) == limit:
            return
        try:
            db.autocommit = True
            db.execute(_LIMIT, (str(limit), False))
            db.autocommit = False
        except psycopg.Error as error:
            raise DisconnectionError(str(error)) from error
        record.info[_LIMITED] = limit

    def _with_work(self, queues: Collection[str]) -> list[str]:
        """Return the queues with work. The thread that polls keeps one connection for its polls.

        The connection uses no transactions, so a poll sends only one message to the server. On a
        connection of the pool, a poll would send four messages.
        """
        of_flows = [queue for queue in queues if queue.startswith(FLOW_QUEUE)]
        flows = [flow for queue in of_flows for flow in self.flows.get(queue, ())]
        if self._polling is None:
            self._polling = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            found = self._polling.exec_driver_sql(_WITH_WORK, (list(queues), of_flows, flows))
            return [row[0] for row in found]
        except BaseException:
            self._end_polling()
            raise

    def _end_polling(self) -> None:
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.close()

    def _only(self, queue: str) -> list[str] | None:
        """Return the sessions whose work this worker can take from `queue`; None: all sessions."""
        return list(self.flows.get(queue, ())) if queue.startswith(FLOW_QUEUE) else None

    async def _work(self, work: str) -> str:
        """Run `work` in the worker's event loop, because the store belongs to that loop."""
        done = asyncio.run_coroutine_threadsafe(self._perform(work_of(work)), self._loop)
        return await asyncio.wrap_future(done)


def cause_of(error: Exception) -> BaseException:
    """Return the error of psycopg that `error` is or contains.

    Shape: `error` is one of `SERVER_ERRORS`.
    """
    return error.orig if isinstance(error, DBAPIError) and error.orig else error


def listen_to(dbos: Any, queues: list[str]) -> None:
    """Let `dbos` take work from the queues in the list `queues`, including queues added later.

    Raises: ConfigError if this version of DBOS lacks the private name used.
    """
    _require(dbos, _LISTENED)
    setattr(dbos, _LISTENED, queues)


def keep_queues(dbos: Any, queues: Mapping[str, Any]) -> None:
    """Let `dbos` use the queue settings in `queues`, whose keys are queue names.

    Without this call, `dbos` would read the settings from the database before each poll.

    Raises: ConfigError if this version of DBOS lacks the private name used.
    """
    database: Any = getattr(dbos, "_sys_db", None)
    _require(database, "get_queue")
    read: Callable[[str], Any] = database.get_queue

    def get_queue(name: str) -> Any:
        return queues.get(name) or read(name)

    database.get_queue = get_queue


def order_claims(
    dbos: Any, engine: sqlalchemy.Engine, only: Callable[[str], list[str] | None]
) -> None:
    """Let `dbos` take work by priority. Raises: ConfigError if DBOS lacks a private name."""
    database: Any = getattr(dbos, "_sys_db", None)
    _require(database, CLAIM)
    claim_by_priority(database, engine, only)


def _require(owner: object, name: str) -> None:
    if not hasattr(owner, name):
        raise ConfigError(
            f"dbos {version('dbos')} cannot be used: it has no {name}. Install another one: "
            "pip install 'dbos>=3.4,<3.5'"
        )
