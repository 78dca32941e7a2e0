"""Rekey a store and be killed at each write, fsync, removal and rename, one after the other.

A key is ``plain``, ``first`` or ``second``. `kill_at_each` rekeys copies of FOLDER/original.db: for
every STEP-th operation, a folder contains a copy whose rekey was killed at that operation.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from perdure.stores.key import StoreKey
from perdure.stores.sqlite.maintenance.rekey import rekey
from tests.fakes.deaths import die_at_each
from tests.fakes.faulty_vfs import faulty_vfs, killing_at

KEYS = {"plain": None, "first": StoreKey(b"\x01" * 32), "second": StoreKey(b"\x02" * 32)}
_EVENTS = ("os.rename", "os.remove")


def killed_rekey(path: Path, old: str, new: str, operation: int) -> None:
    with faulty_vfs() as layer:
        plan = layer.plan = killing_at(operation)

        def audit(event: str, _arguments: tuple[object, ...]) -> None:
            if event in _EVENTS:
                plan("write", event, 0)

        sys.addaudithook(audit)
        rekey(path, KEYS[old], KEYS[new], lambda _done, _total: None)


def kill_at_each(folder: Path, old: str, new: str, step: int) -> None:
    def live(operation: int) -> None:
        place = folder / f"{operation:04}"
        place.mkdir()
        path = Path(shutil.copyfile(folder / "original.db", place / "store.db"))
        killed_rekey(path, old, new, operation)

    die_at_each(live, step)
