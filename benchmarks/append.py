"""Claim: appending a turn costs at most 0.3 ms more than the raw driver, and never more later.

Each turn is appended once by the raw driver and once through asyncio and the store, so that both
meet the same disk at the same moment; which of them goes first is left to chance.
"""

from __future__ import annotations

import random

from benchmarks.figures import Figure, Run, Stopwatch, append, create, median, opened, percentile
from benchmarks.raw import RawLog
from benchmarks.workload import turns
from perdure.session.ids import StreamId
from perdure.stores.sqlite.writer import Durability

TURNS = 10_000
EXTRA_MS = 0.3
GROWTH = 1.2
STREAM = StreamId("benchmark")


async def measure(run: Run) -> list[Figure]:
    """Both durabilities; growth at the one where no fsync hides it."""
    full = await _paired(run, "full", run.count(TURNS))
    normal = await _paired(run, "normal", TURNS)
    return [
        *_cost("full", *full, limit=EXTRA_MS),
        *_cost("normal", *normal, limit=None),
        _growth(*normal),
    ]


async def _paired(run: Run, durability: Durability, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each turn: the raw driver's and the store's."""
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


def _cost(
    durability: str, raw: list[float], store: list[float], *, limit: float | None
) -> list[Figure]:
    claim = f"append a turn, {durability}"
    extra = median(store) - median(raw)
    return [
        Figure(claim, "p50", median(store), "ms", median(raw)),
        Figure(claim, "p99", percentile(store, 0.99), "ms", percentile(raw, 0.99)),
        Figure(claim, "p50 above raw", extra, "ms", limit=limit),
    ]


def _growth(raw: list[float], store: list[float]) -> Figure:
    """How the last tenth of the turns compares with the first, the disk's own drift taken out."""
    tenth = len(store) // 10
    drift = median(raw[-tenth:]) / median(raw[:tenth])
    grown = median(store[-tenth:]) / median(store[:tenth])
    what = f"p50 of the last tenth of {len(store):,} / the first, over raw's"
    return Figure("append stays flat", what, grown / drift, "x", drift, GROWTH)
