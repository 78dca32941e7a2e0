"""Goal: a fork or a branch at any depth costs at most one append, and adds 8 kB at most."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

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
from benchmarks.workload import ENTRIES_A_TURN, turns
from perdure.session.codec import new_side
from perdure.session.ids import StreamId, entry_id
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.notes import LeafMoved
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.store import SqliteStore

DEPTH = 10_000
FORKS = 300
MOST_BYTES = 8_192
ORIGIN = StreamId("origin")


async def measure(run: Run) -> list[Figure]:
    """Measure forks and appends in random order, at full durability."""
    path = run.folder / "fork.db"
    await _fill(path, run)
    store = await opened(path, "full")
    raw = RawLog(run.folder / "raw-fork.db", "full")
    before = (await store.info()).entries
    fork_ms, branch_ms, append_ms, raw_ms = (Stopwatch() for _ in range(4))
    count = run.count(FORKS)
    chance = random.Random(run.seed)
    for number, turn in enumerate(turns(run.seed + 1, count)):
        for what in chance.sample(("fork", "branch", "append", "raw"), 4):
            if what == "fork":
                with fork_ms:
                    await _fork(store, number)
            elif what == "branch":
                with branch_ms:
                    await _branch(store, chance.randrange(DEPTH))
            elif what == "append":
                with append_ms:
                    await append(store, StreamId("other"), turn)
            else:
                with raw_ms:
                    raw.append([entry.body for entry in turn])
    told = count + sum(map(len, turns(run.seed + 1, count)))  # each branch is an entry
    copied = (await store.info()).entries - before - told
    await store.close()
    raw.close()
    watches = (fork_ms, branch_ms, append_ms, raw_ms)
    of_fork, of_branch, of_append, of_raw = (median(watch.laps_ms) for watch in watches)
    claim, other = (
        f"fork a session of {DEPTH:,} entries",
        f"branch in a session of {DEPTH:,} entries",
    )
    fork_bytes = await _bytes_of(path, run, "fork")
    branch_bytes = await _bytes_of(path, run, "branch")
    return [
        Figure(claim, "p50 (Raw: append a turn)", of_fork, "ms", of_raw),
        Figure(
            claim, "p50, divided by p50 of appending a turn", of_fork / of_append, "x", limit=1.0
        ),
        Figure(claim, "entries copied", copied, "", limit=0),
        Figure(claim, "bytes added to the file per fork", fork_bytes, "B", limit=MOST_BYTES),
        Figure(
            other, "p50, divided by p50 of appending a turn", of_branch / of_append, "x", limit=1.0
        ),
        Figure(other, "bytes added to the file per branch", branch_bytes, "B", limit=MOST_BYTES),
    ]


async def _fill(path: Path, run: Run) -> None:
    store = await opened(path, "normal")
    await create(store, ORIGIN)
    await create(store, StreamId("other"))
    entries = [entry for turn in turns(run.seed, DEPTH // ENTRIES_A_TURN + 2) for entry in turn][
        :DEPTH
    ]
    for start in range(0, DEPTH, 500):
        await append(store, ORIGIN, entries[start : start + 500])
    await store.close()


async def _fork(store: SqliteStore, number: int) -> None:
    fork = ForkPoint(ORIGIN, entry_id(ORIGIN, DEPTH - 1), DEPTH - 1, "path")
    id_ = StreamId(f"fork-{number}")
    header = StreamHeader(id_, CLOCK.now_ms(), fork=fork)
    write = Write(stream=id_, create=header)
    await store.commit(Commit(writes=(write,), at=header.created_at))


async def _branch(store: SqliteStore, seq: int) -> None:
    """Create a branch at the entry `seq`."""
    await append(store, ORIGIN, [new_side(LeafMoved(entry_id(ORIGIN, seq)))])


async def _bytes_of(path: Path, run: Run, what: Literal["fork", "branch"]) -> float:
    """Return the growth of the closed file per fork or branch, averaged over many of them."""
    before = size_of(path)
    count = run.count(FORKS)
    store = await opened(path, "normal")
    for number in range(count):
        if what == "fork":
            await _fork(store, FORKS + number)
        else:
            await _branch(store, number)
    await store.close()
    return (size_of(path) - before) / count
