"""Erase from a store and be killed at each write, fsync, removal and rename, one after the other.

`kill_at_each` erases the session ``first`` in copies of the store FOLDER/original: for every
STEP-th operation, FOLDER/NNNN is a copy in which the erasure was killed at that operation.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from perdure.stores.jsonl.store import JsonlStore
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes import faulty_files
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.deaths import die_at_each
from tests.fakes.faulty_vfs import faulty_vfs, killing_at
from tests.fakes.planted import FIRST


async def opened(backend: str, place: Path) -> SqliteStore | JsonlStore:
    if backend == "jsonl":
        return await JsonlStore.open(place, clock=ManualClock(), random=SeededRandom(1))
    return await SqliteStore.open(place / "store.db", clock=ManualClock(), random=SeededRandom(1))


async def erase(store: SqliteStore | JsonlStore, id: str = "e1", name: str = FIRST) -> Certificate:
    request = EraseRequest(id=id, scope="session", by="me", at=START_MS, name=name, forks="erase")
    return await store.retention.erase(request)


async def erased(backend: str, place: Path) -> None:
    store = await opened(backend, place)
    await erase(store)
    await store.close()


def killed(backend: str, place: Path, operation: int) -> None:
    if backend == "jsonl":
        with faulty_files.planned(faulty_files.killing_at(operation, 0.5)):
            asyncio.run(erased(backend, place))
        return
    with faulty_vfs() as layer:
        layer.plan = killing_at(operation)
        asyncio.run(erased(backend, place))


def kill_at_each(backend: str, folder: Path, step: int) -> None:
    def live(operation: int) -> None:
        place = folder / f"{operation:04}"
        shutil.copytree(folder / "original", place)
        killed(backend, place, operation)

    die_at_each(live, step)
