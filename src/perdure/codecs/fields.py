"""Read the fields of records by type; a value of an unexpected type counts as missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from perdure.codecs.times import time_of

Fields = dict[str, Any]
"""A JSON object as read. Access its values only through this module."""

_EXACT = 2**53
_NUMBERS = (int, float)


def fields_of(value: object) -> Fields | None:
    """Return `value` if it is a JSON object."""
    return cast("Fields", value) if isinstance(value, dict) else None


def object_in(fields: Fields, key: str) -> Fields | None:
    """Return the JSON object at `key`."""
    value = fields.get(key)  # called for every line, so the functions here avoid further calls
    return cast("Fields", value) if isinstance(value, dict) else None


def list_in(fields: Fields, key: str) -> list[object] | None:
    """Return the JSON array at `key`."""
    value = fields.get(key)
    return cast("list[object]", value) if isinstance(value, list) else None


def text_in(fields: Fields, key: str) -> str | None:
    """Return the string at `key`."""
    value = fields.get(key)
    return value if isinstance(value, str) else None


def name_in(fields: Fields, key: str) -> str | None:
    """Return the string at `key`, if it is not empty."""
    value = fields.get(key)
    return value if isinstance(value, str) and value else None


def flag_in(fields: Fields, key: str, *, default: bool = False) -> bool:
    """Return the boolean at `key`."""
    value = fields.get(key)
    return value if isinstance(value, bool) else default


def number_in(fields: Fields, key: str) -> float | None:
    """Return the number at `key`."""
    value = fields.get(key)
    return (
        value if isinstance(value, _NUMBERS) and value is not True and value is not False else None
    )


def count_in(fields: Fields, key: str) -> int:
    """Return the number at `key`, rounded to a whole number; 0 if it is negative or missing."""
    value = fields.get(key)
    if type(value) is int and 0 <= value < _EXACT:  # fast path: every usage has several
        return value
    number = number_in(fields, key)
    return max(0, round(number)) if number is not None and _is_exact(number) else 0


def counts_in(fields: Fields, keys: Iterable[str]) -> list[int]:
    """Return the numbers at `keys` as counts."""
    counts: list[int] = []
    for key in keys:
        value = fields.get(key)
        if type(value) is int and 0 <= value < _EXACT:
            counts.append(value)
        else:
            counts.append(count_in(fields, key))
    return counts


def texts_in(fields: Fields, key: str) -> tuple[str, ...]:
    """Return the strings of the array at `key`."""
    return tuple(item for item in list_in(fields, key) or () if isinstance(item, str))


def time_in(fields: Fields, key: str) -> int | None:
    """Return the time at `key`, given as ISO 8601 text or milliseconds, in Unix milliseconds.

    Shape: a text without an offset is taken as UTC.
    """
    value = fields.get(key)
    if isinstance(value, str):
        return time_of(value)
    number = number_in(fields, key)
    return round(number) if number is not None and _is_exact(number) else None


def seconds_in(fields: Fields, key: str) -> int | None:
    """Return the number of seconds at `key` as Unix milliseconds."""
    number = number_in(fields, key)
    return round(number * 1000) if number is not None and _is_exact(number * 1000) else None


def _is_exact(number: float) -> bool:
    return -_EXACT < number < _EXACT
