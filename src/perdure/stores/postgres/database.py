"""A namespace of a database: its connection pool, and the methods that run statements.

A connection is configured once (role, timeouts, planner), or, behind a pooler, in every
transaction. The namespace is set in every transaction, so that the next caller of the connection
does not inherit it. Statements of one call are sent together and answered in one round trip.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import (
    AsyncConnection,
    AsyncCursor,
    AsyncPipeline,
    AsyncTransaction,
    Connection,
    errors,
)
from psycopg.abc import PQGen
from psycopg.generators import send
from psycopg.pq import ConnStatus, PipelineStatus, TransactionStatus
from psycopg_pool import AsyncConnectionPool

from perdure.errors import ConfigError, StoreUnavailable
from perdure.stores.access.cancellation import UntilCancelled, finished
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.access.process import OwnProcess, running_loop
from perdure.stores.postgres.address import Route, public_address
from perdure.stores.postgres.faults import is_lost, lock_error, meaning_of
from perdure.stores.postgres.migrate import prepare_schema
from perdure.stores.postgres.rows import Row, key_of, set_types
from perdure.stores.protocol import Durability

CONNECTIONS = 8
"""Maximum number of connections per handle, not counting the one that waits for changes."""

LOOK_S = 60.0
"""Maximum time that a connection is cached outside the pool; the pool checks its age."""

CONNECT_S = 10
WAIT_S = 15.0
STATEMENT_S = 60
IDLE_IN_TRANSACTION_S = 10

CLOSING_S = 2.0
"""How long closing waits for running calls before it cancels them on the server."""

_OTHER_LOOP = (
    "it was opened in another event loop; open it again in this one, or use perdure.blocking, "
    "whose handles work in every thread"
)

_SET_NAMESPACE: LiteralString = "SELECT set_config('perdure.namespace', %s, true)"

# Cached plans of prepared statements may stem from a time when a table was empty: only plans with
# an index are good here. A timeout that an administrator configured stays. Behind a pooler all this
# lasts for one transaction, and is set once in it.
_SET_UP: LiteralString = """
SELECT set_config('role', coalesce(%s, current_user), is_local),
    set_config('synchronous_commit', %s, is_local),
    set_config('default_transaction_isolation', 'read committed', is_local),
    set_config('jit', 'off', is_local),
    set_config('enable_seqscan', 'off', is_local),
    set_config('enable_bitmapscan', 'off', is_local),
    set_config('perdure.is_set_up', '1', is_local),
    set_config('statement_timeout', CASE current_setting('statement_timeout')
        WHEN '0' THEN %s ELSE current_setting('statement_timeout') END, is_local),
    set_config('lock_timeout', CASE current_setting('lock_timeout')
        WHEN '0' THEN %s ELSE current_setting('lock_timeout') END, is_local),
    set_config('idle_in_transaction_session_timeout',
        CASE current_setting('idle_in_transaction_session_timeout')
        WHEN '0' THEN %s ELSE current_setting('idle_in_transaction_session_timeout') END, is_local)
FROM (VALUES (%s)) AS of (is_local)
WHERE NOT is_local OR current_setting('perdure.is_set_up', true) IS DISTINCT FROM '1'
"""


_LIMITS: LiteralString = """
SELECT set_config('lock_timeout', %s, false),
    set_config('idle_in_transaction_session_timeout', %s, false)
