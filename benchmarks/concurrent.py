"""Goals for 64 concurrent sessions, four processes on one file, and eight writers on one session.

The raw driver commits each turn separately. For 64 sessions, the raw driver is one process without
concurrency. For four processes, the raw driver is one process or four processes, whichever is
faster. The store and the raw driver run alternately, so both use the same disk and machine. The
figures are medians of the rounds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.child import ENTRIES_OF_A_TAGGED_TURN, Job
from benchmarks.children import Together, done_together
from benchmarks.figures import Figure, Run, Stopwatch, append, create, median, opened, percentile
from benchmarks.raw import RawLog
from benchmarks.workload import turns
from perdure.errors import PerdureError
from perdure.session.ids import StreamId
from perdure.stores.session_store import SessionStore

ROUNDS = 5
SESSIONS = 64
TURNS_EACH = 200
RAW_TURNS = 500
GROUP_RATIO = 1.6
TAIL_RATIO = 10.0
PROCESSES = 4
PROCESS_ROUNDS = 3
TURNS_A_PROCESS = 1_500
PROCESS_RATIO = 0.75
STALL_MS = 300.0
WRITERS = 8
TURNS_A_WRITER = 250
SHARED = StreamId("shared")
OVER_RAW = "turns per second, divided by that of raw (one commit per turn)"


async def measure(run: Run) -> list[Figure]:
    """Measure 64 sessions in one process, at durability "full"."""
    count = run.count(TURNS_EACH)
    store = await opened(run.folder / "concurrent.db", "full")
    raw = RawLog(run.folder / "raw-concurrent.db", "full")
    streams = [StreamId(f"session-{number}") for number in range(SESSIONS)]
    for stream in streams:
        await create(store, stream)
    planned = [list(turns(run.seed + number, count)) for number in range(SESSIONS)]
    alone = [[entry.body for entry in turn] for turn in turns(run.seed, RAW_TURNS * ROUNDS)]
    watches = [Stopwatch() for _ in streams]
    errors: list[str] = []

    async def write(number: int, written: slice) -> None:
        for turn in planned[number][written]:
            with watches[number]:
                try:
                    await append(store, streams[number], turn)
                except PerdureError as error:
                    errors.append(str(error))

    rates: list[float] = []
    raw_rates: list[float] = []
    for part, raw_part in zip(_parts(count), _parts(len(alone)), strict=True):
        began = time.perf_counter()
        for bodies in alone[raw_part]:
            raw.append(bodies)
        between = time.perf_counter()
        await asyncio.gather(*(write(number, part) for number in range(SESSIONS)))
        ended = time.perf_counter()
        raw_rates.append((raw_part.stop - raw_part.start) / (between - began))
        rates.append(SESSIONS * (part.stop - part.start) / (ended - between))
    await store.close()
    raw.close()
    laps = [lap for watch in watches for lap in watch.laps_ms]
    claim = f"{SESSIONS} concurrent sessions, one SQLite file, durability full"
    rate, raw_rate = median(rates), median(raw_rates)
    tail = percentile(laps, 0.99) / median(laps)
    return [
        Figure(claim, "turns appended per second", rate, "/s", raw_rate),
        Figure(claim, OVER_RAW, rate / raw_rate, "x", least=GROUP_RATIO),
        Figure(claim, "p50 of an append", median(laps), "ms"),
        Figure(claim, "p99 of an append, divided by p50", tail, "x", limit=TAIL_RATIO),
        Figure(claim, "failed appends", len(errors), "", limit=0),
    ]


def _parts(count: int) -> list[slice]:
    """Return the slice of `count` items for each round."""
    return [slice(count * r // ROUNDS, count * (r + 1) // ROUNDS) for r in range(ROUNDS)]


async def measure_processes(run: Run) -> list[Figure]:
    """Measure four processes with a session each in one file, at durability "full"."""
    return await of_processes(
        run, "store", f"{PROCESSES} processes, one SQLite file, durability full"
    )


async def of_processes(run: Run, kind: str, claim: str) -> list[Figure]:
    """Measure several processes with a store or a handle, and one and several raw processes."""
    count = run.count(TURNS_A_PROCESS)
    path = run.folder / "processes.db"
    races: list[Race] = []
    for number in range(PROCESS_ROUNDS):
        sessions = range(10 * number, 10 * number + PROCESSES)
        store = await opened(path, "full")
        for session in sessions:
            await create(store, StreamId(str(session)))
        await store.close()
        alone, raw = run.folder / "raw-alone.db", run.folder / "raw-processes.db"
        RawLog(alone, "full").close()
        RawLog(raw, "full").close()
        race = Race(
            alone=await done_together(jobs(run, "raw", alone, sessions[:1], count)),
            raw=await done_together(jobs(run, "raw", raw, sessions, count)),
            store=await done_together(jobs(run, kind, path, sessions, count)),
        )
        races.append(race)
    return process_figures(claim, races, ratio=PROCESS_RATIO, stall_ms=STALL_MS)


def jobs(run: Run, kind: str, where: Path | str, sessions: range, count: int) -> list[Job]:
    """Return a job for each of `sessions`."""
    return [
        Job(kind=kind, where=str(where), writers=((name, name),), count=count, seed=run.seed + seed)
        for seed, name in enumerate(map(str, sessions))
    ]


class Race(msgspec.Struct, frozen=True):
    """The outcomes of one raw process, of several, and of the same number of store processes."""

    alone: Together
    raw: Together
    store: Together


def process_figures(
    claim: str, races: Sequence[Race], *, ratio: float, stall_ms: float | None = None
) -> list[Figure]:
    """Return the figures of several concurrent processes compared with the raw driver."""
    rate = median([race.store.rate for race in races])
    raw_rate = median([race.raw.rate for race in races])
    best = max(raw_rate, median([race.alone.rate for race in races]))
    stall = max(lap for race in races for lap in race.store.laps_ms)
    raw_stall = max(lap for race in races for lap in race.raw.laps_ms)
    errors = sum(len(race.store.errors) for race in races)
    fastest = f"the faster of 1 and {PROCESSES} raw processes"
    return [
        Figure(claim, f"turns appended per second (Raw: {fastest})", rate, "/s", best),
        Figure(
            claim, f"turns per second, divided by that of {fastest}", rate / best, "x", least=ratio
        ),
        Figure(
            claim,
            f"turns per second, divided by that of {PROCESSES} raw processes",
            rate / raw_rate,
            "x",
        ),
        Figure(claim, "slowest append", stall, "ms", raw_stall, stall_ms),
        Figure(claim, "failed appends", errors, "", limit=0),
    ]


async def measure_same_session(run: Run) -> list[Figure]:
    """Measure eight writers in four processes that append turns to one session."""
    path, count = run.folder / "same.db", run.count(TURNS_A_WRITER)
    store = await opened(path, "full")
    await create(store, SHARED)
    writers = [
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
    together = await done_together(writers)
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
    claim = f"{WRITERS} concurrent writers in {WRITERS // 2} processes, one session"
    return [
        Figure(claim, "entries lost", len(written - times.keys()), "", limit=0),
        Figure(claim, "entries stored twice", sum(n - 1 for n in times.values()), "", limit=0),
        Figure(
            claim, "turns interleaved with another turn", len(said) // size - whole, "", limit=0
        ),
        Figure(claim, "turns rejected", rejected, "", limit=0),
    ]
