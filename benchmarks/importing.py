"""Claim: ``import perdure`` takes less than 120 ms, the interpreter's own start not counted."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.figures import Figure, Run, Stopwatch, median

STARTS = 21
LIMIT_MS = 120.0
FIRST_USE = "import perdure; perdure.open, perdure.user, perdure.Runtime, perdure.Agent"


async def measure(run: Run) -> list[Figure]:
    """New processes that import perdure, use its first names, or do nothing, in turn."""
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
    return [
        Figure("import perdure", "p50", median(imported.laps_ms) - start, "ms", start, LIMIT_MS),
        Figure("import perdure", "p50 with its first names", median(used.laps_ms) - start, "ms"),
    ]
