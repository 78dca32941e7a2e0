"""Goal: 1,000 watchers of idle sessions make other appends at most 1.1 times as expensive.

Two stores in one process contain the same sessions; only one of the stores has the watchers.
Appends alternate between the stores, so that other load of the machine affects both equally. The
cost of an append is the CPU time until the process is idle again. This includes all work that the
append starts.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack

import perdure
from benchmarks.figures import Figure, Run, median
from perdure.session.messages import user
from tests.fakes.postgres import serving

WATCHERS = 1_000
BLOCKS = 120
APPENDS = 10
REST_S = 0.004
IDLE_S = 1.0
MOST = 1.1


async def measure(run: Run) -> list[Figure]:
    """Measure on SQLite and on PostgreSQL."""
    files = [f"sqlite:///{run.folder}/{name}.db" for name in ("watched", "alone")]
    figures = await _figures(run, "SQLite", files[0], files[1])
    with serving(is_own=True) as server:
        figures += await _figures(run, "PostgreSQL", server.new_database(), server.new_database())
    return figures


async def _figures(run: Run, kind: str, watched: str, alone: str) -> list[Figure]:
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(perdure.open(address, durability="normal"))
            for address in (watched, alone)
        ]
        sessions = [await store.create() for store in stores]
        for session in sessions:
            await session.append(user("the first"))
        for _ in range(run.count(WATCHERS)):
            idle = [await store.create() for store in stores]
            for session in idle:
                await session.append(user("and then nothing"))
            watching = asyncio.create_task(_watch(idle[0]))
            stack.callback(watching.cancel)
        await asyncio.sleep(IDLE_S)
        chance = random.Random(run.seed)
        blocks = [
            {name: await _block(sessions[name]) for name in chance.sample((0, 1), 2)}
            for _ in range(run.count(BLOCKS))
        ]
        began = time.process_time()
        await asyncio.sleep(IDLE_S)
        idle_ms = 1000 * (time.process_time() - began) / IDLE_S
    claim = f"{run.count(WATCHERS):,} watchers of idle sessions, {kind}"
    append, without = "an append to another session", "(Raw: without watchers)"
    divided = "divided by that without watchers"
    cpu, wall = ([median([each[name][at] for each in blocks]) for name in (0, 1)] for at in (0, 1))
    return [
        Figure(claim, f"CPU time of {append} {without}", cpu[0], "ms", cpu[1]),
        Figure(claim, f"CPU time of {append}, {divided}", cpu[0] / cpu[1], "x", limit=MOST),
        Figure(claim, f"time of {append} {without}", wall[0], "ms", wall[1]),
        Figure(claim, f"time of {append}, {divided}", wall[0] / wall[1], "x", limit=MOST),
        Figure(claim, "CPU time per second without appends", idle_ms, "ms/s"),
    ]


async def _block(session: perdure.Session) -> tuple[float, float]:
    """Return the CPU time and wall time of an append. Units: milliseconds."""
    began, waited_s = time.process_time(), 0.0
    for _ in range(APPENDS):
        asked = time.perf_counter()
        await session.append(user("elsewhere"))
        waited_s += time.perf_counter() - asked
        await asyncio.sleep(REST_S)
    return 1000 * (time.process_time() - began) / APPENDS, 1000 * waited_s / APPENDS


async def _watch(session: perdure.Session) -> None:
    async for _ in session.watch():
        pass
