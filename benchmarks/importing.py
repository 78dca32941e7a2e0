"""Goals: ``import perdure`` takes at most 150 ms, and opening a store at most 5 ms.

The time of an import does not include the start of the interpreter. The process that opens a store
has opened another store before. The time to open a store includes its first answer: whether a
session exists.
"""

from __future__ import annotations

import asyncio
import sys

import perdure
from benchmarks.figures import Figure, Run, Stopwatch, create, median, opened
from perdure.session.ids import StreamId

STARTS = 21
OPENINGS = 100
IMPORT_MS = 150.0
OPEN_MS = 5.0
FIRST_USE = "import perdure; perdure.open, perdure.user, perdure.Runtime, perdure.Agent"


async def measure(run: Run) -> list[Figure]:
    """Measure how long it takes to import perdure, to use its first names and to open a store."""
    nothing, imported, used = Stopwatch(), Stopwatch(), Stopwatch()
    for _ in range(run.count(STARTS * 10) // 10):
        for watch, program in (
            (nothing, "pass"),
            (imported, "import perdure"),
            (used, FIRST_USE),
        ):
            with watch:
                process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
                await process.wait()
    start = median(nothing.laps_ms)
    without = "without the start of Python"
    used_names = "p50 with the first use of open, user, Runtime and Agent"
    import_ms = median(imported.laps_ms) - start
    return [
        Figure(
            "import perdure", f"p50 {without} (Raw: this start)", import_ms, "ms", start, IMPORT_MS
        ),
        Figure("import perdure", f"{used_names}, {without}", median(used.laps_ms) - start, "ms"),
        await _open(run),
    ]


async def _open(run: Run) -> Figure:
    path = run.folder / "open.db"
    store = await opened(path, "full")
    await create(store, StreamId("here"))
    await store.close()
    watch = Stopwatch()
    for _ in range(OPENINGS):
        opening = perdure.open(f"sqlite:///{path}")
        with watch:
            one = await opening.__aenter__()
            await one.open("here")
        await opening.__aexit__(None, None, None)
    p50 = median(watch.laps_ms)
    return Figure(
        "open a SQLite store", "p50, including the lookup of one session", p50, "ms", limit=OPEN_MS
    )
