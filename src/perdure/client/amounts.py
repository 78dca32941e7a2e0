"""Numbers that callers give: what can be a count, a limit, a budget or a place in a log."""

from __future__ import annotations

MOST = 2**63 - 1
"""The greatest number that every store can be asked about."""


def amount(name: str, value: int | None, *, least: int = 0) -> None:
    """Refuse `value`, the argument `name`, unless it is None or a whole number from `least` on.

    Raises: ValueError, which does not repeat the number: it may have thousands of digits.
    """
    if value is not None and not least <= value <= MOST:
        raise ValueError(f"{name} is a whole number from {least:,} to {MOST:,}")
