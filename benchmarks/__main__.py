"""`python -m benchmarks [NAME ...] [--quick] [--seed N]`: the table, and the figures as JSON.

A benchmark is a module here with `measure`, listed in `BENCHMARKS`. Times are of this machine at
this moment: what counts is how the store compares with the raw driver in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks import (
    append,
    context,
    disk,
    encryption,
    fork,
    importing,
    postgres,
    reading,
    search,
)
from benchmarks.figures import Benchmark, Figure, Run
from benchmarks.machine import facts

BENCHMARKS: dict[str, Benchmark] = {
    "append": append.measure,
    "fork": fork.measure,
    "context": context.measure,
    "disk": disk.measure,
    "search": search.measure,
    "encryption": encryption.measure,
    "import": importing.measure,
    "postgres": postgres.measure,
    "reading": reading.measure,
}
RESULTS = Path(__file__).parent / "results"
SEED = 20_261_120
TABLE_WIDTH = 112


def main() -> None:
    """Run what was asked for."""
    arguments = _Arguments()
    _parser().parse_args(namespace=arguments)
    figures: list[Figure] = []
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    for name in arguments.names or BENCHMARKS:
        with (
            console.status(f"measuring {name}"),
            tempfile.TemporaryDirectory(dir=arguments.folder, prefix="perdure-bench-") as folder,
        ):
            run = Run(Path(folder), arguments.seed, arguments.quick)
            figures += asyncio.run(BENCHMARKS[name](run))
    console.print(_table(figures))
    console.print(f"figures: {_written(figures, seed=arguments.seed, is_quick=arguments.quick)}")


class _Arguments(argparse.Namespace):
    """What was asked for on the command line."""

    names: list[str]
    quick: bool
    seed: int
    folder: str | None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--folder", help="where the databases go: the disk that is measured")
    return parser


def _table(figures: list[Figure]) -> Table:
    table = Table("claim", "what", "value", "raw", "at most", "holds")
    for figure in figures:
        raw = "" if figure.raw is None else f"{figure.raw:,.3g}"
        limit = "" if figure.limit is None else f"{figure.limit:,g}"
        holds = {True: "yes", False: "[red]no[/red]", None: ""}[figure.is_met]
        value = f"{figure.value:,.3g} {figure.unit}"
        table.add_row(figure.claim, figure.what, value, raw, limit, holds)
    return table


def _written(figures: list[Figure], *, seed: int, is_quick: bool) -> Path:
    at = datetime.now(UTC)
    result = {"at": at, "machine": facts(), "seed": seed, "quick": is_quick, "figures": figures}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{at:%Y%m%dT%H%M%SZ}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2))
    return path


if __name__ == "__main__":
    main()
