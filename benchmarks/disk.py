"""Claim: the file is at most 1.4 times as large as what was written into it."""

from __future__ import annotations

from benchmarks.figures import Figure, Run, append, create, opened, size_of
from benchmarks.raw import RawLog
from benchmarks.workload import payload_bytes, turns
from perdure.session.ids import StreamId

TURNS = 3_000
RATIO = 1.4
STREAM = StreamId("benchmark")


async def measure(run: Run) -> list[Figure]:
    """A file with one commit a turn, closed."""
    raw = RawLog(run.folder / "raw-disk.db", "normal")
    path = run.folder / "disk.db"
    store = await opened(path, "normal")
    await create(store, STREAM)
    payload = 0
    for turn in turns(run.seed, run.count(TURNS)):
        payload += payload_bytes(turn)
        await append(store, STREAM, turn)
        raw.append([entry.body for entry in turn])
    await store.close()
    raw.close()
    of_raw = size_of(run.folder / "raw-disk.db") / payload
    size = size_of(path) / payload
    return [Figure("disk", "file / payload", size, "x", of_raw, RATIO)]
