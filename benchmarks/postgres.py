"""Goals: appending a turn to PostgreSQL takes at most 1.3 times as long as the raw driver.

Psycopg and the store append each turn once, on one server with its default durability, so both use
the same disk at the same time. A random order decides which of them is first. The raw driver
inserts the rows of a turn with ``executemany`` in a transaction; the time of a single statement
without a transaction is also shown, as the minimum cost of a commit.
"""

from __future__ import annotations

import asyncio
import random

from benchmarks.children import done_together
from benchmarks.concurrent import (
    PROCESS_ROUNDS,
    PROCESSES,
    TURNS_A_PROCESS,
    Race,
    jobs,
    process_figures,
)
from benchmarks.figures import CLOCK, Figure, Run, Stopwatch, append, median, percentile
from benchmarks.raw import RawServer
from benchmarks.search import searches
from benchmarks.workload import payload_bytes, turns
from perdure.client.clock import system_random
from perdure.session.ids import StreamId, entry_id
from perdure.session.info import ForkPoint, StreamHeader
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.postgres import serving

TURNS = 2_000
RATIO = 1.3
PROCESS_RATIO = 0.8
WINDOW = 50
READS = 300
FORKS = 200
SESSIONS = 8
STREAM = StreamId("benchmark")


async def measure(run: Run) -> list[Figure]:
    """Measure appends, forks and reads, on a server of this benchmark or a given server."""
    with serving(is_quick=False) as server:
        address = server.new_database()
        try:
            store = await PostgresStore.open(address, random=system_random)
            raw = await RawServer.connect(address)
            figures = await _appends(run, store, raw)
            figures += await _concurrent(run, store)
            figures += await _processes(run, store, address)
            figures += await _reads(run, store, raw)
            figures += await _forks(run, store, append_ms=figures[0].value)
            await raw.close()
            await store.close()
        finally:
            server.drop(address)
    return figures


async def measure_search(run: Run) -> list[Figure]:
    """Measure the queries of the benchmark ``search`` in the same number of entries on a server."""
    with serving(is_quick=False) as server:
        address = server.new_database()
        try:
            store = await PostgresStore.open(address, durability="normal", random=system_random)
            figures = await searches(run, store, "PostgreSQL: search")
            await store.close()
        finally:
            server.drop(address)
    return figures


async def _processes(run: Run, store: PostgresStore, address: str) -> list[Figure]:
    """Measure four processes with one session each."""
    count = run.count(TURNS_A_PROCESS)
    races: list[Race] = []
    for number in range(PROCESS_ROUNDS):
        sessions = range(10 * number, 10 * number + PROCESSES)
        for session in sessions:
            await _create(store, StreamId(str(session)))
        # The numbers of the raw driver's sessions are used by no other part of this benchmark.
        alone, raw = (
            range(1_000 + number, 1_001 + number),
            range(2_000 + sessions[0], 2_004 + sessions[0]),
        )
        race = Race(
            alone=await done_together(jobs(run, "raw-postgres", address, alone, count)),
            raw=await done_together(jobs(run, "raw-postgres", address, raw, count)),
            store=await done_together(jobs(run, "postgres", address, sessions, count)),
        )
        races.append(race)
    return process_figures(f"PostgreSQL: {PROCESSES} processes", races, ratio=PROCESS_RATIO)


async def _create(store: PostgresStore, stream: StreamId, fork: ForkPoint | None = None) -> None:
    header = StreamHeader(stream, CLOCK.now_ms(), fork=fork)
    await store.commit(Commit(writes=(Write(stream=stream, create=header),), at=CLOCK.now_ms()))


async def _appends(run: Run, store: PostgresStore, raw: RawServer) -> list[Figure]:
    await _create(store, STREAM)
    watches = {"raw": Stopwatch(), "at once": Stopwatch(), "store": Stopwatch()}
    chance = random.Random(run.seed)
    payload = 0
    for turn in turns(run.seed, run.count(TURNS)):
        bodies = [entry.body for entry in turn]
        payload += payload_bytes(turn)
        for who in chance.sample(list(watches), 3):
            with watches[who]:
                if who == "store":
                    await append(store, STREAM, turn)
                else:
                    await (raw.append if who == "raw" else raw.append_at_once)(bodies)
    ms = {who: watch.laps_ms for who, watch in watches.items()}
    tenth = len(ms["store"]) // 10
    grown = median(ms["store"][-tenth:]) / median(ms["store"][:tenth])
    drift = median(ms["raw"][-tenth:]) / median(ms["raw"][:tenth])
    claim, p50 = "PostgreSQL: append a turn", median(ms["store"])
    at_once = "p50, divided by p50 of raw with one statement, without a transaction"
    growth = "p50 of the last 10 % / p50 of the first 10 %, divided by the same ratio of raw"
    return [
        Figure(claim, "p50", p50, "ms", median(ms["raw"])),
        Figure(claim, "p50, divided by p50 of raw", p50 / median(ms["raw"]), "x", limit=RATIO),
        Figure(claim, at_once, p50 / median(ms["at once"]), "x"),
        Figure(claim, "p99", percentile(ms["store"], 0.99), "ms", percentile(ms["raw"], 0.99)),
        Figure(claim, f"{growth} (Raw: this ratio)", grown / drift, "x", drift),
    ]


async def _concurrent(run: Run, store: PostgresStore) -> list[Figure]:
    """Measure turns per second of several concurrent sessions, compared with one session."""
    count = run.count(TURNS) // SESSIONS
    work = list(turns(run.seed + 1, count))
    streams = [StreamId(f"concurrent-{number}") for number in range(SESSIONS)]
    for stream in streams:
        await _create(store, stream)

    async def write(stream: StreamId) -> None:
        for turn in work:
            await append(store, stream, turn)

    alone, together = Stopwatch(), Stopwatch()
    with alone:
        await write(streams[0])
    with together:
        await asyncio.gather(*map(write, streams))
    rates = [count * many / watch.laps_ms[0] * 1000 for many, watch in ((1, alone), (8, together))]
    claim = f"PostgreSQL: {SESSIONS} concurrent sessions"
    return [
        Figure(claim, "turns appended per second", rates[1], "/s"),
        Figure(
            claim,
            "turns per second, divided by that of one session alone",
            rates[1] / rates[0],
            "x",
        ),
    ]


async def _reads(run: Run, store: PostgresStore, raw: RawServer) -> list[Figure]:
    leaf = (await store.state(STREAM)).leaf
    store_ms, raw_ms = Stopwatch(), Stopwatch()
    for _ in range(run.count(READS)):
        with store_ms:
            await store.branch(STREAM, leaf, limit=WINDOW)
        with raw_ms:
            await raw.newest(WINDOW)
    of_store, of_raw = median(store_ms.laps_ms), median(raw_ms.laps_ms)
    claim = f"PostgreSQL: read the newest {WINDOW} entries of a branch"
    return [Figure(claim, "p50", of_store, "ms", of_raw)]


async def _forks(run: Run, store: PostgresStore, *, append_ms: float) -> list[Figure]:
    head = (await store.state(STREAM)).head
    point = ForkPoint(STREAM, entry_id(STREAM, head), head, "path")
    fork_ms = Stopwatch()
    for number in range(run.count(FORKS)):
        with fork_ms:
            await _create(store, StreamId(f"fork-{number}"), point)
    claim, p50 = "PostgreSQL: fork a session", median(fork_ms.laps_ms)
    return [
        Figure(claim, f"p50 at entry {head:,} of a session", p50, "ms"),
        Figure(claim, "p50, divided by p50 of appending a turn", p50 / append_ms, "x", limit=1),
    ]
