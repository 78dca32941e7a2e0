"""Figures of a framework's own store and of our store for that framework, from one run.

Each store has a `Meter`; rounds alternate between the stores, and the minimum of all rounds counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table


class Meter:
    """The minimum time and CPU of each row. Units: milliseconds, or the unit in the row's name."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    @contextmanager
    def row(self, name: str, per: int = 1) -> Generator[None]:
        """Measure a row; the work in the block is done `per` times."""
        gc.collect()
        begun, cpu = time.perf_counter(), time.process_time()
        yield
        cpu, taken = time.process_time() - cpu, time.perf_counter() - begun
        self.note(name, taken * 1000 / per, cpu * 1000 / per)

    def note(self, name: str, value: float, cpu: float | None = None) -> None:
        """Record `value` for a row if it is the least so far."""
        self.wall[name] = min(value, self.wall.get(name, value))
        if cpu is not None:
            self.cpu[name] = min(cpu, self.cpu.get(name, cpu))

    def growth(self, early: str, late: str, baseline: Meter | None = None) -> float:
        """Return the CPU time of the row `late` divided by the CPU time of the row `early`.

        The CPU time that `baseline` needs for the same row is subtracted from each.
        """
        less = {} if baseline is None else baseline.cpu
        return (self.cpu[late] - less.get(late, 0)) / (self.cpu[early] - less.get(early, 0))


def megabytes(folder: str) -> float:
    """Return the size of the files in `folder`."""
    return sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6


def show(title: str, ours: Meter, theirs: Meter, ratios: Mapping[str, float]) -> None:
    """Print ours and theirs row by row, then `ratios`."""
    table = Table("row", "ours ms", "theirs ms", "ours CPU", "theirs CPU", title=title)
    for name in ours.wall:
        cpus = [f"{each.cpu[name]:.2f}" if name in each.cpu else "" for each in (ours, theirs)]
        table.add_row(name, f"{ours.wall[name]:.2f}", f"{theirs.wall[name]:.2f}", *cpus)
    Console(width=100).print(table, *(f"{name}: {ratio:.2f}" for name, ratio in ratios.items()))
