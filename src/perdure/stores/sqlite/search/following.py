"""How the index of a file follows the log: step by step, none of which keeps writers waiting.

What a step adds is read and made while others write; then it is put in, unless somebody else was
first (``indexing``).
"""

from __future__ import annotations

import asyncio

from perdure.stores.protocol import OnProgress
from perdure.stores.sqlite.database import Database
from perdure.stores.sqlite.search.indexing import (
    Progress,
    clear,
    made,
    next_step,
    progress,
    put_in,
)

# What is read need not be on the disk: in the write-ahead log it stands before what is made of it.


async def index(database: Database, on_progress: OnProgress | None = None) -> None:
    """Index what stands behind the mark, if a search should not read that itself."""
    upto = await database.read(progress, is_durable=False)
    if upto.is_due:
        await _index_upto(database, upto, on_progress)


async def reindex(database: Database, on_progress: OnProgress | None = None) -> None:
    """Index everything anew."""
    await database.write(clear, "normal", is_composite=True)
    await _index_upto(database, await database.read(progress, is_durable=False), on_progress)


async def _index_upto(database: Database, upto: Progress, told: OnProgress | None) -> None:
    while not await _is_last_step(database, upto):
        if told is not None:
            left = min((await database.read(progress, is_durable=False)).behind, upto.behind)
            told(upto.behind - left, upto.behind)


async def _is_last_step(database: Database, upto: Progress) -> bool:
    step = await database.read(lambda tables: next_step(tables, upto), is_durable=False)
    if step.is_last and not step.texts:
        return True
    step = await asyncio.to_thread(made, step)
    # At durability "normal", whatever the handle's: the log can tell it again.
    return await database.write(lambda tables: put_in(tables, step), "normal", is_composite=True)
