"""Claim: with encryption, an append takes at most 1.6 times as long, a resume at most 1.3 times.

Each turn is appended to a plain and an encrypted store, in random order. Each read uses both
stores, too. So both use the same machine at the same time. A resume opens the file again, reads and
decodes the newest messages of the session, or all of them, and closes the file.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from benchmarks.figures import CLOCK, Figure, Run, Stopwatch, append, create, median, size_of
from benchmarks.workload import turns
from perdure.client.clock import system_random
from perdure.session.ids import StreamId
from perdure.stores.key import KEY_BYTES, StoreKey
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.sqlite.writer import Durability

TURNS = 3_000
RESUMES = 200
LOADS = 20
NEWEST = 50
APPEND_RATIO = 1.6
RESUME_RATIO = 1.3
STREAM = StreamId("benchmark")

Keys = Mapping[Path, StoreKey | None]


async def measure(run: Run) -> list[Figure]:
    """Measure appends at both durabilities, resumes of a long session, and bytes on disk."""
    figures: list[Figure] = []
    await _append(run, _keys(run.folder / "full"), "full", figures)
    keys = _keys(run.folder / "normal")
    await _append(run, keys, "normal", figures)
    await _resume(run, keys, NEWEST, run.count(RESUMES), figures)
    await _resume(run, keys, None, max(run.count(LOADS) // 5, 5), figures)
    plain, encrypted = (size_of(path) for path in keys)
    what = "encrypted, divided by not encrypted"
    figures.append(Figure("size of a SQLite file", what, encrypted / plain, "x"))
    return figures


def _keys(folder: Path) -> Keys:
    """Return a plain and an encrypted path with their keys, the plain one first."""
    folder.mkdir()
    return {
        folder / "plain.db": None,
        folder / "encrypted.db": StoreKey(system_random(KEY_BYTES)),
    }


async def _opened(path: Path, key: StoreKey | None, durability: Durability) -> SqliteStore:
    return await SqliteStore.open(
        path, durability=durability, clock=CLOCK, random=system_random, key=key
    )


async def _append(run: Run, keys: Keys, durability: Durability, figures: list[Figure]) -> None:
    stores = {path: await _opened(path, key, durability) for path, key in keys.items()}
    watches = {path: Stopwatch() for path in keys}
    for store in stores.values():
        await create(store, STREAM)
    chance = random.Random(run.seed)
    for turn in turns(run.seed, run.count(TURNS)):
        for path in chance.sample(list(keys), 2):
            with watches[path]:
                await append(stores[path], STREAM, turn)
    for store in stores.values():
        await store.close()
    _compare(f"append a turn, durability {durability}", watches, APPEND_RATIO, figures)


async def _resume(
    run: Run, keys: Keys, newest: int | None, count: int, figures: list[Figure]
) -> None:
    watches = {path: Stopwatch() for path in keys}
    chance = random.Random(run.seed)
    for _ in range(count):
        for path in chance.sample(list(keys), 2):
            with watches[path]:
                await _resume_once(path, keys[path], newest)
    what = "all" if newest is None else f"the newest {newest}"
    _compare(f"open a store, read {what} messages, close", watches, RESUME_RATIO, figures)


async def _resume_once(path: Path, key: StoreKey | None, newest: int | None) -> None:
    store = await _opened(path, key, "normal")
    leaf = (await store.state(STREAM)).leaf
    entries = await store.branch(STREAM, leaf, limit=newest, kind="message")
    assert all(entry.message for entry in entries)
    await store.close()


def _compare(
    claim: str, watches: Mapping[Path, Stopwatch], limit: float, figures: list[Figure]
) -> None:
    plain, encrypted = (median(watch.laps_ms) for watch in watches.values())
    figures.append(Figure(claim, "p50 encrypted (Raw: not encrypted)", encrypted, "ms", plain))
    figures.append(
        Figure(
            claim,
            "p50 encrypted, divided by p50 not encrypted",
            encrypted / plain,
            "x",
            limit=limit,
        )
    )
