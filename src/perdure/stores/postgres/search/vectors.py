"""The vectors of a namespace, stored as bytes or, if pgvector is installed, in pgvector's type.

``stores/postgres/migrations`` documents the columns. The schema migration chooses the column type
of the vectors.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import LiteralString

from perdure.stores.postgres.database import Statement
from perdure.stores.postgres.rows import Contents, Numbers, Row
from perdure.stores.search.vectors import VectorModel, VectorState

Ask = Callable[[Sequence[Statement]], Awaitable[Sequence[list[Row]]]]
"""Sends statements together, in one snapshot or transaction, and returns their answers."""

_IS_BYTES: LiteralString = """
SELECT atttypid = 'bytea'::regtype FROM pg_attribute
WHERE attrelid = 'perdure.search_vector'::regclass AND attname = 'body'
"""

_STATE: LiteralString = """
SELECT no, upto FROM perdure.search_model WHERE namespace = %s AND name = %s AND dimension = %s
"""
_STATES: LiteralString = """
SELECT m.name, m.dimension, m.no, m.upto, (
    SELECT count(*) FROM perdure.search_vector AS v
    WHERE v.namespace = m.namespace AND v.model = m.no
) FROM perdure.search_model AS m WHERE m.namespace = %s ORDER BY m.no
"""
_ADD_MODEL: LiteralString = """
INSERT INTO perdure.search_model (namespace, no, name, dimension, upto)
SELECT %s, coalesce(max(no), 0) + 1, %s, %s, 0 FROM perdure.search_model WHERE namespace = %s
"""
_MOVE: LiteralString = "UPDATE perdure.search_model SET upto = %s WHERE namespace = %s AND no = %s"

_RANGE: LiteralString = """
FROM perdure.search_vector WHERE namespace = %s AND model = %s AND n > %s ORDER BY n LIMIT %s
"""
_AFTER: LiteralString = f"SELECT n, body {_RANGE}"
_ADD: LiteralString = """
INSERT INTO perdure.search_vector (namespace, model, n, body)
SELECT %s, %s, d.n, d.body FROM unnest(%s::bigint[], %s::bytea[]) AS d (n, body)
"""

# Casts from and to arrays of real: pgvector may be in any schema, so its types have no name here.
_AFTER_NUMBERS: LiteralString = f"SELECT n, array_send(body::real[]) {_RANGE}"
_ADD_NUMBERS: LiteralString = """
INSERT INTO perdure.search_vector (namespace, model, n, body)
SELECT %s, %s, d.n, (a.flat[(d.i - 1) * a.size + 1 : d.i * a.size])::real[]
FROM unnest(%s::bigint[]) WITH ORDINALITY AS d (n, i),
    (SELECT %s::bigint[] AS flat, %s::bigint AS size) AS a
"""

_REMOVE: LiteralString = """
DELETE FROM perdure.search_vector AS v USING perdure.search_model AS m
WHERE m.namespace = %s AND v.namespace = m.namespace AND v.model = m.no AND v.n = ANY(%s)
"""
_DROP: tuple[LiteralString, ...] = (
    "DELETE FROM perdure.search_vector WHERE namespace = %s AND model = %s",
    "DELETE FROM perdure.search_model WHERE namespace = %s AND no = %s",
)

_HEAD, _WORD = 20, 4
"""Sizes of the header of a binary array, and of the length field before each element."""


class PostgresVectors:
    """`VectorRows` of one namespace of a database."""

    def __init__(self, ask: Ask, namespace: str) -> None:
        self._ask = ask
        self._namespace = namespace

    async def _rows(self, sql: LiteralString, *values: object) -> list[Row]:
        (rows,) = await self._ask([Statement(sql, values)])
        return rows

    async def _is_bytes(self) -> bool:
        return bool((await self._rows(_IS_BYTES))[0][0])

    async def state(self, model: VectorModel) -> VectorState:
        rows = await self._rows(_STATE, self._namespace, *model)
        return VectorState(*rows[0]) if rows else VectorState()

    async def states(self) -> dict[VectorModel, VectorState]:
        rows = await self._rows(_STATES, self._namespace)
        return {VectorModel(*row[:2]): VectorState(*row[2:]) for row in rows}

    async def after(self, number: int, position: int, most: int) -> list[tuple[int, bytes]]:
        is_bytes = await self._is_bytes()
        sql = _AFTER if is_bytes else _AFTER_NUMBERS
        rows = await self._rows(sql, self._namespace, number, position, most)
        return [(at, bytes(body) if is_bytes else _signed_bytes(body)) for at, body in rows]

    async def add(self, model: VectorModel, upto: int, rows: Mapping[int, bytes]) -> None:
        ns = self._namespace
        if not (await self.state(model)).number:
            await self._rows(_ADD_MODEL, ns, *model, ns)
        number = (await self.state(model)).number
        positions = Numbers(rows)
        if not rows:
            pass
        elif await self._is_bytes():
            await self._rows(_ADD, ns, number, positions, Contents(rows.values()))
        else:
            flat = Numbers(each for body in rows.values() for each in array("b", body))
            await self._rows(_ADD_NUMBERS, ns, number, positions, flat, model.dimension)
        await self._rows(_MOVE, upto, ns, number)

    async def remove(self, positions: Sequence[int]) -> None:
        await self._rows(_REMOVE, self._namespace, Numbers(positions))

    async def drop(self, model: VectorModel) -> None:
        number = (await self.state(model)).number
        await self._ask([Statement(each, (self._namespace, number)) for each in _DROP])


def _signed_bytes(sent: bytes) -> bytes:
    """Return the numbers of a binary array of reals as signed bytes; all must be integers."""
    words = array("f")
    words.frombytes(sent[_HEAD:])
    words.byteswap()  # from network order, as every machine that perdure runs on needs
    return array("b", map(int, words[1::2])).tobytes()
