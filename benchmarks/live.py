"""Claims: a worker's events reach other processes in 100 ms; without a watcher they cost nothing.

A worker in a separate process streams answers with one delta every 30 ms. A delay is the time from
the publication of an event in the worker to its arrival in this process, on one clock. The cost of
a turn is the CPU time of the worker and of the database server, and the number of transactions.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import psycopg

import perdure
from benchmarks.figures import Figure, Run, percentile
from perdure import Chat, LiveEvent, Runtime
from tests.fakes.postgres import serving
from tests.fakes.worker_program import SLOW, slow_model
from tests.fakes.workers import WorkerProcess, workers

TURNS = 40
AT_ONCE = 4
LIMIT_MS = 100.0

SETTLE_S = 10.5
"""Seconds until the server has counted the transactions of all its processes, even idle ones."""

_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
_PROCESSES = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


async def measure(run: Run) -> list[Figure]:
    """Measure delays, and the cost of a turn with and without a watcher in another process."""
    with serving(is_own=True, is_quick=False) as server:
        address = server.new_database()
        with (
            tempfile.TemporaryDirectory() as folder,
            workers(1, address, Path(folder), factory="slow") as (worker,),
        ):
            return await _measure(run, address, worker)


class _Cost(NamedTuple):
    """The cost of a turn. Units: milliseconds of CPU."""

    worker_ms: float
    server_ms: float
    commits: float


async def _measure(run: Run, address: str, worker: WorkerProcess) -> list[Figure]:
    count = TURNS // 4 if run.is_quick else TURNS
    async with (
        perdure.open(address) as store,
        Runtime(store, agents=[SLOW], models=slow_model(), runner="workers") as runtime,
    ):
        chats = [await runtime.start(SLOW) for _ in range(AT_ONCE)]
        await asyncio.gather(*(_unwatched(chat) for chat in chats))
        alone = await _cost(address, worker, chats, count, _unwatched)
        live: list[float] = []
        durable: list[float] = []

        async def watch(chat: Chat) -> None:
            session = await store.open(chat.id)
            watch = session.watch()
            turn = chat.send("tell me")
            async for event in watch:
                taken = live if isinstance(event, LiveEvent) else durable
                taken.append(time.time() * 1000 - event.at)
                if event.type == "session:turn_completed":
                    break
            await watch.aclose()
            await turn

        watched = await _cost(address, worker, chats, count, watch)
    live_claim, durable_claim = "live event to another process", "durable event to another process"
    claim = "a turn of 120 deltas, run by a worker"
    return [
        Figure(live_claim, "p50 of the delay", percentile(live, 0.5), "ms"),
        Figure(live_claim, "p99 of the delay", percentile(live, 0.99), "ms", limit=LIMIT_MS),
        Figure(durable_claim, "p50 of the delay", percentile(durable, 0.5), "ms"),
        Figure(durable_claim, "p99 of the delay", percentile(durable, 0.99), "ms", limit=LIMIT_MS),
        Figure(claim, "CPU time of the worker, without a watcher", alone.worker_ms, "ms"),
        Figure(claim, "CPU time of the worker, with a watcher", watched.worker_ms, "ms"),
        Figure(claim, "CPU time of the database server, without a watcher", alone.server_ms, "ms"),
        Figure(claim, "CPU time of the database server, with a watcher", watched.server_ms, "ms"),
        Figure(claim, "transactions, without a watcher", alone.commits, ""),
        Figure(claim, "transactions, with a watcher", watched.commits, ""),
    ]


async def _unwatched(chat: Chat) -> None:
    await chat.send("tell me")


async def _cost(
    address: str,
    worker: WorkerProcess,
    chats: list[Chat],
    count: int,
    turn: Callable[[Chat], Awaitable[None]],
) -> _Cost:
    """Return the cost of each of `count` turns, with the background work of worker and server."""

    async def turns(chat: Chat) -> None:
        for _ in range(count // len(chats)):
            await turn(chat)

    with psycopg.connect(address, autocommit=True) as db:
        before = await _spent(db, worker.pid)
        await asyncio.gather(*(turns(chat) for chat in chats))
        after = await _spent(db, worker.pid)
    return _Cost(*((new - old) / count for old, new in zip(before, after, strict=True)))


async def _spent(db: psycopg.Connection, worker: int) -> _Cost:
    await asyncio.sleep(SETTLE_S)
    servers = sum(cpu_ms(row[0]) for row in db.execute(_PROCESSES.encode()))
    row = db.execute(_COMMITS).fetchone()
    assert row is not None
    return _Cost(cpu_ms(worker), servers, row[0])


def cpu_ms(pid: int) -> float:
    """Return the CPU time that a process has used."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return 1000 * sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
