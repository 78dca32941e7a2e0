"""Goal: appending a turn costs at most 0.25 ms more than the raw driver, also in long logs.

The raw driver and the store each append every turn, so both use the same disk at the same time. A
random order decides which of them is first. The figure *without asyncio and writer
thread* measures appends of the store on the connection of the calling thread.
"""

from __future__ import annotations

import random

from benchmarks.direct import Direct
from benchmarks.figures import Figure, Run, Stopwatch, append, create, median, opened, percentile
from benchmarks.raw import RawLog
from benchmarks.workload import turns
from perdure.session.ids import StreamId
from perdure.stores.sqlite.writer import Durability

TURNS = 5_000
DIRECT_TURNS = 3_000
LONG = 100_000
EXTRA_MS = 0.25
DIRECT_RATIO = 1.2
GROWTH = 1.1
STREAM = StreamId("benchmark")


async def measure(run: Run) -> list[Figure]:
    """Measure appends at both durabilities, and direct appends."""
    return [
        *_cost("full", *await _paired(run, "full", run.count(TURNS))),
        *_cost("normal", *await _paired(run, "normal", run.count(TURNS))),
        await _direct(run),
    ]


async def measure_growth(run: Run) -> list[Figure]:
    """Measure the growth of append times over 100,000 turns, without fsync, which would hide it."""
    raw, store = await _paired(run, "normal", run.count(LONG))
    part = len(store) // 20
    drift = median(raw[-part:]) / median(raw[:part])
    grown = median(store[-part:]) / median(store[:part])
    claim = f"append {len(store):,} turns to one session, durability normal"
    what = "p50 of the last 5 % of appends, divided by p50 of the first 5 %"
    of_raw = "p50 of the last 5 % / p50 of the first 5 %, divided by the same ratio of raw"
    return [
        Figure(claim, what, grown, "x", drift),
        Figure(claim, of_raw, grown / drift, "x", limit=GROWTH),
    ]


async def _paired(run: Run, durability: Durability, count: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of each turn with the raw driver and with the store."""
    raw_ms, store_ms = Stopwatch(), Stopwatch()
    raw = RawLog(run.folder / f"raw-{durability}.db", durability)
    store = await opened(run.folder / f"append-{durability}.db", durability)
    await create(store, STREAM)
    chance = random.Random(run.seed)
    for turn in turns(run.seed, count):
        bodies = [entry.body for entry in turn]
        for is_raw in chance.sample((True, False), 2):
            if is_raw:
                with raw_ms:
                    raw.append(bodies)
            else:
                with store_ms:
                    await append(store, STREAM, turn)
    await store.close()
    raw.close()
    return raw_ms.laps_ms, store_ms.laps_ms


async def _direct(run: Run) -> Figure:
    raw_ms, store_ms = Stopwatch(), Stopwatch()
    raw = RawLog(run.folder / "raw-direct.db", "full")
    store = await opened(run.folder / "direct.db", "full")
    await create(store, STREAM)
    direct = Direct(store)
    chance = random.Random(run.seed)
    for turn in turns(run.seed, run.count(DIRECT_TURNS)):
        bodies = [entry.body for entry in turn]
        for is_raw in chance.sample((True, False), 2):
            if is_raw:
                with raw_ms:
                    raw.append(bodies)
            else:
                with store_ms:
                    direct.append(STREAM, turn)
    direct.close()
    await store.close()
    raw.close()
    p50, raw_p50 = median(store_ms.laps_ms), median(raw_ms.laps_ms)
    what = "p50 without asyncio and writer thread, divided by p50 of raw"
    return Figure("append a turn, durability full", what, p50 / raw_p50, "x", limit=DIRECT_RATIO)


def _cost(durability: str, raw: list[float], store: list[float]) -> list[Figure]:
    claim = f"append a turn, durability {durability}"
    extra = median(store) - median(raw)
    return [
        Figure(claim, "p50", median(store), "ms", median(raw)),
        Figure(claim, "p99", percentile(store, 0.99), "ms", percentile(raw, 0.99)),
        Figure(claim, "p50 minus p50 of raw", extra, "ms", limit=EXTRA_MS),
    ]
