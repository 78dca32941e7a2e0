"""Goals for reading the newest messages of a long session, the whole session, and long lists.

The raw driver reads the same bytes from one table. It decodes messages with msgspec into the types
of the store; it does not decode lists. All operations use the public handles, so that the figures
include the cost of the client.
"""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from typing import cast

import apsw

import perdure
from benchmarks.figures import CLOCK, Figure, Run, Stopwatch, append, create, median, opened
from benchmarks.raw import RawLog
from benchmarks.workload import turns
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import decode_message
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.protocol import Commit, Write

SIZES = (1_000, 30_000)
NEWEST = 50
READS = 500
LOADS = 15
NEWEST_MS = 0.5
FLAT_RATIO = 1.1
LOAD_RATIO = 1.8
MANY = (10_000, 1_000_000)
WARM_MS = 1.0
COLD_MS = 10.0
LISTS = 200
COLD_LISTS = 20


_COUNTED = """
WITH RECURSIVE counted (value) AS (
    VALUES (1) UNION ALL SELECT value + 1 FROM counted WHERE value < ? - 1
)
"""


async def measure_messages(run: Run) -> list[Figure]:
    """Measure the newest messages of a short and a long session, and the whole long session."""
    path, longest = run.folder / "messages.db", SIZES[-1]
    raw = await _fill(run, path)
    async with perdure.open(f"sqlite:///{path}") as store:
        sessions = {size: await store.open(f"session-{size}") for size in SIZES}
        newest = {size: Stopwatch() for size in SIZES}
        raw_newest, load, raw_load = Stopwatch(), Stopwatch(), Stopwatch()
        for _ in range(run.count(READS)):
            for size in SIZES:
                with newest[size]:
                    await sessions[size].messages(last=NEWEST)
            with raw_newest:
                _ = [decode_message(body) for body in raw.newest(NEWEST)]
        for _ in range(LOADS):
            with load:
                loaded = await sessions[longest].messages()
            with raw_load:
                decoded = [decode_message(body) for body in raw.newest(longest)]
            assert len(loaded) == len(decoded)
    raw.close()
    short, long = (median(newest[size].laps_ms) for size in SIZES)
    claim = f"read the newest {NEWEST} messages of an open session"
    whole = f"read all messages of an open session of {longest:,} entries"
    grown = f"p50 with {longest:,} entries, divided by p50 with {SIZES[0]:,} entries"
    took, raw_took = median(load.laps_ms), median(raw_load.laps_ms)
    return [
        Figure(
            claim,
            f"p50 with {longest:,} entries",
            long,
            "ms",
            median(raw_newest.laps_ms),
            NEWEST_MS,
        ),
        Figure(claim, grown, long / short, "x", limit=FLAT_RATIO),
        Figure(whole, "p50", took, "ms", raw_took),
        Figure(
            whole,
            "p50, divided by p50 of raw (read and decode)",
            took / raw_took,
            "x",
            limit=LOAD_RATIO,
        ),
    ]


async def _fill(run: Run, path: Path) -> RawLog:
    """Fill a store with the sessions, and a raw log with the longest session."""
    store = await opened(path, "normal")
    raw = RawLog(run.folder / "raw-messages.db", "normal")
    for size in SIZES:
        stream, count = StreamId(f"session-{size}"), 0
        await create(store, stream)
        for turn in turns(run.seed, size):
            part = turn[: size - count]
            await append(store, stream, part)
            if size == SIZES[-1]:
                raw.append([entry.body for entry in part])
            count += len(part)
            if count == size:
                break
    await store.close()
    return raw


# ---------------------------------------------------------------- lists


async def measure_lists(run: Run) -> list[Figure]:
    """Measure the newest sessions of ten thousand and of a million sessions."""
    figures: list[Figure] = []
    peaks: list[float] = []
    for many in MANY:
        path = run.folder / f"list-{many}.db"
        await _many_sessions(path, run.count(many))
        raw_ms = _raw_list(path)
        cold = await _cold(path)
        warm, peak = await _warm(path)
        peaks.append(peak)
        claim = f"list the newest {NEWEST} of {run.count(many):,} sessions"
        figures += [
            Figure(claim, "p50 of repeated lists in an open store", warm, "ms", raw_ms, WARM_MS),
            Figure(
                claim, "p50 of the first list after opening the store", cold, "ms", limit=COLD_MS
            ),
        ]
    few, many = (f"{run.count(each):,} sessions" for each in MANY)
    claim = f"list the newest {NEWEST} sessions"
    what = f"peak memory with {many}, divided by peak memory with {few}"
    return [*figures, Figure(claim, what, peaks[1] / peaks[0], "x", limit=FLAT_RATIO)]


async def _many_sessions(path: Path, count: int) -> None:
    """Store one session with a title, and copy its rows `count` times."""
    store = await opened(path, "normal")
    stream = StreamId("s0000000")
    header = StreamHeader(stream, CLOCK.now_ms(), title="A session with a title", cwd="/somewhere")
    first = next(turns(1, 1))
    write = Write(stream=stream, create=header, entries=first)
    await store.commit(Commit(writes=(write,), at=header.created_at))
    await store.close()
    db = cast("Connection", apsw.Connection(str(path)))
    for table, key in (("stream", "no"), ("birth", "stream")):
        rows = db.execute(f"PRAGMA table_info({table})").fetchall()
        names = [str(row[1]) for row in rows]
        number = f"{key} + n.value"
        other = {
            key: number,
            "id": "printf('s%07d', n.value)",
            "updated_at": "updated_at + n.value",
            "title": "title || ' number ' || n.value",
        }
        columns = ", ".join(other.get(name, name) for name in names)
        rows_added = f"SELECT {columns} FROM {table}, counted AS n WHERE {key} = 1"
        db.execute(f"{_COUNTED} INSERT INTO {table} ({', '.join(names)}) {rows_added}", (count,))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def _raw_list(path: Path) -> float:
    """Measure reading the same rows with the raw driver, without decoding."""
    db = cast("Connection", apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY))
    watch = Stopwatch()
    sql = "SELECT id, title, updated_at, messages FROM stream ORDER BY no DESC LIMIT ?"
    for _ in range(LISTS):
        with watch:
            _ = db.execute(sql, (NEWEST,)).fetchall()
    db.close()
    return median(watch.laps_ms)


async def _cold(path: Path) -> float:
    laps: list[float] = []
    for _ in range(COLD_LISTS):
        async with perdure.open(f"sqlite:///{path}") as store:
            began = time.perf_counter()
            assert len(await store.recent(limit=NEWEST)) == NEWEST
            laps.append((time.perf_counter() - began) * 1000)
    return median(laps)


async def _warm(path: Path) -> tuple[float, float]:
    """Return the milliseconds of a list, and the peak of its memory, including SQLite's."""
    watch = Stopwatch()
    async with perdure.open(f"sqlite:///{path}") as store:
        for _ in range(LISTS):
            with watch:
                await store.recent(limit=NEWEST)
        apsw.memory_high_water(reset=True)
        before = apsw.memory_used()
        tracemalloc.start()
        await store.recent(limit=NEWEST)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return median(watch.laps_ms), peak + max(0, apsw.memory_high_water() - before)
