"""The artifacts sent along each edge of a flow; lookups and additions take constant time."""

from __future__ import annotations

from perdure.session.flows.distinct import Distinct, own_places

Along = dict[str, tuple[str, ...]]
"""Edge key -> the artifacts (or their hashes) that were sent along that edge."""

_Found = dict[str, list[str]]
"""Item -> the keys of the edges along which the item may have been sent, oldest first."""


class Indexed(Along):
    """A map from edges to their items that finds the edges of an item without scanning every edge.

    A map and all maps that were extended from it share the table `found`. The table maps an item to
    every edge along which the item was sent in any map that shares the table.
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
    """Collects the artifacts sent along edges during one fold; mutable, used by this fold only."""

    def __init__(self, before: Along) -> None:
        self._before = before
        self._growing: dict[str, _GrowingHistory] = {}
        self._added: list[tuple[str, str]] = []

    def add(self, key: str, item: str) -> None:
        """Add `item` to the edge `key` unless the edge already has the item."""
        growing = self._growing.get(key)
        if growing is None:
            growing = self._growing[key] = _GrowingHistory(self._before.get(key, ()))
        if growing.add(item):
            self._added.append((key, item))

    def after(self) -> Along:
        """Return the artifacts sent along the edges so far."""
        if not self._growing:
            return self._before
        before = self._before
        found = before.found if isinstance(before, Indexed) else _edges_by_item(before)
        for key, item in self._added:
            found.setdefault(item, []).append(key)
        self._added.clear()
        grown = {key: each.to_distinct() for key, each in self._growing.items()}
        return Indexed(before | grown, found)


class _GrowingHistory:
    def __init__(self, items: tuple[str, ...]) -> None:
        self._places = own_places(items)
        self._items = [*items]

    def add(self, item: str) -> bool:
        """Add `item`, and return whether it is new."""
        if item in self._places:
            return False
        self._places[item] = len(self._items)
        self._items.append(item)
        return True

    def to_distinct(self) -> Distinct:
        return Distinct(self._items, self._places)


def _edges_by_item(along: Along) -> _Found:
    found: _Found = {}
    for key, items in along.items():
        for item in items:
            found.setdefault(item, []).append(key)
    return found
