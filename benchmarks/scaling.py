"""How costs grow: each operation at three sizes, through the public handles, with its exponents.

``python -m benchmarks.scaling [--quick] [--strict] [--only WORD] [--store KIND]``, or
``make bench-growth``. The two kinds of stores are measured concurrently, in one process each.
Figures are the CPU time of this process and of the server processes that work for it, because CPU
time depends least on other load of the machine. The three sizes are measured alternately, and the
best round counts, so that other load affects the sizes equally. An operation over its limit is
measured in up to 40 rounds of some milliseconds. A long operation within its limit is measured only
once. The exponent is computed from the two greatest sizes: 0 if the cost is constant, 1 if it grows
in proportion to the size. Memory is the peak of Python's allocations in one call. Its exponent is
also computed; values under 100 kB count as 100 kB. With ``--strict``, a missed goal sets the exit
code to 1.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from itertools import count
from pathlib import Path
from typing import Literal, get_args

import msgspec
import psycopg
from rich.console import Console
from rich.table import Table

import perdure
from benchmarks.figures import shown
from benchmarks.operations import Act, Operation
from benchmarks.subjects import SUBJECTS
from tests.fakes.postgres import serving

StoreName = Literal["sqlite", "postgres"]

LEAST_MS, LONG_MS = 5.0, 150.0
MOST_CALLS = 100
ROUNDS, MOST_ROUNDS = 2, 40
LEAST_KB = 100.0
PROCESSES = Path("/proc")
_WORKING = """
SELECT pid FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class Row(msgspec.Struct, frozen=True):
    """The cost of one call of an operation at each size. Units: milliseconds of CPU, kB."""

    subject: str
    name: str
    limit: float
    sizes: Sequence[int]
    cpu_ms: list[float]
    peak_kb: list[float]

    @property
    def exponent(self) -> float:
        """The growth exponent of the CPU time between the two greatest sizes."""
        return self._grown(self.cpu_ms, 1e-6)

    @property
    def memory(self) -> float:
        """The growth exponent of the peak memory between the two greatest sizes."""
        return self._grown(self.peak_kb, LEAST_KB)

    @property
    def is_met(self) -> bool:
        """Whether both exponents are within the limit."""
        return max(self.exponent, self.memory) <= self.limit

    def _grown(self, costs: Sequence[float], least: float) -> float:
        before, last = (max(cost, least) for cost in costs[-2:])
        return math.log(last / before) / math.log(self.sizes[-1] / self.sizes[-2])


# ---------------------------------------------------------------- measuring