"""

# The pool reports each lost connection to this logger, and Python prints what has no handler.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class Statement(NamedTuple):
    """An SQL statement with the values of its parameters."""

    sql: LiteralString
    values: Sequence[object] = ()


Connected = AsyncConnection[Row]


class _Pipeline(AsyncPipeline):
    """A pipeline that ends with Sync only; psycopg's own pipeline also sends Flush.

    The server starts the timer of ``idle_in_transaction_session_timeout`` at Sync. Any message from
    the client stops the timer, and Flush does not start the timer again. So the locks of a process
    that is suspended after a Flush would never time out.
    """

    def _exit_gen(self) -> PQGen[None]:
        try:
            self._enqueue_sync()
            yield from self._communicate_gen()
        finally:
            # A wait that is cancelled twice closes the connection: then nothing is left to read.
            if self.pgconn.status != ConnStatus.BAD:
                yield from send(self.pgconn)  # a large value may still wait to be sent
                yield from self._fetch_gen(flush=False)


class _PooledConnection(AsyncConnection[Row]):
    """Reuses one cursor, which remembers how it sent the values of its last statement.

    Behind a pooler, every transaction begins with the statement `set_up`. Without a pooler,
    `set_up` is None.
    """

    set_up: Statement | None = None

    @asynccontextmanager
    async def pipeline(self) -> AsyncGenerator[AsyncPipeline]:
        async with super().pipeline() as made:
            made.__class__ = _Pipeline
            yield made

    @asynccontextmanager
    async def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,  # noqa: FBT001, FBT002 - as psycopg declares it
    ) -> AsyncGenerator[AsyncTransaction]:
        """Open a transaction of psycopg; raise an error if its commit is impossible."""
        async with super().transaction(savepoint_name, force_rollback) as made:
            yield made
            if self.pgconn.transaction_status != TransactionStatus.INTRANS:
                raise psycopg.OperationalError("the transaction ended before its commit")

    @cached_property
    def shared_cursor(self) -> AsyncCursor[Row]:
        """Return the shared cursor; the results of a statement are lost with the next statement."""
        return self.cursor()


class Pool(AsyncConnectionPool[_PooledConnection]):
    """A pool whose workers end when they are cancelled.

    psycopg's worker treats a cancellation during its work as a failure of that work, and waits for
    the next work. `asyncio.run` cancels each task only once, so it would wait forever for psycopg's
    worker.
    """

    @classmethod
    async def worker(cls, q: Any) -> None:
        """Work until the pool stops, or the task is cancelled."""
        queue: Any = UntilCancelled(q)
        await super().worker(queue)


class Database:
    """Access to one namespace of one database; only the event loop that opened it may use it.

    Units: seconds. `lock_timeout_s` is the longest wait for a lock. `connect_s` is the longest wait
    for a connection to the server.
    """

    def __init__(
        self,
        route: Route,
        namespace: str,
        durability: Durability,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        connect_s: int = CONNECT_S,
    ) -> None:
        self._connecting: dict[str, Any] = {"autocommit": True, "connect_timeout": connect_s}
        self.address = public_address(route.direct)
        self.namespace = key_of(namespace)
        self.durability: Durability = durability
        self.route = route
        self._role: str | None = None
        self._pool: Pool | None = None
        self._lock_ms = f"{math.ceil(lock_timeout_s * 1000)}"
        self._idle_ms = f"{IDLE_IN_TRANSACTION_S * 1000}"
        self._process = OwnProcess(self.address)
        self._loop = running_loop()
        self._lent_now: set[_PooledConnection] = set()
        self._calls = 0
        self._is_closed = False
        self._is_idle = asyncio.Event()
        self._at_hand: _PooledConnection | None = None
        self._waiting = 0
        self._looked_at = 0.0

    async def open(self, max_connections: int, *, is_copied: bool = False) -> None:
        """Inspect the database, migrate its schema and connect.

        With `is_copied`, a store with the last schema before the first release is not migrated.
        Raises: NotAStore, StoreTooNew, StoreTooOld, StoreReadOnly, StoreUnavailable.
        """
        try:
            async with await AsyncConnection.connect(
                self.route.direct, **self._connecting
            ) as first:
                await first.execute(_LIMITS, (self._lock_ms, f"{IDLE_IN_TRANSACTION_S * 1000}"))
                self._role = await prepare_schema(first, self.address, is_copied=is_copied)
                if has_pooler := self.route.has_pooler:
                    await _check_isolation(first, self.address)
            pool = Pool(
                self.route.pooled,
                connection_class=_PooledConnection,
                kwargs={**self._connecting, "prepare_threshold": None if has_pooler else 0},
                min_size=1,
                max_size=max_connections,
                timeout=WAIT_S,
                configure=self._configure_pooled if has_pooler else self._configure,
                open=False,
            )
            await _connect(pool)
        except errors.LockNotAvailable as error:
            raise await lock_error(self.address, self.route.direct, CONNECT_S) from error
        except psycopg.Error as error:
            raise meaning_of(error, self.address) from error
        self._pool = pool

    async def _configure(self, db: Connected) -> None:
        set_types(db)
        await db.execute(*self._set_up(is_local=False))

    async def _configure_pooled(self, db: _PooledConnection) -> None:
        set_types(db)
        db.set_up = self._set_up(is_local=True)

    def _set_up(self, *, is_local: bool) -> Statement:
        commit = "on" if self.durability == "full" else "off"
        limits = (f"{STATEMENT_S * 1000}", self._lock_ms, self._idle_ms)
        return Statement(_SET_UP, (self._role, commit, *limits, is_local))

    async def limit_idle(self, idle_ms: int) -> None:
        """Make the server end transactions of this handle that are idle for more than `idle_ms`."""
        self._idle_ms = str(idle_ms)
        await finished(self._drain(self._usable()))

    async def connect_apart(self) -> Connected:
        """Open a connection outside the pool; the caller must close it."""
        db = await AsyncConnection.connect(self.route.direct, **self._connecting)
        try:
            await self._configure(db)
        except BaseException:
            await db.close()
            raise
        return db

    def connect_blocking(self) -> Connection[Row]:
        """Open a connection for a thread, in a transaction with one snapshot of the namespace."""
        db = psycopg.connect(self.route.direct, connect_timeout=CONNECT_S)
        set_types(db)
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.read_only = True
        db.execute(*self._set_up(is_local=False))
        db.execute("SELECT set_config('statement_timeout', '0', true)")
        db.execute(_SET_NAMESPACE, (self.namespace,))
        return db

    # -- use

    async def ask(self, *statements: Statement) -> list[list[Row]]:
        """Run `statements` in one round trip; retry if the connection is lost.

        Use this method only for reads and idempotent statements.
        """
        try:
            return await self.ask_once(*statements)
        except StoreUnavailable as error:
            if not is_lost(error.__cause__):
                raise
        return await self.ask_once(*statements)

    async def ask_once(self, *statements: Statement) -> list[list[Row]]:
        """Run `statements` in one round trip, in their own transaction."""
        async with self.connection() as db:
            return await run_statements(db, self.namespace, statements)

    async def carry_out(self, statement: Statement) -> None:
        """Run a `statement` without a result in its own transaction."""
        async with self._lent() as db:
            if db.set_up is None:
                _check_answered(await db.shared_cursor.execute(*statement))
            else:
                await run_statements(db, self.namespace, (statement,))

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connected]:
        """Lend a connection of the pool, and map the errors in the block to store errors.

        Raises: StoreUnavailable if the store is closed; ``faults`` maps other errors.
        """
        async with self._lent() as db, db:
            yield db

    @asynccontextmanager
    async def _lent(self) -> AsyncGenerator[_PooledConnection]:
        pool = self._usable()
        self._calls += 1
        try:
            db = await self._take(pool)
            self._lent_now.add(db)
            try:
                yield db
            finally:
                self._lent_now.discard(db)
                await self._give_back(pool, db)
        except errors.LockNotAvailable as error:
            raise await lock_error(self.address, self.route.direct, CONNECT_S) from error
        except psycopg.Error as error:
            if is_lost(error) and not self._is_closed:
                await finished(self._drain(pool))
            raise meaning_of(error, self.address) from error
        finally:
            self._calls -= 1
            if not self._calls:
                self._is_idle.set()

    async def _take(self, pool: Pool) -> _PooledConnection:
        db, self._at_hand = self._at_hand, None
        if db is not None:
            return db
        self._waiting += 1
        try:
            db = await pool.getconn()
        finally:
            self._waiting -= 1
        return db

    async def _give_back(self, pool: Pool, db: _PooledConnection) -> None:
        """Cache `db`; if another call waits for a connection, return `db` to the pool instead.

        The pool itself lends the connection that was returned longest ago. Without the cached
        connection, calls would use all connections in turn, and every server process of this handle
        would read, plan and cache the same data. A call that is cancelled while psycopg begins a
        pipeline leaves its connection in pipeline mode: later statements would get no answer and
        never be committed. A connection inside a transaction is closed, because the pool would wait
        until the transaction ends. A cancelled call still returns its connection, which the pool
        would otherwise count as lent forever.
        """
        state = db.pgconn.transaction_status, db.pgconn.pipeline_status
        is_idle = state == (TransactionStatus.IDLE, PipelineStatus.OFF)
        if not is_idle:
            await db.close()
        now = time.monotonic()
        is_due = now - self._looked_at > LOOK_S
        if self._at_hand is None and is_idle and not (is_due or self._waiting or self._is_closed):
            self._at_hand = db
            return
        if is_due:
            self._looked_at = now
        await finished(pool.putconn(db))

    async def _drain(self, pool: Pool) -> None:
        """Close the pool's other connections, because most likely they are lost too."""
        db, self._at_hand = self._at_hand, None
        await pool.drain()
        if db is not None:
            await pool.putconn(db)

    def check_usable(self) -> None:
        """Raise StoreUnavailable in a forked child or another event loop, and after closing."""
        self._usable()

    def check_loop(self) -> bool:
        """Whether this process opened the store. Raises: StoreUnavailable in another event loop."""
        if self._process.is_this and running_loop() is not self._loop:
            raise StoreUnavailable(self.address, _OTHER_LOOP)
        return self._process.is_this

    def _usable(self) -> Pool:
        self._process.check()
        self.check_loop()
        if self._is_closed or self._pool is None:
            raise StoreUnavailable(self.address, "it was closed; open it again")
        return self._pool

    async def close(self) -> None:
        """Wait for running calls, then close every connection.

        Calls that still have no answer after `CLOSING_S` are cancelled on the server, because they
        probably wait for a lock.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            async with asyncio.timeout(CLOSING_S):
                await self._wait_idle()
        except TimeoutError:
            for lent in tuple(self._lent_now):
                with suppress(psycopg.Error):
                    await lent.cancel_safe(timeout=CONNECT_S)
            await self._wait_idle()
        db, self._at_hand = self._at_hand, None
        if self._pool is not None:
            with suppress(psycopg.Error):
                if db is not None:
                    await self._pool.putconn(db)
                await self._pool.close()

    async def _wait_idle(self) -> None:
        while self._calls:
            self._is_idle.clear()
            await self._is_idle.wait()


async def _connect(pool: Pool) -> None:
    """Open the first connection of `pool`. Raises: psycopg.Error."""
    try:
        await pool.open(wait=True, timeout=WAIT_S)
    except BaseException:  # the pool would go on connecting
        await pool.close()
        raise


async def _check_isolation(db: Connected, address: str) -> None:
    """Reject a database with a default isolation that transactions cannot change.

    Raises: ConfigError.
    """
    row = await (await db.execute("SHOW default_transaction_isolation")).fetchone()
    if row is not None and row[0] != "read committed":
        raise ConfigError(
            f"{address}: behind a pooler the default isolation level must be 'read committed', not "
            f"{row[0]!r}: ALTER ROLE … SET default_transaction_isolation = 'read committed'"
        )


class Transaction:
    """A transaction that its caller has begun on the connection `connected`.

    Calls inside the transaction must not borrow a second connection. If all connections were in
    use, calls that need a second connection would wait for each other forever.
    """

    def __init__(self, connected: Connected, namespace: str) -> None:
        self._connected = connected
        self.namespace = namespace

    async def ask(self, *statements: Statement) -> list[list[Row]]:
        """Run `statements` in one round trip."""
        return await run_statements(self._connected, self.namespace, statements)


async def run_statements(
    db: Connected, namespace: str, statements: Sequence[Statement]
) -> list[list[Row]]:
    """Run `statements` in `namespace` in one round trip.

    Outside of a transaction, the statements form one transaction, so all or none take effect.
    """
    set_up = db.set_up if isinstance(db, _PooledConnection) else None
    async with db.pipeline():
        if set_up is not None:
            await db.execute(*set_up)
        await db.execute(_SET_NAMESPACE, (namespace,))
        cursors = [await db.execute(*statement, binary=True) for statement in statements]
    for cursor in cursors:
        _check_answered(cursor)
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]


def _check_answered(cursor: AsyncCursor[Row]) -> None:
    """Raises: psycopg.OperationalError if the server's answer was not read."""
    if cursor.pgresult is None:
        raise psycopg.OperationalError("the connection ended before the server's answer")
