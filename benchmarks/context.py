"""Claim: building a context costs the same with 100,000 entries in a session as with 1,000.

Both sessions are in one store, and end with the same entries after a recent compaction. The two
sessions are read alternately. Memory is the peak of the allocations of Python and of SQLite during
the read.
"""

from __future__ import annotations

import tracemalloc

import apsw

from benchmarks.figures import Figure, Run, Stopwatch, append, create, median, opened
from benchmarks.raw import RawLog
from benchmarks.workload import ENTRIES_A_TURN, turns
from perdure.session.codec import new_tree
from perdure.session.fold import ContextWindow
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.kinds import Compaction
from perdure.stores.sqlite.store import SqliteStore

SIZES = (1_000, 100_000)
KEPT = 30
TURNS_AFTER = 5
READS = 500
RATIO = 1.3


async def measure(run: Run) -> list[Figure]:
    """Measure reads of both sessions, and the raw driver that reads the same number of bodies."""
    store = await opened(run.folder / "context.db", "normal")
    raw = RawLog(run.folder / "raw-context.db", "normal")
    leaves = {size: await _fill(store, run, size) for size in SIZES}
    for turn in turns(run.seed, SIZES[1] // ENTRIES_A_TURN):
        raw.append([entry.body for entry in turn])
    shown = len((await _window(store, *leaves[SIZES[1]])).entries)
    watches = {size: Stopwatch() for size in SIZES}
    raw_ms = Stopwatch()
    for _ in range(run.count(READS)):
        for size in SIZES:
            with watches[size]:
                await _window(store, *leaves[size])
        with raw_ms:
            raw.newest(shown)
    peaks = {size: await _peak_bytes(store, *leaves[size]) for size in SIZES}
    await store.close()
    raw.close()
    small, large = (median(watches[size].laps_ms) for size in SIZES)
    claim = f"build a context of {shown} entries"
    few, many = (f"{size:,}" for size in SIZES)
    memory = f"peak memory with {many} entries, divided by peak memory with {few} entries"
    return [
        Figure(claim, f"p50 in a session of {few} entries", small, "ms", median(raw_ms.laps_ms)),
        Figure(claim, f"p50 in a session of {many} entries", large, "ms", median(raw_ms.laps_ms)),
        Figure(
            claim,
            f"p50 with {many} entries, divided by p50 with {few} entries",
            large / small,
            "x",
            limit=RATIO,
        ),
        Figure(claim, f"peak memory in a session of {many} entries", peaks[SIZES[1]] / 1000, "kB"),
        Figure(claim, memory, peaks[SIZES[1]] / peaks[SIZES[0]], "x", limit=RATIO),
    ]


async def _fill(store: SqliteStore, run: Run, size: int) -> tuple[StreamId, EntryId]:
    stream = StreamId(f"session-{size}")
    await create(store, stream)
    entries = [entry for turn in turns(run.seed, size // ENTRIES_A_TURN + 2) for entry in turn]
    first = size - ENTRIES_A_TURN * TURNS_AFTER - 1
    for start in range(0, first, 500):
        await append(store, stream, entries[start : min(start + 500, first)])
    kept = entry_id(stream, first - KEPT)
    await append(store, stream, [new_tree(Compaction("What happened. " * 60, kept))])
    for turn in turns(run.seed + 1, TURNS_AFTER):
        await append(store, stream, turn)
    leaf = (await store.state(stream)).leaf
    assert leaf is not None
    return stream, leaf


async def _window(store: SqliteStore, stream: StreamId, leaf: EntryId) -> ContextWindow:
    return await store.context_window(stream, leaf)


async def _peak_bytes(store: SqliteStore, stream: StreamId, leaf: EntryId) -> int:
    await _window(store, stream, leaf)
    apsw.memory_high_water(reset=True)
    before = apsw.memory_used()
    tracemalloc.start()
    await _window(store, stream, leaf)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak + max(0, apsw.memory_high_water() - before)
