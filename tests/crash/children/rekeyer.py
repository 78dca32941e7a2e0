"""Rekey a store and be killed at each write, fsync, removal and renaming, one after the other.

rekeyer.py FOLDER OLD NEW, where a key is ``plain``, ``first`` or ``second``. FOLDER/original.db is
the store; for each operation there is a folder with a copy of it, whose rekey was killed there.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from perdure.stores.key import StoreKey
from perdure.stores.sqlite.upkeep.rekey import rekey
from tests.fakes.faulty_vfs import faulty_vfs, killing_at

KEYS = {"plain": None, "first": StoreKey(b"\x01" * 32), "second": StoreKey(b"\x02" * 32)}
MOST_OPERATIONS = 2_000
_EVENTS = ("os.rename", "os.remove")


def killed_rekey(path: Path, old: str, new: str, operation: int) -> None:
    with faulty_vfs() as layer:
        plan = layer.plan = killing_at(operation)

        def audit(event: str, _arguments: tuple[object, ...]) -> None:
            if event in _EVENTS:
                plan("write", event, 0)

        sys.addaudithook(audit)
        rekey(path, KEYS[old], KEYS[new], lambda _done, _total: None)


def kill_at_each(folder: Path, old: str, new: str) -> None:
    for operation in range(1, MOST_OPERATIONS):
        place = folder / f"{operation:04}"
        place.mkdir()
        path = Path(shutil.copyfile(folder / "original.db", place / "store.db"))
        child = os.fork()
        if child == 0:
            killed_rekey(path, old, new, operation)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            return
    raise AssertionError("a rekey should end")


if __name__ == "__main__":
    kill_at_each(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
