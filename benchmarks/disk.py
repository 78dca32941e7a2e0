"""Goals: a file is at most 1.25 times as large as its data, and with an index at most 2 times.

Each turn is one commit. The file is measured after it is closed. The raw file contains one table
with the same bodies.
"""

from __future__ import annotations

from benchmarks.figures import Figure, Run, append, create, opened, size_of
from benchmarks.raw import RawLog
from benchmarks.workload import payload_bytes, turns
from perdure.session.ids import StreamId
from perdure.session.search.values import SearchQuery

TURNS = 3_000
PLAIN_RATIO = 1.25
INDEXED_RATIO = 2.0
STREAM = StreamId("benchmark")


async def measure(run: Run) -> list[Figure]:
    """Measure the file after the writes, and after a search."""
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
    plain = size_of(path) / payload
    store = await opened(path, "normal")
    await store.search.hits(SearchQuery(text="session"))
    await store.close()
    indexed = size_of(path) / payload
    claim, what = "size of a SQLite file", "divided by the bytes of the entry bodies"
    return [
        Figure(claim, f"{what}, without a search index", plain, "x", of_raw, PLAIN_RATIO),
        Figure(claim, f"{what}, with a search index", indexed, "x", of_raw, INDEXED_RATIO),
    ]
