"""The search index of a PostgreSQL database; each operation runs over one connection.

An index step locks the row of the index mark from the start of reading until the commit; writers of
sessions do not need this row. So other processes that index the namespace, or erase from the
namespace, wait until the step is committed. A search reads one snapshot.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import LiteralString, TypeVar

from perdure.session.search.parts import sizes
from perdure.session.search.query import Sought
from perdure.session.search.searchable import KINDS
from perdure.session.search.values import Hit, SearchQuery
from perdure.session.search.words import VERSION
from perdure.stores.postgres.database import Connected, Database, Statement, run_statements
from perdure.stores.postgres.rows import SETTLE, Row, is_text
from perdure.stores.postgres.search.log import PostgresLog
from perdure.stores.postgres.search.tables import (
    MARK,
    PostgresReader,
    PostgresWriter,
    locking_mark,
    mark_in,
)
from perdure.stores.postgres.search.vectors import PostgresVectors
from perdure.stores.protocol import OnProgress, Problem
from perdure.stores.search import index_check, indexer, recall_plan, search_plan, vector_plan
from perdure.stores.search.recall_plan import Asked, RecallCache, Recalled
from perdure.stores.search.rows import Progress, run_now
from perdure.stores.search.vectors import Unembedded, VectorModel, VectorState
from perdure.stores.verification import Steps

# OFFSET 0 keeps the mark a value, which index conditions accept. Inlined, it would be a query that
# may leak, and row-level security allows none of those in an index condition.
BEHIND: LiteralString = """
SELECT (SELECT count(*) FROM (
    SELECT FROM perdure.entry AS e WHERE e.namespace = %s AND e.n > 0 AND e.n > m.upto
        AND e.kind = ANY(%s) AND e.n <= current_setting('perdure.horizon')::bigint
    LIMIT %s
) AS entries) + (SELECT count(*) FROM (
    SELECT FROM perdure.birth AS b WHERE b.namespace = %s AND b.n > 0 AND b.n > m.upto
        AND b.n <= current_setting('perdure.horizon')::bigint
    LIMIT %s
) AS births), current_setting('perdure.horizon')::bigint, (
    SELECT count(*) FROM perdure.search AS t WHERE t.namespace = %s AND t.part = 0
)
FROM (SELECT coalesce((
    SELECT upto FROM perdure.search_mark WHERE namespace = %s AND version = %s
), 0) AS upto OFFSET 0) AS m
"""

INDEXED_TEXTS: LiteralString = """
SELECT coalesce(sum(size), 0) FROM perdure.search_part WHERE namespace = %s
"""
"""Query the number of texts in parts of the index; `index_problems` takes one step per text."""

_COUNT: LiteralString = """
SELECT count(*) FROM perdure.entry WHERE namespace = %s AND n > 0 AND n > %s AND n <= %s
"""

_TEXTS: LiteralString = """
SELECT (SELECT coalesce(sum(size), 0) FROM perdure.search_part WHERE namespace = %s)
    + (SELECT count(*) FROM perdure.search WHERE namespace = %s AND part = 0)
"""


# The server waits for this program while it builds a part, which may be slow on a busy machine.
_SOON: LiteralString = """
SELECT set_config('synchronous_commit', 'off', true),
    set_config('idle_in_transaction_session_timeout', '60000', true)
