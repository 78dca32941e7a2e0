"""Map PostgreSQL's errors to store errors in one table, so that no psycopg error leaves the store.

The store's own SQL functions raise some conditions that are not faults. `STALE` means that a stream
changed between reading and writing. `TAKEN` means that an idempotency key exists already. `ERASED`
means that the origin of a fork was erased. `GONE` means that the origin was removed. `OVER_QUOTA`
means that a quota is exceeded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, LiteralString

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from perdure.errors import (
    Erased,
    InvalidEntry,
    PerdureError,
    QuotaExceeded,
    SessionNotFound,
    StoreCorrupt,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)

STALE = "PD001"
TAKEN = "PD002"
ERASED = "PD004"
OVER_QUOTA = "PD005"
GONE = "PD006"

_PASSING = ("08", "25P03", "40", "53", "55P03", "57")
"""SQLSTATEs of errors whose cause may end by itself: a lost connection, a process that was stopped
inside a transaction, a conflict, a lock, or a server that is full, stopping, starting or too slow.
"""

_UNREACHED = ("connection failed", "connection is bad", "failed to resolve host")
"""How a psycopg message begins if no server answered; a message with ``FATAL`` is an answer."""

_HOLDER: LiteralString = """
SELECT a.pid, a.application_name, coalesce(host(a.client_addr), 'this machine'),
    to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.granted AND a.pid <> pg_backend_pid() AND a.xact_start < now() - interval '1 second'
    AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock') AND a.wait_event_type
        IS DISTINCT FROM 'Lock' AND a.datname = current_database()
    AND (l.locktype = 'advisory' OR l.relation IN (
        SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace('perdure')))
ORDER BY a.xact_start LIMIT 1
"""

Meaning = Callable[[str, str], PerdureError]


def _unavailable(reason: str) -> Meaning:
    return lambda store, _: StoreUnavailable(store, reason)


def _in_its_words(store: str, words: str) -> PerdureError:
    return StoreUnavailable(store, words)


MEANINGS: tuple[tuple[type[psycopg.Error], Meaning], ...] = (
    (PoolClosed, _unavailable("it is closed")),
    (PoolTimeout, _unavailable("no connection became free in time, or the server is down")),
    (TooManyRequests, _unavailable("too many calls wait for a connection")),
    (errors.ReadOnlySqlTransaction, lambda store, _: StoreReadOnly(store)),
    (errors.DiskFull, lambda store, _: StoreFull(store)),
    (errors.DataCorrupted, StoreCorrupt),
    (errors.IndexCorrupted, StoreCorrupt),
    (errors.UndefinedTable, StoreCorrupt),  # the program's SQL is fixed: the schema has changed
    (errors.UndefinedColumn, StoreCorrupt),
    (errors.UndefinedFunction, StoreCorrupt),
    (
        errors.InsufficientPrivilege,
        lambda store, words: StoreUnavailable(
            store, f"{words}; grant the role perdure_app to the user (docs/guides/postgres.md)"
        ),
    ),
    (
        errors.ProgramLimitExceeded,
        lambda _, __: InvalidEntry("it is larger than a database row or key can be"),
    ),
    (errors.TooManyConnections, _unavailable("the server has no connection left")),
    (errors.OutOfMemory, _unavailable("the server has no memory left")),
    (
        errors.LockNotAvailable,
        lambda store, _: StoreLocked(
            store, "other processes kept the session locked for too long", "try again"
        ),
    ),
    (errors.QueryCanceled, _unavailable("the server took too long (statement_timeout)")),
    (errors.DeadlockDetected, _unavailable("too many others wrote to the same sessions")),
    (errors.InvalidPassword, _unavailable("the server refuses this user or password")),
    (
        errors.InvalidAuthorizationSpecification,
        _unavailable("the server refuses this user or password"),
    ),
    (errors.InvalidCatalogName, _in_its_words),
)
"""Maps a psycopg error class to a function that makes the store error from the message."""


REFUSALS: dict[str, Callable[[str], PerdureError]] = {
    ERASED: Erased,
    OVER_QUOTA: QuotaExceeded,
    GONE: SessionNotFound,
}
"""Maps a condition of the store's own functions to a function that makes the caller's error."""


def meaning_of(error: psycopg.Error, store: str) -> PerdureError:
    """Map `error`, raised while using `store`, to a store error."""
    words = _words_of(error)
    if words.startswith(_UNREACHED) and "FATAL" not in words:
        words += "; is the server running? Check host and port of its address"
    refusal = REFUSALS.get(error.sqlstate or "")
    if refusal is not None:
        return refusal(words)
    found = (meaning for kind, meaning in MEANINGS if isinstance(error, kind))
    meant = next(found, _in_its_words)(store, words)
    if isinstance(meant, StoreUnavailable):
        meant.is_lasting = not is_passing(error)
    return meant


def is_lost(error: BaseException | None) -> bool:
    """Whether the connection is lost or the server shuts down; a new connection may work."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    if isinstance(error, PoolClosed | PoolTimeout | TooManyRequests):
        return False
    state = error.sqlstate or ""
    return not state or state.startswith(("08", "57P"))


def is_passing(error: psycopg.Error) -> bool:
    """Whether the cause of `error` may end by itself, so that waiting and a retry may help.

    The result is also True for an operational error without an SQLSTATE, which libpq omits while it
    connects.
    """
    state = error.sqlstate
    return state.startswith(_PASSING) if state else isinstance(error, psycopg.OperationalError)


def state_of(error: BaseException | None) -> str | None:
    """Return the SQLSTATE of a server error."""
    return error.sqlstate if isinstance(error, psycopg.Error) else None


def is_worth_another(error: BaseException | None) -> bool:
    """Return True if `error` means that nothing was written and a retry may succeed."""
    return state_of(error) in (STALE, TAKEN) or isinstance(
        error, errors.DeadlockDetected | errors.SerializationFailure
    )


def _words_of(error: psycopg.Error) -> str:
    """Return the first line of the server's message; if there is none, of the driver's message."""
    primary = error.diag.message_primary
    words = primary or str(error).strip() or type(error).__name__
    return words.splitlines()[0].rstrip(".")


async def lock_error(store: str, direct: str, connect_s: int) -> StoreLocked:
    """Return the error after a lock timeout; the error names the lock's owner if it is known."""
    row: tuple[Any, ...] | None = None
    with suppress(psycopg.Error):
        async with await psycopg.AsyncConnection.connect(
            direct, autocommit=True, connect_timeout=connect_s
        ) as db:
            row = await (await db.execute(_HOLDER)).fetchone()
    if row is None:
        held = "other processes kept the session locked for too long"
        return StoreLocked(store, held, "try again")
    pid, name, host, since = row
    return StoreLocked(
        store,
        f"the connection of {name or 'another program'} from {host} (server process {pid}) "
        f"has held a lock since {since} UTC",
        "continue or end that program, then try again",
    )
