"""Goal: appending a turn costs at most 0.25 ms more than the raw driver, also in long logs.

The raw driver and the store each append every turn, so both use the same disk at the same time. A
random order decides which of them is first. The figure *called directly* measures appends of the
store on the connection of the calling thread, without asyncio and without the writer's thread.
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
    what = f"p50 of the last twentieth of {len(store):,} / the first"
    return [
        Figure("append stays flat", what, grown, "x", drift),
        Figure("append stays flat", "the same, over raw's", grown / drift, "x", limit=GROWTH),
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
    what = "called directly, p50 over raw"
    return Figure("append a turn, full", what, p50 / raw_p50, "x", limit=DIRECT_RATIO)


def _cost(durability: str, raw: list[float], store: list[float]) -> list[Figure]:
    claim = f"append a turn, {durability}"
    extra = median(store) - median(raw)
    return [
        Figure(claim, "p50", median(store), "ms", median(raw)),
        Figure(claim, "p99", percentile(store, 0.99), "ms", percentile(raw, 0.99)),
        Figure(claim, "p50 above raw", extra, "ms", limit=EXTRA_MS),
    ]
