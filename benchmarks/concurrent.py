"""Goals: 64 sessions at once, four processes on one file, eight writers on one session.

The raw driver commits each turn by itself. Beside 64 sessions it is one process that does nothing
else; beside four processes it is whatever the raw driver is better at: alone, or four at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

from benchmarks.child import ENTRIES_OF_A_TAGGED_TURN, Job
from benchmarks.children import Together, done_together
from benchmarks.figures import Figure, Run, Stopwatch, append, create, median, opened, percentile
from benchmarks.raw import RawLog
from benchmarks.workload import turns
from perdure.errors import PerdureError
from perdure.session.ids import StreamId
from perdure.stores.protocol import SessionStore

SESSIONS = 64
TURNS_EACH = 100
GROUP_RATIO = 1.6
TAIL_RATIO = 10.0
PROCESSES = 4
TURNS_A_PROCESS = 1_500
PROCESS_RATIO = 0.75
STALL_MS = 300.0
WRITERS = 8
TURNS_A_WRITER = 250
SHARED = StreamId("shared")


async def measure(run: Run) -> list[Figure]:
    """64 sessions in one process, at durability "full"."""
    count = run.count(TURNS_EACH)
    raw = _raw_rate(run, "before", count * SESSIONS)
    store = await opened(run.folder / "concurrent.db", "full")
    streams = [StreamId(f"session-{number}") for number in range(SESSIONS)]
    for stream in streams:
        await create(store, stream)
    planned = [list(turns(run.seed + number, count)) for number in range(SESSIONS)]
    watches = [Stopwatch() for _ in streams]
    errors: list[str] = []

    async def write(number: int) -> None:
        for turn in planned[number]:
            with watches[number]:
                try:
                    await append(store, streams[number], turn)
                except PerdureError as error:
                    errors.append(str(error))

    began = time.perf_counter()
    await asyncio.gather(*map(write, range(SESSIONS)))
    rate = count * SESSIONS / (time.perf_counter() - began)
    await store.close()
    raw = max(raw, _raw_rate(run, "after", count * SESSIONS))
    laps = [lap for watch in watches for lap in watch.laps_ms]
    claim = f"{SESSIONS} sessions at once, one file, full"
    tail = percentile(laps, 0.99) / median(laps)
    return [
        Figure(claim, "turns a second", rate, "/s", raw),
        Figure(claim, "over raw, one commit a turn", rate / raw, "x", least=GROUP_RATIO),
        Figure(claim, "p50", median(laps), "ms"),
        Figure(claim, "p99 / p50", tail, "x", limit=TAIL_RATIO),
        Figure(claim, "errors", len(errors), "", limit=0),
    ]


def _raw_rate(run: Run, when: str, count: int) -> float:
    """Turns a second of the raw driver, which commits each one."""
    log = RawLog(run.folder / f"raw-{when}.db", "full")
    planned = [[entry.body for entry in turn] for turn in turns(run.seed, min(count, 1_000))]
    began = time.perf_counter()
    for bodies in planned:
        log.append(bodies)
    rate = len(planned) / (time.perf_counter() - began)
    log.close()
    return rate


async def measure_processes(run: Run) -> list[Figure]:
    """Four processes, each with a session of its own in one file, at durability "full"."""
    count = run.count(TURNS_A_PROCESS)
    alone = await done_together(_raw_jobs(run, run.folder / "raw-alone.db", 1, count))
    raw = await done_together(_raw_jobs(run, run.folder / "raw-processes.db", PROCESSES, count))
    path = run.folder / "processes.db"
    store = await opened(path, "full")
    for number in range(PROCESSES):
        await create(store, StreamId(str(number)))
    await store.close()
    jobs = [
        Job(kind="store", where=str(path), writers=((n, n),), count=count, seed=run.seed + int(n))
        for n in map(str, range(PROCESSES))
    ]
    together = await done_together(jobs)
    claim = f"{PROCESSES} processes, one file, full"
    return process_figures(claim, together, alone, raw, ratio=PROCESS_RATIO, stall_ms=STALL_MS)


def _raw_jobs(run: Run, path: Path, processes: int, count: int) -> list[Job]:
    RawLog(path, "full").close()
    return [
        Job(kind="raw", where=str(path), writers=((n, n),), count=count, seed=run.seed + int(n))
        for n in map(str, range(processes))
    ]


def process_figures(
    claim: str,
    together: Together,
    alone: Together,
    raw: Together,
    *,
    ratio: float,
    stall_ms: float | None = None,
) -> list[Figure]:
    """How several processes at once compare with the raw driver."""
    best = max(alone.rate, raw.rate)
    stall = max(together.laps_ms)
    return [
        Figure(claim, "turns a second", together.rate, "/s", best),
        Figure(claim, "over raw, alone or as many at once", together.rate / best, "x", least=ratio),
        Figure(claim, "over raw, as many at once", together.rate / raw.rate, "x"),
        Figure(claim, "worst stall", stall, "ms", max(raw.laps_ms), stall_ms),
        Figure(claim, "errors", len(together.errors), "", limit=0),
    ]


async def measure_same_session(run: Run) -> list[Figure]:
    """Eight writers in four processes append turns to one session."""
    path, count = run.folder / "same.db", run.count(TURNS_A_WRITER)
    store = await opened(path, "full")
    await create(store, SHARED)
    jobs = [
        Job(
            kind="store",
            where=str(path),
            writers=((f"a{number}", SHARED), (f"b{number}", SHARED)),
            count=count,
            seed=run.seed,
            is_tagged=True,
        )
        for number in range(WRITERS // 2)
    ]
    together = await done_together(jobs)
    figures = await _order(store, count, len(together.errors))
    await store.close()
    return figures


async def _order(store: SessionStore, count: int, rejected: int) -> list[Figure]:
    said = [entry.message.text for entry in await store.entries(SHARED) if entry.message]
    names = [f"{side}{number}" for side in "ab" for number in range(WRITERS // 2)]
    parts = range(ENTRIES_OF_A_TAGGED_TURN)
    written = {f"{name} {turn} {part}" for name in names for turn in range(count) for part in parts}
    times = Counter(said)
    size = ENTRIES_OF_A_TAGGED_TURN
    whole = sum(
        {text.rpartition(" ")[0] for text in said[at : at + size]} == {said[at].rpartition(" ")[0]}
        for at in range(0, len(said), size)
    )
    claim = f"{WRITERS} writers in {WRITERS // 2} processes, one session"
    return [
        Figure(claim, "entries lost", len(written - times.keys()), "", limit=0),
        Figure(claim, "entries twice", sum(n - 1 for n in times.values()), "", limit=0),
        Figure(claim, "turns interleaved", len(said) // size - whole, "", limit=0),
        Figure(claim, "turns rejected", rejected, "", limit=0),
    ]
