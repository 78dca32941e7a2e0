"""Errors of callers: arguments that a function does not accept."""

from __future__ import annotations

from perdure.errors.engine import ConfigError
from perdure.errors.root import PerdureError


class WrongArgument(PerdureError, TypeError, ValueError):
    """A function received an argument of the wrong type or value; nothing was done.

    The error is also a ``TypeError`` and a ``ValueError``. `argument` is the name of the argument,
    and `takes` describes the accepted values.
    """

    code = "wrong_argument"

    def __init__(
        self, message: str, *, argument: str | None = None, takes: str | None = None
    ) -> None:
        super().__init__(message)
        self.argument = argument
        self.takes = takes


class NotAsyncio(PerdureError, RuntimeError):
    """A coroutine of perdure was awaited without an asyncio event loop; nothing was done."""

    code = "not_asyncio"

    def __init__(self) -> None:
        super().__init__(
            "perdure runs on asyncio, and no asyncio event loop is running here; under trio or "
            "curio, call perdure.blocking from a worker thread"
        )


class LimitExceeded(ConfigError):
    """Input exceeds a limit; the input beyond the limit was not read.

    `limit` is the name of the limit, and `most` is the highest allowed value.
    """

    code = "limit_exceeded"

    def __init__(self, what: str, limit: str, most: float) -> None:
        super().__init__(f"{what} exceeds limits.{limit} = {most:,}; raise that limit if needed")
        self.what = what
        self.limit = limit
        self.most = most
