"""Short runs of a session file store, each killed at one of its writes, fsyncs or renames.

`kill_at_each` runs `live_once` in a process that is killed at its first operation, then in one that
is killed `step` operations later, and so on until a process survives. The stores and the
acknowledgements remain in `folder`.

`append_until_killed` commits until it is killed; it prints one line for each acknowledged commit.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from perdure.client.clock import SystemClock, system_random
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import user
from perdure.stores.jsonl.store import JsonlStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.deaths import die_at_each
from tests.fakes.faulty_files import killing_at, planned

S = StreamId("s")
SIZE = 3
"""Number of entries of one commit."""

FILLER = "x" * 300
KEPT = (0.0, 0.3, 0.97, 1.0)
"""Shares of a killed write that reach the file; each killed process uses the next share."""


async def opened(folder: Path, dialect: str) -> JsonlStore:
    return await JsonlStore.open(
        folder,
        dialect="pi" if dialect == "pi" else "operator",
        clock=SystemClock(),
        random=system_random,
    )


def numbered(number: int) -> tuple[NewEntry, ...]:
    return tuple(new_tree(user(f"{number} {index} {FILLER}")) for index in range(SIZE))


async def create(store: JsonlStore) -> None:
    """Make commit 0, which creates the session."""
    write = Write(stream=S, create=StreamHeader(S, 1), entries=numbered(0))
    await store.commit(Commit(writes=(write,), at=0, idempotency_key="commit 0"))


async def append(store: JsonlStore, number: int) -> None:
    """Make commit `number`: every entry contains its number."""
    write = Write(stream=S, entries=numbered(number))
    blob = f"blob {number}".encode()
    key = f"commit {number}"
    await store.commit(Commit(writes=(write,), at=number, idempotency_key=key, blobs=(blob,)))


async def live_once(folder: Path, acks: Path, dialect: str) -> None:
    """Create a store, write to it, run a turn and close it. `acks` lists acknowledgements."""
    file = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def acknowledge(what: object) -> None:
        os.pwrite(file, f"{what}\n".encode(), os.fstat(file).st_size)

    store = await opened(folder, dialect)
    await create(store)
    acknowledge(0)
    for number in (1, 2):
        await append(store, number)
        acknowledge(number)
    lease = await store.acquire_lease(S, "me", 60_000)
    acknowledge("lease")
    start = Write(stream=S, entries=(new_side(TurnStarted(1, "a")),), lease=lease)
    await store.commit(Commit(writes=(start,), at=3))
    await store.put_partial(lease, 9, b"half")
    end = Write(stream=S, entries=(new_side(TurnFinished("stop")),), lease=lease)
    await store.commit(Commit(writes=(end,), at=4))
    acknowledge("turn")
    await store.close()


def kill_at_each(folder: Path, dialect: str, step: int) -> None:
    def live(operation: int) -> None:
        with planned(killing_at(operation, KEPT[operation % len(KEPT)])):
            asyncio.run(live_once(folder / f"{operation}", folder / f"{operation}.acks", dialect))

    die_at_each(live, step)


async def append_for_ever(folder: Path, dialect: str) -> None:
    store = await opened(folder, dialect)
    if await store.position() == 0:
        await create(store)
    number = (await store.state(S)).head // SIZE + 1
    while True:
        await append(store, number)
        os.write(1, f"{number}\n".encode())
        number += 1


def append_until_killed(folder: Path, dialect: str) -> None:
    asyncio.run(append_for_ever(folder, dialect))
