"""Validation of numbers that callers pass: counts, limits, budgets and positions in a log."""

from __future__ import annotations

from perdure.errors import WrongArgument

MOST = 2**63 - 1
"""The greatest number that every store accepts in a request."""


def amount(name: str, value: int | None, *, least: int = 0) -> None:
    """Reject the argument `name` unless `value` is None or an integer of at least `least`.

    Raises: WrongArgument; its message omits the number, which can have thousands of digits.
    """
    if value is None:
        return
    if not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance] - a store would cut 1.5 off, or call itself unavailable
        raise WrongArgument(
            f"{name} is a whole number, not {type(value).__name__}", argument=name, takes="int"
        )
    if not least <= value <= MOST:
        raise WrongArgument(f"{name} is a whole number from {least:,} to {MOST:,}", argument=name)
