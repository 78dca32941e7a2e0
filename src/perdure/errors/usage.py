"""What a program gives that no function of perdure takes."""

from __future__ import annotations

from perdure.errors.root import PerdureError


class WrongArgument(PerdureError, TypeError, ValueError):
    """A function was given something else than it takes; nothing was done.

    It is a ``TypeError`` and a ``ValueError``, too. `argument` is what it was given as, `takes`
    what it takes there.
    """

    code = "wrong_argument"

    def __init__(
        self, message: str, *, argument: str | None = None, takes: str | None = None
    ) -> None:
        super().__init__(message)
        self.argument = argument
        self.takes = takes


class NotAsyncio(PerdureError, RuntimeError):
    """A coroutine of perdure was awaited where no event loop of asyncio runs; nothing was done."""

    code = "not_asyncio"

    def __init__(self) -> None:
        super().__init__(
            "perdure runs on asyncio, and no asyncio event loop is running here; under trio or "
            "curio, call perdure.blocking from a worker thread"
        )
