"""Import a file in pieces and be killed at each write, fsync and removal, one after the other.

`kill_at_each` imports FOLDER/file: for every STEP-th operation, a folder contains a store into
which the import was killed at that operation.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure.interop.formats.sources.reader import Bounds
from perdure.interop.imports import import_source
from perdure.interop.reports import FormatName, ImportReport
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.deaths import die_at_each
from tests.fakes.faulty_vfs import faulty_vfs, killing_at

PIECES = Bounds(whole_bytes=0, piece_bytes=900)


async def opened(place: Path, now_ms: int = START_MS) -> SqliteStore:
    clock = ManualClock(now_ms)
    return await SqliteStore.open(place / "store.db", clock=clock, random=SeededRandom(1))


async def import_file(store: SqliteStore, file: Path, format: FormatName) -> ImportReport:
    clock, random = ManualClock(), SeededRandom(2)
    return await import_source(
        store, file, clock=clock, random=random, format=format, bounds=PIECES
    )


async def imported(place: Path, file: Path, format: FormatName) -> None:
    store = await opened(place)
    await import_file(store, file, format)
    await store.close()


def kill_at_each(format: FormatName, folder: Path, step: int) -> None:
    def live(operation: int) -> None:
        place = folder / f"{operation:05}"
        place.mkdir()
        with faulty_vfs() as layer:
            layer.plan = killing_at(operation)
            asyncio.run(imported(place, folder / "file", format))

    die_at_each(live, step)
