"""Numbers that callers give: what can be a count, a limit, a budget or a place in a log."""

from __future__ import annotations

MOST = 2**63 - 1
"""The greatest number that every store can be asked about."""


def amount(name: str, value: int | None, *, least: int = 0) -> None:
    """Refuse `value`, the argument `name`, unless it is None or a whole number from `least` on.

    Raises: ValueError, which does not repeat the number: it may have thousands of digits;
    TypeError for what is no whole number.
    """
    if value is None:
        return
    if not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance] - a store would cut 1.5 off, or call itself unavailable
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
    if not least <= value <= MOST:
        raise ValueError(f"{name} is a whole number from {least:,} to {MOST:,}")
