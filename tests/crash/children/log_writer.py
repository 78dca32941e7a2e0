"""Append to two streams in each commit, forever or until the file layer kills this process.

`kill_at_each` runs `live_once` in a separate process that is killed at its first write or fsync,
then in one that is killed `step` operations later, and so on until a process survives. The stores
and the acknowledgements remain in `folder`.

`append_until_killed` commits until it is killed; it prints one line for each acknowledged commit.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from perdure.client.clock import SystemClock, system_random
from perdure.session.codec import new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import user
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.deaths import die_at_each
from tests.fakes.faulty_vfs import faulty_vfs, killing_at

STREAMS = (StreamId("first"), StreamId("second"))
SIZES = (3, 2)
"""Numbers of entries that each commit appends to the first and the second stream."""

FILLER = "x" * 3_000


async def opened(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, clock=SystemClock(), random=system_random)


async def create(store: SqliteStore) -> None:
    writes = tuple(Write(stream=id_, create=StreamHeader(id_, 1)) for id_ in STREAMS)
    await store.commit(Commit(writes=writes, at=1))


async def append(store: SqliteStore, number: int) -> None:
    """Make commit `number`: every entry contains its number."""
    writes = tuple(
        Write(stream=id_, entries=numbered(number, size))
        for id_, size in zip(STREAMS, SIZES, strict=True)
    )
    await store.commit(Commit(writes=writes, at=number, idempotency_key=f"commit {number}"))


def numbered(number: int, size: int) -> tuple[NewEntry, ...]:
    return tuple(new_tree(user(f"{number} {index} {FILLER}")) for index in range(size))


async def append_for_ever(path: Path) -> None:
    store = await opened(path)
    if await store.position() == 0:
        await create(store)
    number = (await store.state(STREAMS[0])).head // SIZES[0] + 1
    while True:
        await append(store, number)
        os.write(1, f"{number}\n".encode())
        number += 1


async def live_once(path: Path) -> None:
    """Create a store, write to it and close it. ``PATH.acks`` lists the acknowledgements."""
    acks = os.open(path.with_suffix(".acks"), os.O_WRONLY | os.O_CREAT)
    store = await opened(path.with_suffix(".db"))
    await create(store)
    os.write(acks, b"-1\n")
    for number in range(2):
        await append(store, number)
        os.write(acks, f"{number}\n".encode())
    await store.close()


def kill_at_each(folder: Path, step: int) -> None:
    def live(operation: int) -> None:
        with faulty_vfs() as layer:
            layer.plan = killing_at(operation)
            asyncio.run(live_once(folder / f"{operation}"))

    die_at_each(live, step)


def append_until_killed(path: Path) -> None:
    asyncio.run(append_for_ever(path))
