"""Vectors of texts: of which model, how they are stored, and those of a corpus in memory.

A stored vector has a signed byte for each number: the largest is 127. Only its direction counts, so
that nothing else is needed to compare it with others.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from perdure.stores.scan import Found

MOST_NUMBERS = 8_192
"""Numbers of a vector; no known model has more."""

_LARGEST = 127

EMBEDDED = frozenset(("user", "assistant", "tool", "custom"))
"""Roles of the texts that get a vector: those that are recalled."""


class VectorModel(NamedTuple):
    """What made a vector: the name of the model, and how many numbers its vectors have."""

    name: str
    dimension: int


class VectorState(NamedTuple):
    """The vectors of a model in a namespace.

    `number` names the model in the store, 0 if it has no vectors. Texts up to position `upto` have
    one, or need none. `size` is their number, where it was asked for.
    """

    number: int = 0
    upto: int = 0
    size: int = 0


class Unembedded(NamedTuple):
    """The next texts without a vector in the order of the log, each with the mark after it.

    `before` is the mark before the first, `end` the mark after everything that was read.
    """

    before: int
    texts: Sequence[tuple[Found, int]]
    end: int


class VectorRows(Protocol):
    """The vectors of one namespace; the methods that change them run in a transaction."""

    async def state(self, model: VectorModel) -> VectorState:
        """Return the state of a model, without its size."""
        ...

    async def states(self) -> dict[VectorModel, VectorState]:
        """Return all models with their states."""
        ...

    async def after(self, number: int, position: int, most: int) -> Sequence[tuple[int, bytes]]:
        """Return the next `most` vectors of a model after `position`, ascending by position."""
        ...

    async def add(self, model: VectorModel, upto: int, rows: Mapping[int, bytes]) -> None:
        """Add vectors by position, and move the mark of the model to `upto`."""
        ...

    async def remove(self, positions: Sequence[int]) -> None:
        """Remove the vectors at `positions`, of every model."""
        ...

    async def drop(self, model: VectorModel) -> None:
        """Remove a model with all its vectors."""
        ...


class Vectors:
    """The vectors of one model for the texts of a corpus.

    Shape: `rows` has `dimension` signed bytes for each text, zeros where a vector is missing.
    `scales` are 1 / length of each vector (0: missing), and `windows` the lengths of each vector
    with those of its neighbours; `perdure.memory.similarity` computes both. `new` are texts whose
    vector, `moved` those whose neighbours changed since. `upto` is the last position that was read.
    """

    def __init__(self, number: int, dimension: int) -> None:
        self.number = number
        self.dimension = dimension
        self.upto = 0
        self.rows = bytearray()
        self.scales = array("f")
        self.windows = array("f")
        self.new: set[int] = set()
        self.moved: set[int] = set()

    def resize(self, count: int) -> None:
        """Make room for `count` texts."""
        more = count - len(self.scales)
        self.rows.extend(bytes(more * self.dimension))
        self.scales.frombytes(bytes(more * self.scales.itemsize))
        self.windows.frombytes(bytes(more * self.windows.itemsize))

    def put(self, position: int, text: int, body: bytes) -> None:
        """Set the vector of the text at `position`. Ignores that of no text, and damage."""
        self.upto = position
        if text >= 0 and len(body) == self.dimension:
            start = text * self.dimension
            self.rows[start : start + self.dimension] = body
            self.new.add(text)


def stored(vector: Sequence[float]) -> bytes:
    """Return `vector` as it is stored. Raises: ValueError for one that is not finite, or zero."""
    largest = max(map(abs, vector), default=0.0)
    if not 0 < largest < float("inf"):
        raise ValueError("the vector has no direction")
    return array("b", [round(each / largest * _LARGEST) for each in vector]).tobytes()


def to_embed(found: Iterable[tuple[Found, int]]) -> list[tuple[Found, int]]:
    """Return those of the texts that get a vector."""
    return [each for each in found if each[0].entry is not None and each[0].what.role in EMBEDDED]
