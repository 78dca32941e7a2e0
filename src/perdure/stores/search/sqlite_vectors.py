"""The vectors of a namespace in an SQLite file.

``stores/sqlite/migrations`` documents the columns. ``search_vector.id`` is model * 2^40 + position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from perdure.stores.access.sqlite_connection import SqlRows
from perdure.stores.search.vectors import VectorModel, VectorState

_POSITIONS = 1 << 40

# A received file may have any number: one without room for positions belongs to no model.
_STATE = """
SELECT no, upto FROM search_model WHERE namespace = ? AND name = ? AND dimension = ?
AND no BETWEEN 1 AND (1 << 22)
"""
_STATES = """
SELECT name, dimension, no, upto, (
    SELECT count(*) FROM search_vector WHERE id >= no * (1 << 40) AND id < (no + 1) * (1 << 40)
) FROM search_model WHERE namespace = ? AND no BETWEEN 1 AND (1 << 22) ORDER BY no
"""
_ADD_MODEL = """
INSERT INTO search_model (namespace, name, dimension, upto) VALUES (?, ?, ?, 0)
"""
_AFTER = "SELECT id, body FROM search_vector WHERE id > ? AND id < ? ORDER BY id LIMIT ?"
_REMOVE = """
DELETE FROM search_vector WHERE id IN (
    SELECT m.no * (1 << 40) + j.value FROM search_model AS m CROSS JOIN json_each(?2) AS j
    WHERE m.namespace = ?1 AND m.no BETWEEN 1 AND (1 << 22)
)
"""


class SqliteVectors:
    """`VectorRows` of one namespace of a file."""

    def __init__(self, db: SqlRows, namespace: int) -> None:
        self._db = db
        self._namespace = namespace

    async def state(self, model: VectorModel) -> VectorState:
        rows = self._db.rows(_STATE, self._namespace, *model)
        return next((VectorState(*row) for row in rows), VectorState())

    async def states(self) -> dict[VectorModel, VectorState]:
        rows = list(self._db.rows(_STATES, self._namespace))
        return {VectorModel(*row[:2]): VectorState(*row[2:]) for row in rows}

    async def after(self, number: int, position: int, most: int) -> list[tuple[int, bytes]]:
        first = number * _POSITIONS
        rows = self._db.rows(_AFTER, first + position, first + _POSITIONS, most)
        return [(id_ - first, body) for id_, body in rows]

    async def add(self, model: VectorModel, upto: int, rows: Mapping[int, bytes]) -> None:
        if not (await self.state(model)).number:
            self._db.run(_ADD_MODEL, (self._namespace, *model))
        number = (await self.state(model)).number
        values = ((number * _POSITIONS + at, body) for at, body in rows.items())
        self._db.run_many("INSERT INTO search_vector VALUES (?, ?)", values)
        self._db.run("UPDATE search_model SET upto = ? WHERE no = ?", (upto, number))

    async def remove(self, positions: Sequence[int]) -> None:
        listed = msgspec.json.encode([each for each in positions if each > 0]).decode()
        self._db.run(_REMOVE, (self._namespace, listed))

    async def drop(self, model: VectorModel) -> None:
        number = (await self.state(model)).number
        first = number * _POSITIONS
        self._db.run(
            "DELETE FROM search_vector WHERE id >= ? AND id < ?", (first, first + _POSITIONS)
        )
        self._db.run("DELETE FROM search_model WHERE no = ?", (number,))
