"""Claim: the histories of every recording program are parsed at 50 MB/s or more on one core.

Parsing includes all steps from bytes to items. The raw figure is for msgspec, which only decodes
the same lines. Times are CPU time, not wall time. Memory is the peak of Python's allocations while
a file is parsed, including the bytes of the file. The import of files into a store is measured in
wall time, with durability "full".
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.figures import CLOCK, Figure, Run, opened
from benchmarks.histories import chats, histories
from perdure.client.clock import system_random
from perdure.interop.bulk import import_files
from perdure.interop.formats.registry import FORMATS

BY_NAME = {str(name): each for name, each in FORMATS.items()}

TURNS = 1_500
CHATS = 10_000
FILES = 2_000
REPEATS = 5
MS_PER_MB = 20.0
"""Limit of the time per MB: 20 ms are 50 MB/s."""
BYTES_PER_BYTE = 3.0
TIME = "CPU time per MB (Raw: decode the JSON)"


async def measure(run: Run) -> list[Figure]:
    """Measure time and memory of each format, and the import of a folder of small files."""
    figures: list[Figure] = []
    for format, content in (await histories(run.seed, run.count(TURNS))).items():
        claim = f"parse a history of {format}, {len(content) / 1e6:.0f} MB"
        parsing = _ms_per_mb(content, lambda it, name=format: BY_NAME[name].parse(it, None))
        decoding = _ms_per_mb(content, _decode)
        peak = _peak_bytes(content, format) / len(content)
        figures += [
            Figure(claim, TIME, parsing, "ms", decoding, MS_PER_MB),
            Figure(
                claim, "peak memory, divided by the file's size", peak, "x", limit=BYTES_PER_BYTE
            ),
        ]
    for format, content in (await chats(run.count(CHATS))).items():
        size = len(content) // content.count(b"\n")
        parsing = _ms_per_mb(content, lambda it, name=format: BY_NAME[name].parse(it, None))
        decoding = _ms_per_mb(content, _decode)
        claim = f"parse a history of {format}, {size} B per line"
        figures.append(Figure(claim, TIME, parsing, "ms", decoding, MS_PER_MB))
    return [*figures, await _folder(run)]


def _ms_per_mb(content: bytes, work: Callable[[bytes], object]) -> float:
    best_s = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        work(content)
        best_s = min(best_s, time.process_time() - began)
    return best_s * 1000 / (len(content) / 1e6)


def _decode(content: bytes) -> None:
    decode = msgspec.json.Decoder().decode
    for line in content.splitlines():
        decode(line)


def _peak_bytes(content: bytes, format: str) -> int:
    tracemalloc.start()
    try:
        BY_NAME[format].parse(content, None)
        return tracemalloc.get_traced_memory()[1] + len(content)
    finally:
        tracemalloc.stop()


async def _folder(run: Run) -> Figure:
    count = run.count(FILES)
    paths = await _written(run, count)
    store = await opened(run.folder / "reading.db", "full")
    began = time.perf_counter()
    outcomes = import_files(store, paths, clock=CLOCK, random=system_random)
    done = [outcome async for outcome in outcomes if outcome.error is None]
    took_ms = (time.perf_counter() - began) * 1000
    await store.close()
    return Figure(f"import {len(done):,} files", "time per file", took_ms / count, "ms")


async def _written(run: Run, count: int) -> list[Path]:
    """Write files of five turns each, in all formats alternately."""
    made = list((await histories(run.seed, 5)).items())
    paths: list[Path] = []
    for number in range(count):
        format, content = made[number % len(made)]
        path = run.folder / f"{number:05}-{format}.jsonl"
        own = f"0f6f3f0e-7d55-4c83-9d0a-{number:012}".encode()
        path.write_bytes(content.replace(b"0f6f3f0e-7d55-4c83-9d0a-6f3ad2b7b003", own))
        paths.append(path)
    return paths
