"""The base class of all errors of perdure."""

from __future__ import annotations

from typing import ClassVar


class PerdureError(Exception):
    """Base class of all errors of perdure.

    ``code`` is stable across releases. ``retryable`` means that the same call may succeed later
    without changes by the caller.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the message and the facts, because the constructors do not take the message."""
        return _restored, (type(self), self.args), dict(vars(self))

    def facts(self) -> dict[str, object]:
        """Return name and value of every fact of the error, for ``--json`` and logs."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


def _restored(kind: type[PerdureError], args: tuple[object, ...]) -> PerdureError:
    return kind.__new__(kind, *args)
