"""The root of everything perdure raises."""

from __future__ import annotations

from typing import ClassVar


class PerdureError(Exception):
    """Root of everything perdure raises.

    ``code`` is stable across releases. ``retryable`` says that the same call may succeed later
    without the caller changing anything.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def facts(self) -> dict[str, object]:
        """Name and value of every fact the error carries, for ``--json`` and logs."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}
