"""The benchmarks by name, each measured in a new process, so that none affects another.

In one process after other benchmarks, a turn of the engine took 2.7 ms instead of 1.2 ms, because
Python's garbage collector scans the remaining objects of all of them.
"""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks import (
    append,
    cluster,
    concurrent,
    console,
    context,
    disk,
    encryption,
    engine,
    erasing,
    flows,
    fork,
    handles,
    importing,
    kills,
    large,
    live,
    postgres,
    reading,
    search,
    serving,
    sessions,
    turn_costs,
    watchers,
)
from benchmarks.figures import Benchmark, Figure, Run

BENCHMARKS: dict[str, Benchmark] = {
    "append": append.measure,
    "handles": handles.measure,
    "growth": append.measure_growth,
    "concurrent": concurrent.measure,
    "processes": concurrent.measure_processes,
    "same-session": concurrent.measure_same_session,
    "large": large.measure,
    "first-call": large.measure_first_call,
    "messages": sessions.measure_messages,
    "import": importing.measure,
    "lists": sessions.measure_lists,
    "disk": disk.measure,
    "fork": fork.measure,
    "kills": kills.measure,
    "encryption": encryption.measure,
    "postgres": postgres.measure,
    "cluster": cluster.measure,
    "live": live.measure,
    "turn-costs": turn_costs.measure,
    "search": search.measure,
    "postgres-search": postgres.measure_search,
    "jsonl-search": search.measure_jsonl,
    "context": context.measure,
    "engine": engine.measure,
    "erase": erasing.measure,
    "flows": flows.measure,
    "reading": reading.measure,
    "serving": serving.measure,
    "console": console.measure,
    "watchers": watchers.measure,
}


def measured(name: str, folder: str | None, seed: int, *, is_quick: bool) -> list[Figure]:
    """Return the figures of one benchmark, which stores its temporary files in `folder`."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        return alone.submit(_run, name, folder, seed, is_quick=is_quick).result()


def _run(name: str, folder: str | None, seed: int, *, is_quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=folder, prefix="perdure-bench-") as place:
        return asyncio.run(BENCHMARKS[name](Run(Path(place), seed, is_quick)))
