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