async def rows_of(
    subject: str, address: Callable[[], str], *, is_quick: bool, server: str | None = None
) -> list[Row]:
    """Measure every operation of a subject at each of its sizes, with the CPU of `server`."""
    make, full = SUBJECTS[subject]
    sizes = [size // 10 for size in full] if is_quick else full
    made: list[list[Operation]] = []
    async with AsyncExitStack() as stack:
        for size in sizes:
            opening = perdure.open(address(), durability="normal")
            store = await stack.enter_async_context(opening)
            made.append(await make(store, size, stack))
        gc.collect()
        gc.freeze()  # what is stored is not looked through again before each figure
        try:
            rows: list[Row] = []
            for same in zip(*made, strict=True):
                _watch_backends(server)
                rows.append(await _row(subject, sizes, same))
            return rows
        finally:
            gc.unfreeze()


async def _row(subject: str, sizes: Sequence[int], same: Sequence[Operation]) -> Row:
    """Measure one operation at each size. The setup work of the first call does not count."""
    best = [await _cpu_ms(each.act, 1) for each in same]
    peaks = [0.0 for _ in same]
    row = Row(subject, same[0].name, same[0].limit, sizes, best, peaks)
    if same[0].is_once:
        return row
    is_long = max(best) > LONG_MS
    if not is_long:
        best[:] = [await _cpu_ms(each.act, 1) for each in same]
    calls = [max(1, min(MOST_CALLS, math.ceil(LEAST_MS / max(once, 0.001)))) for once in best]
    for number in range(1 if is_long else MOST_ROUNDS):
        if row.exponent <= row.limit and (is_long or number >= ROUNDS):
            break
        gc.collect()
        for at, each in enumerate(same):
            best[at] = min(best[at], await _cpu_ms(each.act, calls[at]))
    peaks[:] = [await _peak_kb(each.act) for each in same]
    return row


async def _cpu_ms(act: Act, calls: int) -> float:
    """Return the CPU time of one call, including the server's part."""
    served, began = _served_ns(), time.process_time_ns()
    for _ in range(calls):
        await act()
    return (time.process_time_ns() - began + max(0, _served_ns() - served)) / calls / 1e6


async def _peak_kb(act: Act) -> float:
    tracemalloc.start()
    try:
        await act()
        return tracemalloc.get_traced_memory()[1] / 1024
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- the server's part

_backends: list[Path] = []


def _served_ns() -> int:
    """Return the CPU time so far of the server processes that work for a client."""
    return sum(int(each.read_bytes().split()[0]) for each in _backends if each.exists())


def _watch_backends(address: str | None) -> None:
    """Count the CPU time of the processes that serve clients at `address`, if it is given."""
    _backends.clear()
    if address is not None:
        with psycopg.connect(address) as db:
            _backends.extend(PROCESSES / str(pid) / "schedstat" for (pid,) in db.execute(_WORKING))


# ---------------------------------------------------------------- output


def _table(title: str, rows: Sequence[Row]) -> Table:
    heads = (
        *("what grows", "operation", "sizes", "CPU ms", "CPU exponent"),
        *("peak kB", "memory exponent", "goal of both exponents", ""),
    )
    table = Table(*heads, title=title)
    for row in rows:
        table.add_row(
            row.subject,
            row.name,
            " / ".join(f"{size:,}" for size in row.sizes),
            " / ".join(shown(cost) for cost in row.cpu_ms),
            f"{row.exponent:.2f}",
            " / ".join(shown(peak) for peak in row.peak_kb),
            f"{row.memory:.2f}",
            f"≤ {row.limit}",
            "met" if row.is_met else "[red]missed[/red]",
        )
    return table


async def _measured(store: StoreName, only: str, *, is_quick: bool) -> int:
    """Print the tables of one kind of store; return the number of missed goals."""
    console = Console()
    console.width = max(console.width, 170)
    title = "SQLite" if store == "sqlite" else "PostgreSQL, with the CPU time of the server"
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        server = None
        if store == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-bench-"))
            files = (f"sqlite:///{folder}/{number}.db" for number in count())
            address: Callable[[], str] = files.__next__
        else:
            running = stack.enter_context(serving(is_own=True))
            address, server = running.new_database, running.address
        for subject in (subject for subject in SUBJECTS if only in subject):
            began = time.monotonic()
            found = await rows_of(subject, address, is_quick=is_quick, server=server)
            took = f"{title}: {time.monotonic() - began:,.0f} s"
            console.print(_table(took, found))
            rows += found
    missed = sum(not row.is_met for row in rows)
    console.print(f"{store}: {missed} of {len(rows)} goals missed")
    return missed


def _both(given: Sequence[str]) -> int:
    """Print the tables of each kind of store, in parallel; return the number of failures."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.scaling", *given, "--store"]
    with ExitStack() as stack:
        each = [
            stack.enter_context(subprocess.Popen([*command, store], stdout=subprocess.PIPE))
            for store in get_args(StoreName)
        ]
        with ThreadPoolExecutor() as readers:
            for text, _ in readers.map(subprocess.Popen[bytes].communicate, each):
                print(text.decode(), end="", flush=True)
    print(f"{time.monotonic() - began:,.0f} s")
    return sum(bool(process.returncode) for process in each)


def main() -> None:
    """Print a table for each kind of store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling")
    parser.add_argument("--quick", action="store_true", help="a tenth of each size")
    parser.add_argument(
        "--only", default="", help="measure only subjects whose name contains this text"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--store", choices=get_args(StoreName), help="only this kind of store")
    given = parser.parse_args()
    if given.store is None:
        raise SystemExit(1 if _both(sys.argv[1:]) else 0)
    missed = asyncio.run(_measured(given.store, given.only, is_quick=given.quick))
    raise SystemExit(1 if missed and given.strict else 0)


if __name__ == "__main__":
    main()
