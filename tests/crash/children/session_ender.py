"""End a session twice, and open a store whose session ended without an episode.

`kill_at_each` runs `live_once` in a process that is killed at its first write or fsync, then in one
that is killed STEP operations later, and so on until a process survives. The stores and the
acknowledged ends remain in FOLDER.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import perdure
from perdure import assistant, user
from perdure.session.codec import new_side
from perdure.session.notes import SessionEnded
from perdure.stores.protocol import Commit, Write
from tests.fakes.deaths import die_at_each
from tests.fakes.faulty_vfs import faulty_vfs, killing_at

SESSION = "s"


async def live_once(path: Path) -> None:
    """End a session twice, append one more end without an episode, and open the store again."""
    acks = os.open(path.with_suffix(".acks"), os.O_WRONLY | os.O_CREAT)
    address = f"sqlite:///{path.with_suffix('.db')}"
    async with perdure.open(address) as store:
        session = await store.create(id=SESSION)
        for _ in range(2):
            await session.reopen()
            await session.append(user("Hello"), assistant("Hi"))
            await session.end()
            os.write(acks, b"+")
        end = Write(stream=session.id, entries=(new_side(SessionEnded(by="idle")),))
        await store.backend.commit(Commit(writes=(end,), at=store.outside.clock.now_ms()))
        os.write(acks, b"+")
    async with perdure.open(address):
        os.write(acks, b".")


def kill_at_each(folder: Path, step: int) -> None:
    def live(operation: int) -> None:
        with faulty_vfs() as layer:
            layer.plan = killing_at(operation)
            asyncio.run(live_once(folder / f"{operation}"))

    die_at_each(live, step)
