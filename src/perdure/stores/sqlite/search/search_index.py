"""The search index of an SQLite file; its operations run on the threads of the file's connections.

An index step is read and built while other processes write; only storing the step uses the writer.
A stored step need not be synced, because it can be rebuilt from the log. In the write-ahead log, a
step comes after the entries that it indexes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import apsw

from perdure.errors import SearchIndexDamaged
from perdure.session.search.parts.pages import DAMAGE
from perdure.session.search.query import Sought
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.protocol import OnProgress, Problem
from perdure.stores.search import index_check, indexer, recall_plan, search_plan, vector_plan
from perdure.stores.search.recall_plan import Asked, RecallCache, Recalled
from perdure.stores.search.rows import Progress, run_now
from perdure.stores.search.sqlite_tables import SqliteReader, SqliteWriter, text_count
from perdure.stores.search.sqlite_vectors import SqliteVectors
from perdure.stores.search.vectors import Unembedded, VectorModel, VectorState
from perdure.stores.sqlite.database import Database
from perdure.stores.sqlite.rows import Tables, namespace_no
from perdure.stores.sqlite.search.log import SqliteLog, progress
from perdure.stores.verification import Steps


def hits(tables: Tables, namespace: str, query: SearchQuery, sought: Sought) -> list[Hit]:
    """Implement ``SearchService.hits``."""
    number = namespace_no(tables, namespace)
    if number is None:
        return []
    index, log = SqliteReader(tables, number), SqliteLog(tables, number)
    return run_now(search_plan.hits(index, log, query, sought))


def recalled(
    tables: Tables,
    namespace: str,
    cache: RecallCache,
    asked: Asked,
) -> list[Recalled]:
    """Implement ``SearchService.recall``."""
    number = namespace_no(tables, namespace)
    if number is None:
        return []
    index, log = SqliteReader(tables, number), SqliteLog(tables, number)
    with cache.lock:
        rows = SqliteVectors(tables, number)
        return run_now(recall_plan.recalled(index, log, rows, cache, asked))


def unembedded(tables: Tables, namespace: str, model: VectorModel) -> Unembedded:
    """Implement ``SearchService.unembedded``."""
    number = namespace_no(tables, namespace)
    if number is None:
        return Unembedded(0, (), 0)
    rows, log = SqliteVectors(tables, number), SqliteLog(tables, number)
    return run_now(vector_plan.next_unembedded(rows, log, model))


def vector_models(tables: Tables, namespace: str) -> dict[VectorModel, VectorState]:
    """Implement ``SearchService.vector_models``."""
    number = namespace_no(tables, namespace)
    return {} if number is None else run_now(SqliteVectors(tables, number).states())


async def add_vectors(
    database: Database,
    name: str,
    model: VectorModel,
    span: tuple[int, int],
    vectors: Mapping[int, bytes],
) -> bool:
    """Implement ``SearchService.add_vectors``."""

    def add(tables: Tables) -> bool:
        number = namespace_no(tables, name)
        if number is None:
            return False
        rows, log = SqliteVectors(tables, number), SqliteLog(tables, number)
        return run_now(vector_plan.put_in(rows, log, model, span, vectors))

    return await database.write(add, "normal", is_composite=True)


async def drop_vectors(database: Database, name: str, model: VectorModel) -> None:
    """Implement ``SearchService.drop_vectors``."""

    def drop(tables: Tables) -> None:
        number = namespace_no(tables, name)
        if number is not None:
            run_now(SqliteVectors(tables, number).drop(model))

    await database.write(drop, "normal", is_composite=True)


async def index(database: Database, name: str, on_progress: OnProgress | None = None) -> None:
    """Index the new entries, unless they are so few that a search should scan them."""
    namespace = await _number(database, name)
    if namespace is not None:
        upto = await _progress(database, namespace)
        if upto.is_due:
            await _index_upto(database, namespace, upto, on_progress)


async def reindex(database: Database, name: str, on_progress: OnProgress | None = None) -> int:
    """Rebuild the index; return the number of searchable texts."""
    namespace = await _number(database, name)
    if namespace is None:
        return 0
    await database.write(lambda tables: clear(tables, namespace), "normal", is_composite=True)
    upto = await _progress(database, namespace)
    await _index_upto(database, namespace, upto, on_progress)
    return await database.read(lambda tables: text_count(tables, namespace), is_durable=False)


async def _number(database: Database, name: str) -> int | None:
    return await database.read(lambda tables: namespace_no(tables, name), is_durable=False)


async def _progress(database: Database, namespace: int) -> Progress:
    return await database.read(lambda tables: progress(tables, namespace), is_durable=False)


async def _index_upto(
    database: Database, namespace: int, upto: Progress, told: OnProgress | None
) -> None:
    while not await _is_last_step(database, namespace, upto):
        if told is not None:
            left = min((await _progress(database, namespace)).behind, upto.behind)
            told(upto.behind - left, upto.behind)


async def _is_last_step(database: Database, namespace: int, upto: Progress) -> bool:
    step = await database.read(lambda tables: next_step(tables, namespace, upto), is_durable=False)
    if step.is_last and not step.texts:
        return True
    step = await asyncio.to_thread(indexer.with_part, step)
    # Always durability "normal": the index can be rebuilt from the log.
    return await database.write(
        lambda tables: put_in(tables, namespace, step), "normal", is_composite=True
    )


# ---------------------------------------------------------------- on the thread of a connection


def next_step(tables: Tables, namespace: int, upto: Progress) -> indexer.Step:
    """Run ``indexer.next_step`` for a namespace."""
    index, log = SqliteReader(tables, namespace), SqliteLog(tables, namespace)
    return run_now(indexer.next_step(index, log, upto))


def put_in(tables: Tables, namespace: int, step: indexer.Step) -> bool:
    """Run ``indexer.put_in`` for a namespace. Raises: SearchIndexDamaged."""
    try:
        return run_now(indexer.put_in(SqliteWriter(tables, namespace), step))
    except apsw.ConstraintError as error:
        raise SearchIndexDamaged(SqliteLog(tables, namespace).address) from error


def clear(tables: Tables, namespace: int) -> None:
    """Run ``indexer.clear`` for a namespace."""
    run_now(indexer.clear(SqliteWriter(tables, namespace)))


def forget(tables: Tables, namespace: int, positions: Sequence[int]) -> int:
    """Run ``indexer.forget`` for a namespace; return how many of the texts were searchable."""
    found = run_now(SqliteLog(tables, namespace).texts_at(positions))
    run_now(indexer.forget(SqliteWriter(tables, namespace), positions))
    run_now(SqliteVectors(tables, namespace).remove(positions))
    return len(found)


def index_problems(tables: Tables, namespace: str, steps: Steps) -> list[Problem]:
    """Return every difference between the index and the indexed part of the log."""
    try:
        number = namespace_no(tables, namespace)
        if number is None:
            return []
        index, log = SqliteReader(tables, number), SqliteLog(tables, number)
        return run_now(index_check.index_problems(index, log, steps))
    except (apsw.Error, *DAMAGE) as error:
        text = f"the search index cannot be read ({error}); {index_check.REMEDY}"
        return [Problem(None, None, text)]


def indexed_texts(tables: Tables, namespace: str) -> int:
    """Return the number of indexed texts. `index_problems` reports one step for each text."""
    return text_count(tables, namespace_no(tables, namespace))
