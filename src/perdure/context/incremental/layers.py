"""A sequence that is often extended and rarely read from its start.

It consists of layers, each at least as long as the next. New items are merged with the shorter
layers before them, so that an item is copied once per doubling of the sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

from perdure.session.sequences import Joined

T = TypeVar("T")

MOST_COPIED = 2_048
"""Up to this many items, a full read copies the sequence into one tuple."""


class Layers(msgspec.Struct, Generic[T], frozen=True):
    """The items of `layers`, one layer after the other. A value."""

    layers: tuple[tuple[T, ...], ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.layers))

    def __iter__(self) -> Iterator[T]:
        for layer in self.layers:
            yield from layer

    def and_then(self, more: tuple[T, ...]) -> Layers[T]:
        """Return these items, and `more` after them."""
        layers = list(self.layers)
        while layers and len(layers[-1]) <= len(more):
            more = layers.pop() + more
        return Layers((*layers, more)) if more else self

    def whole(self, more: tuple[T, ...] = ()) -> tuple[T, ...]:
        """Return all items, and `more` after them."""
        for layer in reversed(self.layers):
            more = layer + more
        return more

    def concat(self, more: tuple[T, ...] = ()) -> Sequence[T]:
        """Return all items, and `more` after them; long sequences are not copied."""
        if len(self) < MOST_COPIED:
            return self.whole(more)
        return Joined((*self.layers, more) if more else self.layers)

    def after(self, place: int) -> tuple[T, ...]:
        """Return the items after `place`; the cost depends on the result only."""
        found: tuple[T, ...] = ()
        start = len(self)
        for layer in reversed(self.layers):
            start -= len(layer)
            if start <= place:
                return layer[place + 1 - start :] + found
            found = layer + found
        return found
