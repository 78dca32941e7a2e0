"""A sequence composed of other sequences, without copies."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import TypeVar, cast, overload

T = TypeVar("T")


class Joined(Sequence[T]):
    """An immutable sequence of the items of `parts`, one part after the other, without copies.

    A `Joined` equals a tuple of the same items.
    """

    __slots__ = ("_ends", "_parts")
    __hash__ = None  # pyright: ignore[reportAssignmentType] - as of a list, it is never a key

    def __init__(self, parts: Sequence[tuple[T, ...]]) -> None:
        self._parts = tuple(part for part in parts if part)
        self._ends = tuple(accumulate(map(len, self._parts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._parts)

    def __reversed__(self) -> Iterator[T]:
        return chain.from_iterable(map(reversed, reversed(self._parts)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Joined, tuple)):
            return NotImplemented
        return tuple(self) == tuple(cast("Sequence[object]", other))

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[T, ...]: ...
    def __getitem__(self, place: int | slice) -> T | tuple[T, ...]:
        if isinstance(place, int):
            at = place + len(self) if place < 0 else place
            if not 0 <= at < len(self):
                raise IndexError(place)
            part = bisect_right(self._ends, at)
            return self._parts[part][at - self._start(part)]
        start, stop, step = place.indices(len(self))
        if step != 1:
            return tuple(self)[place]
        parts = range(bisect_right(self._ends, start), len(self._parts))
        return tuple(
            chain.from_iterable(
                self._parts[part][max(0, start - first) : max(0, stop - first)]
                for part in parts
                if (first := self._start(part)) < stop
            )
        )

    def agrees(self, other: Joined[T], count: int) -> bool:
        """Return True if the first `count` items of this sequence and of `other` are equal.

        The comparison is fast if the two sequences share parts.
        """
        start = 0
        for mine, its in zip(self._parts, other._parts, strict=False):
            if mine is not its:
                break
            start += len(mine)
        return start >= count or self[start:count] == other[start:count]

    def _start(self, part: int) -> int:
        return self._ends[part - 1] if part else 0
