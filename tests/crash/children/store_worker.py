"""Work on a store and be killed at each write, removal and rename, one after the other.

The work is ``backup``, ``restore``, ``repair`` or ``copy``. `kill_at_each` does the work in copies
of FOLDER/original: FOLDER/NNNN is a copy in which the work was killed at that operation.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from perdure.apps.maintenance.backup import back_up
from perdure.apps.maintenance.copy import copy_sessions
from perdure.apps.maintenance.repair import repair_store
from perdure.apps.maintenance.restore import restore_backup
from perdure.client.open import open as open_store
from tests.fakes.deaths import die_at_each
from tests.fakes.faulty_vfs import faulty_vfs, killing_at

_EVENTS = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir")


def address(path: Path) -> str:
    return f"sqlite:///{path}"


async def backup(place: Path) -> None:
    await back_up(address(place / "store.db"), place / "backup")


async def restoring(place: Path) -> None:
    await restore_backup(place / "taken", address(place / "store.db"), is_forced=True)


async def repairing(place: Path) -> None:
    await repair_store(address(place / "store.db"))


async def copying(place: Path) -> None:
    async with (
        open_store(address(place / "store.db")) as source,
        open_store(address(place / "copy.db"), durability="normal") as target,
    ):
        await copy_sessions(source, target)


WORK: dict[str, Callable[[Path], Awaitable[None]]] = {
    "backup": backup,
    "restore": restoring,
    "repair": repairing,
    "copy": copying,
}


def killed(place: Path, work: str, operation: int) -> None:
    with faulty_vfs() as layer:
        plan = layer.plan = killing_at(operation)

        def audit(event: str, _arguments: tuple[object, ...]) -> None:
            if event in _EVENTS:
                plan("write", event, 0)

        sys.addaudithook(audit)
        asyncio.run(WORK[work](place))  # pyright: ignore[reportArgumentType] - each is a coroutine function


def kill_at_each(folder: Path, work: str, step: int) -> None:
    def live(operation: int) -> None:
        place = folder / f"{operation:04}"
        shutil.copytree(folder / "original", place)
        killed(place, work, operation)

    die_at_each(live, step)
