"""Claim: a fork at depth 10,000 costs at most one append, copies no entry and adds 8 kB at most."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.figures import (
    CLOCK,
    Figure,
    Run,
    Stopwatch,
    append,
    create,
    median,
    opened,
    size_of,
)
from benchmarks.raw import RawLog
from benchmarks.workload import turns
from perdure.session.ids import StreamId, entry_id
from perdure.session.info import ForkPoint, StreamHeader
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.store import SqliteStore

DEPTH = 10_000
FORKS = 300
FORK_BYTES = 8_192
ORIGIN = StreamId("origin")


async def measure(run: Run) -> list[Figure]:
    """Forks and appends in an order left to chance, at full durability."""
    path = run.folder / "fork.db"
    await _fill(path, run)
    store = await opened(path, "full")
    raw = RawLog(run.folder / "raw-fork.db", "full")
    before = (await store.info()).entries
    fork_ms, append_ms, raw_ms = Stopwatch(), Stopwatch(), Stopwatch()
    count = run.count(FORKS)
    chance = random.Random(run.seed)
    for number, turn in enumerate(turns(run.seed + 1, count)):
        for what in chance.sample(("fork", "append", "raw"), 3):
            if what == "fork":
                with fork_ms:
                    await _fork(store, number)
            elif what == "append":
                with append_ms:
                    await append(store, StreamId("other"), turn)
            else:
                with raw_ms:
                    raw.append([entry.body for entry in turn])
    copied = (await store.info()).entries - before - sum(map(len, turns(run.seed + 1, count)))
    await store.close()
    raw.close()
    claim = f"fork at depth {DEPTH:,}"
    relative = median(fork_ms.laps_ms) / median(append_ms.laps_ms)
    return [
        Figure(claim, "p50", median(fork_ms.laps_ms), "ms", median(raw_ms.laps_ms)),
        Figure(claim, "of one append, p50", relative, "x", limit=1.0),
        Figure(claim, "entries copied", copied, "entries", limit=0),
        Figure(
            claim, "added to the file", await _bytes_of_a_fork(path, run), "bytes", limit=FORK_BYTES
        ),
    ]


async def _fill(path: Path, run: Run) -> None:
    store = await opened(path, "normal")
    await create(store, ORIGIN)
    await create(store, StreamId("other"))
    entries = [entry for turn in turns(run.seed, DEPTH // 6 + 2) for entry in turn][:DEPTH]
    for start in range(0, DEPTH, 500):
        await append(store, ORIGIN, entries[start : start + 500])
    await store.close()


async def _fork(store: SqliteStore, number: int) -> None:
    fork = ForkPoint(ORIGIN, entry_id(ORIGIN, DEPTH - 1), DEPTH - 1, "path")
    id_ = StreamId(f"fork-{number}")
    header = StreamHeader(id_, CLOCK.now_ms(), fork=fork)
    write = Write(stream=id_, create=header)
    await store.commit(Commit(writes=(write,), at=header.created_at))


async def _bytes_of_a_fork(path: Path, run: Run) -> float:
    """Growth of the closed file, over many forks."""
    before = size_of(path)
    count = run.count(FORKS)
    store = await opened(path, "normal")
    for number in range(count):
        await _fork(store, FORKS + number)
    await store.close()
    return (size_of(path) - before) / count
