"""Vectors of texts: their models, their stored form, and the vectors of a corpus in memory.

A stored vector has one signed byte for each number. Each vector is scaled so that its largest
absolute value is 127. Only the direction of a vector matters, so bytes are sufficient for comparing
vectors.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from perdure.stores.scan import Found

MOST_NUMBERS = 8_192
"""Maximum dimension of a vector; no known model has more."""

_LARGEST = 127

EMBEDDED = frozenset(("user", "assistant", "tool", "custom"))
"""Roles of the texts that get a vector: those that are recalled."""


class VectorModel(NamedTuple):
    """The origin of a vector: the name of the model, and the dimension of its vectors."""

    name: str
    dimension: int


class VectorState(NamedTuple):
    """The vectors of a model in a namespace.

    `number` identifies the model in the store; it is 0 if the model has no vectors. Texts up to
    position `upto` have a vector, or do not need one. `size` is the number of vectors, if
    requested.
    """

    number: int = 0
    upto: int = 0
    size: int = 0


class Unembedded(NamedTuple):
    """The next texts without a vector, in the order of the log.

    `texts` are pairs of a text and the position of the log after the text. `before` is the position
    before the first text, and `end` is the position up to which the log was read.
    """

    before: int
    texts: Sequence[tuple[Found, int]]
    end: int


class VectorRows(Protocol):
    """The vectors of one namespace; the methods that change them run in a transaction."""

    async def state(self, model: VectorModel) -> VectorState:
        """Return the state of a model, without the number of its vectors."""
        ...

    async def states(self) -> dict[VectorModel, VectorState]:
        """Return all models with their states."""
        ...

    async def after(self, number: int, position: int, most: int) -> Sequence[tuple[int, bytes]]:
        """Return the next `most` vectors of a model after `position`, ascending by position."""
        ...

    async def add(self, model: VectorModel, upto: int, rows: Mapping[int, bytes]) -> None:
        """Add vectors by position, and record that the log was read up to `upto` for the model."""
        ...

    async def remove(self, positions: Sequence[int]) -> None:
        """Remove the vectors at `positions`, of every model."""
        ...

    async def drop(self, model: VectorModel) -> None:
        """Remove a model with all its vectors."""
        ...


class Vectors:
    """The vectors of one model for the texts of a corpus.

    Shape: `rows` has `dimension` signed bytes for each text; the bytes are zeros if a vector is
    missing. `scales` has 1 / length of each vector, or 0 for a missing vector. For each text,
    `windows` has the length of a combined vector: the weighted sum of the vectors of the text and
    its neighbours. `perdure.memory.similarity` computes `scales` and `windows`. `new` are texts
    with a new vector; `moved` are texts whose neighbours changed. `upto` is the last position that
    was read.
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
        """Allocate room for `count` texts."""
        more = count - len(self.scales)
        self.rows.extend(bytes(more * self.dimension))
        self.scales.frombytes(bytes(more * self.scales.itemsize))
        self.windows.frombytes(bytes(more * self.windows.itemsize))

    def put(self, position: int, text: int, body: bytes) -> None:
        """Set the vector of the text at `position`.

        The call ignores unknown positions and damaged vectors.
        """
        self.upto = position
        if text >= 0 and len(body) == self.dimension:
            start = text * self.dimension
            self.rows[start : start + self.dimension] = body
            self.new.add(text)


def stored(vector: Sequence[float]) -> bytes:
    """Return the stored form of `vector`.

    Raises: ValueError if `vector` is not finite, or is zero.
    """
    largest = max(map(abs, vector), default=0.0)
    if not 0 < largest < float("inf"):
        raise ValueError("the vector has no direction")
    return array("b", [round(each / largest * _LARGEST) for each in vector]).tobytes()


def to_embed(found: Iterable[tuple[Found, int]]) -> list[tuple[Found, int]]:
    """Return the texts that should get a vector."""
    return [each for each in found if each[0].entry is not None and each[0].what.role in EMBEDDED]
