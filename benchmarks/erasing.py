"""Goal: erasing a session has a constant cost for each of its forks, and blocks no other session.

The first session of a chain of forks of forks is erased. During the erasure, other sessions of the
store append, and the wait of each append is measured. Statements and rows are counted in a copy of
the store, because counting itself takes time.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

import perdure
from benchmarks.figures import CLOCK, Figure, Run, Stopwatch, opened, percentile
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.messages import user
from perdure.stores.protocol import Commit, Write

FORKS = (250, 1_000, 4_000)
MOST_GROWTH = 1.3
P99_MS, WORST_MS = 50.0, 250.0
PAUSE_S = 0.002
OTHERS = 8
"""The number of sessions that append during the erasure, each one entry after the other."""

BEFORE_S = 0.1
"""Seconds in which the other sessions append before the erasure, and again after it."""

FIRST = StreamId("first")


class _Erased(msgspec.Struct, frozen=True):
    """The cost of erasing the origin of many forks. Units: milliseconds of CPU and wait time."""

    forks: int
    cpu_ms: float
    waits_ms: list[float]
    statements: int
    rows: int


async def measure(run: Run) -> list[Figure]:
    """Measure erasures in chains of three lengths."""
    lengths = [number // 10 for number in FORKS] if run.is_quick else FORKS
    return _figures([await _erased(run.folder, number) for number in lengths])


def _figures(found: Sequence[_Erased]) -> list[Figure]:
    figures: list[Figure] = []
    least = found[0]
    appends = "appends to other sessions"
    than = f"divided by the figure for {least.forks:,} forks"
    for each in found:
        claim = f"erase a session and keep its {each.forks:,} forks"
        cpu, statements, rows = (
            (each.cpu_ms / each.forks) / (least.cpu_ms / least.forks),
            (each.statements / each.forks) / (least.statements / least.forks),
            (each.rows / each.forks) / (least.rows / least.forks),
        )
        figures += [
            Figure(claim, "CPU time per fork", each.cpu_ms / each.forks, "ms"),
            Figure(claim, f"CPU time per fork, {than}", cpu, "x", limit=MOST_GROWTH),
            Figure(claim, "SQL statements", each.statements, ""),
            Figure(claim, f"SQL statements per fork, {than}", statements, "x", limit=1.15),
            Figure(claim, "rows changed", each.rows, ""),
            Figure(claim, f"rows changed per fork, {than}", rows, "x", limit=1.15),
            Figure(claim, f"p99 of {appends}", percentile(each.waits_ms, 0.99), "ms", limit=P99_MS),
            Figure(
                claim, "slowest append to another session", max(each.waits_ms), "ms", limit=WORST_MS
            ),
            Figure(claim, f"number of {appends}", len(each.waits_ms), ""),
        ]
    return figures


async def _erased(folder: Path, forks: int) -> _Erased:
    path, copy = folder / f"erase-{forks}.db", folder / f"erase-{forks}-counted.db"
    await _chain(path, forks)
    shutil.copy(path, copy)
    statements, rows = await _counted(copy)
    async with perdure.open(f"sqlite:///{path}") as store:
        others = [await store.create() for _ in range(OTHERS)]
        watches = [Stopwatch() for _ in others]
        pairs = zip(others, watches, strict=True)
        writing = [asyncio.create_task(_write(each, watch)) for each, watch in pairs]
        await asyncio.sleep(BEFORE_S)
        began = time.process_time()
        await store.erase(FIRST, forks="keep")
        cpu_ms = 1000 * (time.process_time() - began)
        await asyncio.sleep(BEFORE_S)
        for each in writing:
            each.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
    waits = [lap for watch in watches for lap in watch.laps_ms]
    return _Erased(forks, cpu_ms, waits, statements, rows)


async def _write(session: perdure.Session, watch: Stopwatch) -> None:
    while True:
        with watch:
            await session.append(user("meanwhile"))
        await asyncio.sleep(PAUSE_S)


async def _chain(path: Path, forks: int) -> None:
    """Create a session with entries, and a chain of forks of forks with one entry each."""
    async with perdure.open(f"sqlite:///{path}", durability="normal") as store:
        session = await store.create(id=FIRST)
        for number in range(20):
            await session.append(user(f"entry {number}"))
    store = await opened(path, "normal")
    origin = FIRST
    for number in range(forks):
        state = await store.state(origin)
        stream = StreamId(f"fork-{number}")
        point = ForkPoint(origin, state.leaf, state.head, "tree")
        header = StreamHeader(stream, CLOCK.now_ms(), parent=origin, fork=point)
        said = new_tree(user(f"fork {number}"))
        write = Write(stream=stream, create=header, entries=(said,))
        await store.commit(Commit(writes=(write,), at=header.created_at))
        origin = stream
    await store.close()


async def _counted(path: Path) -> tuple[int, int]:
    """Return the number of statements and changed rows of an erasure, on all connections."""
    statements = 0
    changes: dict[int, tuple[int, int]] = {}  # connection -> its rows at first, and at last

    def count(event: dict[str, Any]) -> None:
        nonlocal statements
        statements += event["code"] == apsw.SQLITE_TRACE_STMT
        connection = id(event["connection"])
        first, _ = changes.get(connection, (event["total_changes"], 0))
        changes[connection] = first, event["total_changes"]

    def watched(connection: Any) -> None:  # trace_v2 has a type that is known in part only
        connection.trace_v2(apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE, count)

    apsw.connection_hooks.append(watched)
    try:
        async with perdure.open(f"sqlite:///{path}") as store:
            await (await store.create()).append(user("before"))
            statements = 0
            changes.clear()
            await store.erase(FIRST, forks="keep")
            return statements, sum(last - first for first, last in changes.values())
    finally:
        apsw.connection_hooks.remove(watched)
