"""How the index of a namespace follows the log: step by step, none of which keeps writers waiting.

What a step adds is read and made while others write; then it is put in, unless somebody else was
first (``indexing``).
"""

from __future__ import annotations

import asyncio

from perdure.stores.protocol import OnProgress
from perdure.stores.sqlite.database import Database
from perdure.stores.sqlite.search.indexer import (
    Progress,
    build_part,
    clear,
    next_step,
    number_of_namespace,
    progress,
    put_in,
)

# What is read need not be on the disk: in the write-ahead log it stands before what is made of it.


async def index(database: Database, name: str, on_progress: OnProgress | None = None) -> None:
    """Index what stands behind the mark, if a search should not read that itself."""
    namespace = await _number(database, name)
    if namespace is not None:
        upto = await _progress(database, namespace)
        if upto.is_due:
            await _index_upto(database, namespace, upto, on_progress)


async def reindex(database: Database, name: str, on_progress: OnProgress | None = None) -> None:
    """Index everything anew."""
    namespace = await _number(database, name)
    if namespace is not None:
        await database.write(lambda tables: clear(tables, namespace), "normal", is_composite=True)
        upto = await _progress(database, namespace)
        await _index_upto(database, namespace, upto, on_progress)


async def _number(database: Database, name: str) -> int | None:
    return await database.read(lambda tables: number_of_namespace(tables, name), is_durable=False)


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
    step = await asyncio.to_thread(build_part, step)
    # At durability "normal", whatever the handle's: the log can tell it again.
    return await database.write(
        lambda tables: put_in(tables, namespace, step), "normal", is_composite=True
    )
