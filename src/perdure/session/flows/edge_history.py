"""The artifacts sent along each edge of a flow; lookups and additions take constant time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

Along = dict[str, tuple[str, ...]]
"""Edge key -> what was sent along it."""

_Found = dict[str, list[str]]
"""Item -> the keys of the edges along which it may have been sent, oldest first."""


class Passed(tuple[str, ...]):
    """What was sent along an edge, each once, oldest first: a tuple with constant-time lookup.

    Tuples that were extended from each other share their lookup table: each contains the items
    whose position is within its length.
    """

    places: dict[str, int]

    def __new__(cls, items: Iterable[str], places: dict[str, int] | None = None) -> Self:
        made = super().__new__(cls, items)
        made.places = _positions(made) if places is None else places
        return made

    def __contains__(self, item: object) -> bool:
        return isinstance(item, str) and self.places.get(item, len(self)) < len(self)


class Indexed(Along):
    """An `Along` that finds the edges of an item without a look at every edge.

    Those that were extended from each other share `found`: it may name edges along which only
    another of them sent the item.
    """

    def __init__(self, along: Along, found: _Found) -> None:
        super().__init__(along)
        self.found = found


def newest_edge_with(along: Along, item: str) -> str | None:
    """Return the key of the edge along which `item` was sent last; None if there is none."""
    found = along.found if isinstance(along, Indexed) else _edges_by_item(along)
    keys = reversed(found.get(item, ()))
    return next((key for key in keys if item in along.get(key, ())), None)


class EdgeHistory:
    """What was sent along edges during a fold; mutable, because it is not shared yet."""

    def __init__(self, before: Along) -> None:
        self._before = before
        self._growing: dict[str, _GrowingHistory] = {}
        self._added: list[tuple[str, str]] = []

    def add(self, key: str, item: str) -> None:
        """Add `item` to the edge `key` unless it is already there."""
        growing = self._growing.get(key)
        if growing is None:
            growing = self._growing[key] = _GrowingHistory(self._before.get(key, ()))
        if growing.add(item):
            self._added.append((key, item))

    def after(self) -> Along:
        """Return what has been sent along the edges so far."""
        if not self._growing:
            return self._before
        before = self._before
        found = before.found if isinstance(before, Indexed) else _edges_by_item(before)
        for key, item in self._added:
            found.setdefault(item, []).append(key)
        self._added.clear()
        grown = {key: each.to_passed() for key, each in self._growing.items()}
        return Indexed(before | grown, found)


class _GrowingHistory:
    def __init__(self, items: tuple[str, ...]) -> None:
        places = items.places if isinstance(items, Passed) else _positions(items)
        # Others may have extended `items` since: the shared table is theirs then.
        self._places = places if len(places) == len(items) else _positions(items)
        self._items = [*items]

    def add(self, item: str) -> bool:
        """Add `item`, and return whether it is new."""
        if item in self._places:
            return False
        self._places[item] = len(self._items)
        self._items.append(item)
        return True

    def to_passed(self) -> Passed:
        return Passed(self._items, self._places)


def _positions(items: Iterable[str]) -> dict[str, int]:
    return {item: place for place, item in enumerate(items)}


def _edges_by_item(along: Along) -> _Found:
    found: _Found = {}
    for key, items in along.items():
        for item in items:
            found.setdefault(item, []).append(key)
    return found
