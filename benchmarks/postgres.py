"""Claim: appending a turn to PostgreSQL costs at most 1.3 times what the raw driver needs for it.

Each turn is appended once by psycopg directly and once through the store, on one server with its
default durability, so that both meet the same disk at the same moment; which of them goes first is
left to chance. The raw driver inserts the rows of a turn by ``executemany`` in a transaction; what
a single statement without one needs is shown beside it: the least a commit can cost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from benchmarks.figures import CLOCK, Figure, Run, Stopwatch, median, percentile
from benchmarks.workload import payload_bytes, turns
from perdure.client.clock import system_random
from perdure.session.entries import NewEntry
from perdure.session.ids import StreamId, entry_id
from perdure.session.info import ForkPoint, StreamHeader
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.postgres import serving

TURNS = 2_000
RATIO = 1.3
WINDOW = 50
READS = 300
FORKS = 200
SESSIONS = 8
STREAM = StreamId("benchmark")

_TABLE = """
CREATE TABLE raw (
    n bigserial PRIMARY KEY, session bigint, seq bigint, body bytea, UNIQUE (session, seq)
)
"""


async def measure(run: Run) -> list[Figure]:
    """Appends, forks and reads, on a server of this benchmark's own or the one that is named."""
    with serving(is_quick=False) as server:
        address = server.new_database()
        try:
            store = await PostgresStore.open(address, random=system_random)
            raw = await _Raw.connect(address)
            figures = await _appends(run, store, raw)
            figures += await _concurrent(run, store)
            figures += await _reads(run, store, raw)
            figures += await _forks(run, store)
            await raw.close()
            await store.close()
        finally:
            server.drop(address)
    return figures


class _Raw:
    """One table of bodies, written by somebody who knows PostgreSQL and nothing else."""

    def __init__(self, db: AsyncConnection[tuple[Any, ...]]) -> None:
        self._db = db
        self._seqs = [0, 0]

    @classmethod
    async def connect(cls, address: str) -> _Raw:
        """The table, made."""
        db = await AsyncConnection.connect(address, autocommit=True)
        await db.execute(_TABLE)
        return cls(db)

    async def append(self, bodies: Sequence[bytes]) -> None:
        """One transaction."""
        rows = [
            (1, seq, body) for seq, body in zip(self._next(0, len(bodies)), bodies, strict=True)
        ]
        sql = "INSERT INTO raw (session, seq, body) VALUES (%s, %s, %s)"
        async with self._db.transaction(), self._db.cursor() as cursor:
            await cursor.executemany(sql, rows)

    async def append_at_once(self, bodies: Sequence[bytes]) -> None:
        """One statement."""
        sql = """
        INSERT INTO raw (session, seq, body)
        SELECT 2, r.seq, r.body FROM unnest(%s::bigint[], %s::bytea[]) AS r (seq, body)
        """
        await self._db.execute(sql, (self._next(1, len(bodies)), list(bodies)), prepare=True)

    async def newest(self, count: int) -> list[bytes]:
        """The bodies of the newest entries, oldest first."""
        sql = "SELECT body FROM raw WHERE session = 1 ORDER BY seq DESC LIMIT %s"
        cursor = await self._db.execute(sql, (count,), binary=True, prepare=True)
        return [row[0] for row in await cursor.fetchall()][::-1]

    async def close(self) -> None:
        """Let go of the connection."""
        await self._db.close()

    def _next(self, session: int, count: int) -> list[int]:
        first = self._seqs[session]
        self._seqs[session] += count
        return list(range(first, first + count))


async def _append(store: PostgresStore, stream: StreamId, turn: Sequence[NewEntry]) -> None:
    write = Write(stream=stream, entries=tuple(turn))
    await store.commit(Commit(writes=(write,), at=CLOCK.now_ms()))


async def _create(store: PostgresStore, stream: StreamId, fork: ForkPoint | None = None) -> None:
    header = StreamHeader(stream, CLOCK.now_ms(), fork=fork)
    await store.commit(Commit(writes=(Write(stream=stream, create=header),), at=CLOCK.now_ms()))


async def _appends(run: Run, store: PostgresStore, raw: _Raw) -> list[Figure]:
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
                    await _append(store, STREAM, turn)
                else:
                    await (raw.append if who == "raw" else raw.append_at_once)(bodies)
    ms = {who: watch.laps_ms for who, watch in watches.items()}
    tenth = len(ms["store"]) // 10
    grown = median(ms["store"][-tenth:]) / median(ms["store"][:tenth])
    drift = median(ms["raw"][-tenth:]) / median(ms["raw"][:tenth])
    claim, p50 = "PostgreSQL: append a turn", median(ms["store"])
    return [
        Figure(claim, "p50", p50, "ms", median(ms["raw"])),
        Figure(claim, "p50 over raw", p50 / median(ms["raw"]), "x", limit=RATIO),
        Figure(claim, "p50 over raw in one statement", p50 / median(ms["at once"]), "x"),
        Figure(claim, "p99", percentile(ms["store"], 0.99), "ms", percentile(ms["raw"], 0.99)),
        Figure(claim, "last tenth / first, over raw's", grown / drift, "x", drift),
    ]


async def _concurrent(run: Run, store: PostgresStore) -> list[Figure]:
    """Turns per second of several sessions at once, beside one session's."""
    count = run.count(TURNS) // SESSIONS
    work = list(turns(run.seed + 1, count))
    streams = [StreamId(f"concurrent-{number}") for number in range(SESSIONS)]
    for stream in streams:
        await _create(store, stream)

    async def write(stream: StreamId) -> None:
        for turn in work:
            await _append(store, stream, turn)

    alone, together = Stopwatch(), Stopwatch()
    with alone:
        await write(streams[0])
    with together:
        await asyncio.gather(*map(write, streams))
    rates = [count * many / watch.laps_ms[0] * 1000 for many, watch in ((1, alone), (8, together))]
    claim = f"PostgreSQL: {SESSIONS} sessions at once"
    return [
        Figure(claim, "turns per second", rates[1], "/s"),
        Figure(claim, "over one session alone", rates[1] / rates[0], "x"),
    ]


async def _reads(run: Run, store: PostgresStore, raw: _Raw) -> list[Figure]:
    leaf = (await store.state(STREAM)).leaf
    store_ms, raw_ms = Stopwatch(), Stopwatch()
    for _ in range(run.count(READS)):
        with store_ms:
            await store.branch(STREAM, leaf, limit=WINDOW)
        with raw_ms:
            await raw.newest(WINDOW)
    of_store, of_raw = median(store_ms.laps_ms), median(raw_ms.laps_ms)
    return [Figure(f"PostgreSQL: newest {WINDOW} of a branch", "p50", of_store, "ms", of_raw)]


async def _forks(run: Run, store: PostgresStore) -> list[Figure]:
    head = (await store.state(STREAM)).head
    point = ForkPoint(STREAM, entry_id(STREAM, head), head, "path")
    fork_ms = Stopwatch()
    for number in range(run.count(FORKS)):
        with fork_ms:
            await _create(store, StreamId(f"fork-{number}"), point)
    return [Figure("PostgreSQL: fork", f"p50 at depth {head:,}", median(fork_ms.laps_ms), "ms")]
