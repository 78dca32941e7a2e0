"""How costs grow: each operation at three sizes, through the public handles, with its exponents.

``python -m benchmarks.scaling [--quick] [--strict] [--only WORD]``; ``make bench-growth``.
Figures are CPU, which depends least on what else the machine does: of the process, and of the
server's processes that work for it. The three sizes are measured by turns and the best of the
rounds counts, so that a load meets them alike; an operation over its limit is measured in more
rounds than others. The exponent is that of the two greatest sizes: 0 where the cost stays the same,
1 where it grows as the size does. Memory is the most that Python allocates in one call, and has an
exponent, too; under 100 kB it counts as 100 kB. With ``--strict`` a missed goal makes the exit
code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import msgspec
import psycopg
from rich.console import Console
from rich.table import Table

import perdure
from benchmarks.figures import shown
from benchmarks.subjects import SUBJECTS, Act, Operation
from tests.fakes.postgres import serving

LEAST_MS, LONG_MS = 15.0, 150.0
MOST_CALLS = 100
ROUNDS, MOST_ROUNDS = 2, 10
LEAST_KB = 100.0
PROCESSES = Path("/proc")
_WORKING = """
SELECT pid FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class Row(msgspec.Struct, frozen=True):
    """What one call of an operation costs at each size. Units: milliseconds of CPU, kB."""

    subject: str
    name: str
    limit: float
    sizes: Sequence[int]
    cpu_ms: list[float]
    peak_kb: list[float]

    @property
    def exponent(self) -> float:
        """How the CPU grows between the two greatest sizes."""
        return self._grown(self.cpu_ms, 1e-6)

    @property
    def memory(self) -> float:
        """How the peak of the memory grows between them."""
        return self._grown(self.peak_kb, LEAST_KB)

    @property
    def is_met(self) -> bool:
        """Whether neither grows more than it may."""
        return max(self.exponent, self.memory) <= self.limit

    def _grown(self, costs: Sequence[float], least: float) -> float:
        before, last = (max(cost, least) for cost in costs[-2:])
        return math.log(last / before) / math.log(self.sizes[-1] / self.sizes[-2])


# ---------------------------------------------------------------- measuring


async def rows_of(
    subject: str, address: Callable[[], str], *, is_quick: bool, server: str | None = None
) -> list[Row]:
    """Every operation of a subject, at each of its sizes, with what `server` computes for it."""
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
    """One operation at each size. What the first call prepares does not count."""
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
        if number >= ROUNDS and row.exponent <= row.limit:
            break
        gc.collect()
        for at, each in enumerate(same):
            best[at] = min(best[at], await _cpu_ms(each.act, calls[at]))
    peaks[:] = [await _peak_kb(each.act) for each in same]
    return row


async def _cpu_ms(act: Act, calls: int) -> float:
    """Of one call, the server's part with it."""
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
    """What the processes of the server that work for a client have computed so far."""
    return sum(int(each.read_bytes().split()[0]) for each in _backends if each.exists())


def _watch_backends(address: str | None) -> None:
    """Count what the server's processes compute; None: there is no server."""
    _backends.clear()
    if address is not None:
        with psycopg.connect(address) as db:
            _backends.extend(PROCESSES / str(pid) / "schedstat" for (pid,) in db.execute(_WORKING))


# ---------------------------------------------------------------- telling


def _table(title: str, rows: Sequence[Row]) -> Table:
    heads = ("grows", "operation", "sizes", "CPU ms", "exponent", "peak kB", "exponent", "goal", "")
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


async def _main(*, is_quick: bool, only: str) -> int:
    began = time.monotonic()
    console = Console()
    console.width = max(console.width, 170)
    subjects = [subject for subject in SUBJECTS if only in subject]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        files = (f"sqlite:///{folder}/{number}.db" for number in count())
        for subject in subjects:
            rows += await rows_of(subject, lambda: next(files), is_quick=is_quick)
            console.print(_table("SQLite", [row for row in rows if row.subject == subject]))
    served: list[Row] = []
    with serving(is_own=True) as server:
        for subject in subjects:
            served += await rows_of(
                subject, server.new_database, is_quick=is_quick, server=server.address
            )
            found = [row for row in served if row.subject == subject]
            console.print(_table("PostgreSQL, the server's part with it", found))
    missed = sum(not row.is_met for row in (*rows, *served))
    console.print(f"{missed} missed of {len(rows + served)}, {time.monotonic() - began:,.0f} s")
    return missed


def main() -> None:
    """Print a table for each kind of store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling")
    parser.add_argument("--quick", action="store_true", help="a tenth of each size")
    parser.add_argument("--only", default="", help="what grows: a part of its name")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a goal is missed")
    given = parser.parse_args()
    missed = asyncio.run(_main(is_quick=given.quick, only=given.only))
    raise SystemExit(1 if missed and given.strict else 0)


if __name__ == "__main__":
    main()
