"""The vectors of a namespace in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from perdure.stores.search.vectors import VectorModel, VectorState


class HeldVectors:
    """`VectorRows` of one namespace. The vectors of a removed text are deleted at once."""

    def __init__(self) -> None:
        self._models: dict[VectorModel, VectorState] = {}
        self._rows: dict[int, dict[int, bytes]] = {}
        self._newest = 0

    def snapshot(self) -> HeldVectors:
        """Return a copy of the current vectors, for another thread."""
        copy = HeldVectors()
        copy._models = self._models.copy()
        copy._rows = {number: rows.copy() for number, rows in self._rows.items()}
        return copy

    async def state(self, model: VectorModel) -> VectorState:
        return self._models.get(model, VectorState())

    async def states(self) -> dict[VectorModel, VectorState]:
        return {
            model: state._replace(size=len(self._rows[state.number]))
            for model, state in self._models.items()
        }

    async def after(self, number: int, position: int, most: int) -> list[tuple[int, bytes]]:
        rows = self._rows.get(number, {})
        return list(islice((row for row in rows.items() if row[0] > position), most))

    async def add(self, model: VectorModel, upto: int, rows: Mapping[int, bytes]) -> None:
        state = self._models.get(model)
        if state is None:
            self._newest += 1
            state = VectorState(self._newest)
        self._models[model] = state._replace(upto=upto)
        self._rows.setdefault(state.number, {}).update(sorted(rows.items()))

    async def remove(self, positions: Sequence[int]) -> None:
        for position in positions:
            self.discard(position)

    async def drop(self, model: VectorModel) -> None:
        state = self._models.pop(model, VectorState())
        self._rows.pop(state.number, None)

    def discard(self, position: int) -> None:
        """Remove the vectors of the text at `position`."""
        for rows in self._rows.values():
            rows.pop(position, None)