"""

# The server waits here too, while this program looks for the words of large texts.
_ONE_MOMENT: LiteralString = """
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL idle_in_transaction_session_timeout = 60000
"""


T = TypeVar("T")


async def hits(db: Database, query: SearchQuery, sought: Sought) -> list[Hit]:
    """Implement ``SearchService.hits``."""
    if query.sessions and not any(map(is_text, query.sessions)):
        return []
    async with _one_moment(db) as connected:
        ask = partial(run_statements, connected, db.namespace)
        index = PostgresReader(ask, db.namespace)
        return await search_plan.hits(index, _log(connected, db), query, sought)


async def recalled(db: Database, cache: RecallCache, asked: Asked) -> list[Recalled]:
    """Implement ``SearchService.recall``."""
    async with _one_moment(db) as connected:
        ask = partial(run_statements, connected, db.namespace)
        index, rows = PostgresReader(ask, db.namespace), PostgresVectors(ask, db.namespace)
        return await recall_plan.recalled(index, _log(connected, db), rows, cache, asked)


async def unembedded(db: Database, model: VectorModel) -> Unembedded:
    """Implement ``SearchService.unembedded``."""
    async with db.connection() as connected, connected.transaction():
        return await vector_plan.next_unembedded(
            _vectors(connected, db), _log(connected, db), model
        )


async def add_vectors(
    db: Database, model: VectorModel, span: tuple[int, int], vectors: Mapping[int, bytes]
) -> bool:
    """Implement ``SearchService.add_vectors``."""
    async with _locked(db) as connected:
        rows, log = _vectors(connected, db), _log(connected, db)
        return await vector_plan.put_in(rows, log, model, span, vectors)


async def vector_models(db: Database) -> dict[VectorModel, VectorState]:
    """Implement ``SearchService.vector_models``."""
    async with _one_moment(db) as connected:
        return await _vectors(connected, db).states()


async def drop_vectors(db: Database, model: VectorModel) -> None:
    """Implement ``SearchService.drop_vectors``."""
    async with _locked(db) as connected:
        await _vectors(connected, db).drop(model)


def _vectors(connected: Connected, db: Database) -> PostgresVectors:
    return PostgresVectors(partial(run_statements, connected, db.namespace), db.namespace)


@asynccontextmanager
async def _one_moment(db: Database) -> AsyncGenerator[Connected]:
    async with db.connection() as connected:
        await connected.execute(_ONE_MOMENT, prepare=False)  # these are two statements
        try:
            yield connected
        finally:
            await connected.rollback()


@asynccontextmanager
async def _locked(db: Database) -> AsyncGenerator[Connected]:
    """Open a transaction that blocks other changes of the index.

    The commit of the transaction does not wait for the disk.
    """
    ns = db.namespace
    async with db.connection() as connected, connected.transaction():
        await run_statements(connected, ns, [Statement(_SOON), *locking_mark(ns)])
        yield connected


def _log(connected: Connected, db: Database) -> PostgresLog:
    ask = partial(run_statements, connected, db.namespace)
    return PostgresLog(ask, db.namespace, db.address)


async def index(db: Database, on_progress: OnProgress | None = None) -> None:
    """Index the new entries, unless they are so few that a search should scan them."""
    upto = await _progress(db)
    if upto.is_due:
        await _index_upto(db, upto, on_progress)


async def reindex(db: Database, on_progress: OnProgress | None = None) -> int:
    """Rebuild the index; return the number of searchable texts."""
    async with _locked(db) as connected:
        await indexer.clear(PostgresWriter(connected, db.namespace))
    await _index_upto(db, await _progress(db), on_progress)
    (rows,) = await db.ask(Statement(_TEXTS, (db.namespace, db.namespace)))
    return int(rows[0][0])


async def _progress(db: Database) -> Progress:
    """Return how far the index is behind the log; count at most ``sizes.SCANNED`` + 1 entries."""
    ns, most = db.namespace, sizes.SCANNED + 1
    values = (ns, list(KINDS), most, ns, most, ns, ns, VERSION)
    _, rows = await db.ask(Statement(SETTLE), Statement(BEHIND, values))
    behind, horizon, loose = rows[0]
    return Progress(behind, horizon, horizon, loose)


async def _index_upto(db: Database, upto: Progress, told: OnProgress | None) -> None:
    total = await _behind(db, upto) if told is not None else 0
    while not await _is_last_step(db, upto):
        if told is not None:
            told(total - await _behind(db, upto), total)


async def _behind(db: Database, upto: Progress) -> int:
    ns = db.namespace
    (marks,) = await db.ask(Statement(MARK, (ns,)))
    (rows,) = await db.ask(Statement(_COUNT, (ns, mark_in(marks).usable.entry, upto.entry)))
    return int(rows[0][0])


async def _is_last_step(db: Database, upto: Progress) -> bool:
    async with _locked(db) as connected:
        index, log = PostgresWriter(connected, db.namespace), _log(connected, db)
        step = await indexer.next_step(index.reader, log, upto)
        if step.is_last and not step.texts:
            return True
        step = await log.compute(partial(indexer.with_part, step))
        return await indexer.put_in(index, step)


# ---------------------------------------------------------------- verify, which has no event loop


class _BlockingLog(PostgresLog):
    """Reads the log of a namespace with blocking calls, on a separate thread."""

    async def compute(self, work: Callable[[], T]) -> T:
        return work()


def index_problems(
    streamed: Callable[[Statement], Iterator[Row]], namespace: str, steps: Steps
) -> list[Problem]:
    """Return every difference between the index and the indexed part of the log."""

    async def ask(statements: Sequence[Statement]) -> list[list[Row]]:
        return [list(streamed(statement)) for statement in statements]

    index, log = PostgresReader(ask, namespace), _BlockingLog(ask, namespace, "")
    return run_now(index_check.index_problems(index, log, steps))
