"""A tuple of distinct strings; lookups and additions do not scan the tuple."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self


class Distinct(tuple[str, ...]):
    """A tuple of distinct strings, oldest first, with constant-time lookup.

    A tuple and a tuple that extends it can share one lookup table. The lookup table maps each item
    to its position; a tuple contains an item if the position is below the tuple's length.
    """

    places: dict[str, int]

    def __new__(cls, items: Iterable[str] = (), places: dict[str, int] | None = None) -> Self:
        made = super().__new__(cls, items)
        made.places = positions(made) if places is None else places
        return made

    def __contains__(self, item: object) -> bool:
        return isinstance(item, str) and self.places.get(item, len(self)) < len(self)

    def has_all(self, items: Iterable[str]) -> bool:
        """Return True if the tuple contains each of `items`."""
        return all(item in self for item in items)

    def plus(self, item: str) -> Distinct:
        """Return this tuple with `item` added, unless it already contains the item."""
        if item in self:
            return self
        places = own_places(self)
        places[item] = len(self)
        return Distinct((*self, item), places)

    def without(self, *gone: str) -> Distinct:
        """Return this tuple without the strings `gone`."""
        if not any(item in self for item in gone):
            return self
        return Distinct(item for item in self if item not in gone)


def distinct(items: tuple[str, ...]) -> Distinct:
    """Return `items` as a `Distinct`, which has constant-time lookup."""
    return items if isinstance(items, Distinct) else Distinct(items)


def own_places(items: tuple[str, ...]) -> dict[str, int]:
    """Return a lookup table of `items` that can be extended.

    If `items` is a `Distinct` whose table contains only its own items, the result is that table.
    Otherwise (`items` is a plain tuple, or a longer tuple has added items to the table), the result
    is a new table.
    """
    if isinstance(items, Distinct) and len(items.places) == len(items):
        return items.places
    return positions(items)


def positions(items: Iterable[str]) -> dict[str, int]:
    """Return a map from each item of `items` to its position."""
    return {item: place for place, item in enumerate(items)}
