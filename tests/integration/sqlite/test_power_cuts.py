"""A power cut can lose everything that was written since the last sync of its file."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from pathlib import Path

import pytest

from perdure.stores.sqlite.log import checkpoints
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.faulty_vfs import Operation, faulty_vfs
from tests.fakes.streams import S, create, say
from tests.integration.sqlite.conftest import Opener

COMMITS = 60
EVERY = 6
"""The number of commits between two power cuts."""

Write = tuple[int, bytes | None]
"""Offset and bytes of a write; None if the file was truncated at the offset."""


class Disk:
    """The files after a power cut: synced bytes are safe, later writes can be lost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._safe = {"": bytearray(path.read_bytes()), "-wal": bytearray()}
        self._written: defaultdict[str, list[Write]] = defaultdict(list)
        self._local = threading.local()
        self._lock = threading.Lock()

    def plan(self, operation: Operation, name: str, offset: int) -> None:
        """Record an operation; a sync makes the earlier writes of its file safe."""
        end = name.removeprefix(str(self._path))
        with self._lock:
            if operation == "write":
                self._local.offset = offset
            elif operation == "truncate":
                self._written[end].append((offset, None))
            else:
                for write in self._written.pop(end, []):
                    _apply(self._safe[end], write)

    def witness(self, name: str, data: bytes) -> None:
        """Record the bytes of a write."""
        with self._lock:
            self._written[name.removeprefix(str(self._path))].append((self._local.offset, data))

    def cut(self, at: Path, chance: random.Random) -> None:
        """Write to `at` the files that remain if the power fails now."""
        with self._lock:
            for end, safe in self._safe.items():
                left = bytearray(safe)
                for write in self._written[end]:
                    if chance.random() < 0.5:
                        _apply(left, write)
                at.with_name(at.name + end).write_bytes(left)


def _apply(content: bytearray, write: Write) -> None:
    offset, data = write
    if data is None:
        del content[offset:]
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


@pytest.mark.parametrize("seed", range(3))
async def test_commits_that_were_acknowledged_or_read_survive_a_power_cut(
    open_store: Opener, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_PAGES", 20)
    monkeypatch.setattr(checkpoints, "RESTART_PAGES", 60)
    first = await open_store()
    await create(first)
    await first.close()
    chance, disk = random.Random(seed), Disk(path)
    known: dict[Path, int] = {}
    with faulty_vfs() as layer:
        layer.plan, layer.witness = disk.plan, disk.witness
        store = await open_store(durability="full")
        careless = await open_store(durability="normal")
        for number in range(COMMITS):
            is_told = chance.random() < 0.5
            await say(careless if is_told else store, f"{number} " * chance.randint(1, 3_000))
            head = (await store.state(S)).head if is_told else number
            if number % EVERY == 0:
                left = tmp_path / f"cut-{number}.db"
                disk.cut(left, chance)
                known[left] = head
        await store.close()
        await careless.close()

    for left, head in known.items():
        found = await SqliteStore.open(left, clock=ManualClock(), random=SeededRandom(1))
        assert (await found.state(S)).head >= head
        assert (await found.maintenance.verify()).problems == ()
        await found.close()
