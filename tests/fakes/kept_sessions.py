"""Sessions of a PostgreSQL server that one connection after the other uses.

A new session takes 5 CPU-milliseconds, and 10 more for its first statements, which read the
catalog. Like a connection pooler, this module resets a session at the end of each connection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from psycopg import AsyncConnection, Connection
from psycopg.pq import ConnStatus, ExecStatus, PGconn, PipelineStatus, TransactionStatus


class KeptSessions:
    """The sessions that no connection uses, by the parameters of their connection."""

    def __init__(self) -> None:
        self._free: defaultdict[str, list[Any]] = defaultdict(list)

    @contextmanager
    def used(self) -> Generator[None]:
        """Inside the block, connections use free sessions, and return their session at their end.

        A session that is in a transaction or a pipeline, or that is lost, ends with its connection.
        """
        any_connection: Any = AsyncConnection
        connect: Callable[..., Generator[Any, Any, Any]] = any_connection._connect_gen.__func__
        close, close_blocking = AsyncConnection.close, Connection.close

        def connected(kind: Any, parameters: str = "") -> Generator[Any, Any, Any]:
            session = self._take(parameters)
            made: Any = kind(session) if session else (yield from connect(kind, parameters))
            made.parameters = parameters
            return made

        async def keep(connection: AsyncConnection[Any]) -> None:
            if not self._is_kept(connection):
                await close(connection)

        def keep_blocking(connection: Connection[Any]) -> None:
            if not self._is_kept(connection):
                close_blocking(connection)

        with pytest.MonkeyPatch.context() as patch:
            for kind in (AsyncConnection, Connection):
                patch.setattr(kind, "_connect_gen", classmethod(connected))
            patch.setattr(AsyncConnection, "close", keep)
            patch.setattr(Connection, "close", keep_blocking)
            yield

    def _take(self, parameters: str) -> Any:
        """Return a free session that the server has not ended, or None."""
        with suppress(IndexError):
            while True:
                session = self._free[parameters].pop()
                if session.exec_(b"").status == ExecStatus.EMPTY_QUERY:
                    return session
        return None

    def _is_kept(self, connection: Any) -> bool:
        session = connection.pgconn
        parameters: str = getattr(connection, "parameters", "")
        is_free = (
            bool(parameters)
            and session.status == ConnStatus.OK
            and session.transaction_status == TransactionStatus.IDLE
            and session.pipeline_status == PipelineStatus.OFF
            and session.exec_(b"DISCARD ALL").status == ExecStatus.COMMAND_OK
        )
        if is_free:
            while session.notifies():
                pass
            connection.pgconn = PGconn()  # a closed one
            self._free[parameters].append(session)
        return is_free
