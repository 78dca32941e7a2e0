"""What was sent along each edge of a flow; look-ups and additions take constant time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

Along = dict[str, tuple[str, ...]]
"""What went along edges, by the key of each."""


class Passed(tuple[str, ...]):
    """What went along an edge, each once, the oldest first: a tuple that knows what it holds.

    Those that grew out of one another share their places: each holds what is placed within it.
    """

    places: dict[str, int]

    def __new__(cls, items: Iterable[str], places: dict[str, int] | None = None) -> Self:
        made = super().__new__(cls, items)
        made.places = _positions(made) if places is None else places
        return made

    def __contains__(self, item: object) -> bool:
        return isinstance(item, str) and self.places.get(item, len(self)) < len(self)


class EdgeHistory:
    """What was sent along edges while a log is folded; not shared yet, so it grows in place."""

    def __init__(self, before: Along) -> None:
        self._before = before
        self._growing: dict[str, _GrowingHistory] = {}

    def add(self, key: str, item: str) -> None:
        """Add `item` to what went along the edge `key`, where it is new."""
        growing = self._growing.get(key)
        if growing is None:
            growing = self._growing[key] = _GrowingHistory(self._before.get(key, ()))
        growing.add(item)

    def after(self) -> Along:
        """What has gone along edges by now."""
        if not self._growing:
            return self._before
        return self._before | {key: each.to_passed() for key, each in self._growing.items()}


class _GrowingHistory:
    def __init__(self, items: tuple[str, ...]) -> None:
        places = items.places if isinstance(items, Passed) else _positions(items)
        # Where others grew out of `items` since, the places are theirs.
        self._places = places if len(places) == len(items) else _positions(items)
        self._items = [*items]

    def add(self, item: str) -> None:
        if item not in self._places:
            self._places[item] = len(self._items)
            self._items.append(item)

    def to_passed(self) -> Passed:
        return Passed(self._items, self._places)


def _positions(items: Iterable[str]) -> dict[str, int]:
    return {item: place for place, item in enumerate(items)}
