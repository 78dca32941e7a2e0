"""`python -m benchmarks [NAME ...] [--quick] [--seed N]` prints a table and writes JSON figures.

Without names, all benchmarks run, which takes about twenty minutes. Times depend on the machine and
the moment, so compare the store only with the raw driver in the same run.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, shown
from benchmarks.machine import facts
from benchmarks.markdown import put_into
from benchmarks.measuring import BENCHMARKS, measured

RESULTS = Path(__file__).parent / "results"
SEED = 20_261_120
TABLE_WIDTH = 112


def main() -> None:
    """Run the benchmarks that the command line names."""
    arguments = _Arguments()
    _parser().parse_args(namespace=arguments)
    figures: list[Figure] = []
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    for name in arguments.names or BENCHMARKS:
        with console.status(f"measuring {name}"):
            figures += measured(name, arguments.folder, arguments.seed, is_quick=arguments.quick)
    console.print(_table(figures))
    if arguments.into is not None:
        put_into(arguments.into, figures, is_quick=arguments.quick)
    console.print(f"figures: {_written(figures, seed=arguments.seed, is_quick=arguments.quick)}")


class _Arguments(argparse.Namespace):
    """The options on the command line."""

    names: list[str]
    quick: bool
    seed: int
    folder: str | None
    into: Path | None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure perdure beside the raw drivers.",
        epilog=f"NAME, all without one: {', '.join(BENCHMARKS)}.",
    )
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--folder", help="folder for the databases, on the disk to measure")
    parser.add_argument(
        "--into", type=Path, help="a Markdown file; its table between the marks is replaced"
    )
    return parser


def _table(figures: list[Figure]) -> Table:
    table = Table("what", "", "figure", "raw", "goal", "")
    before = ""
    for figure in figures:
        claim = "" if figure.claim == before else figure.claim
        before = figure.claim
        raw = "" if figure.raw is None else shown(figure.raw)
        met = {True: "met", False: "[red]missed[/red]", None: ""}[figure.is_met]
        value = f"{shown(figure.value)} {figure.unit}"
        table.add_row(claim, figure.what, value, raw, figure.goal, met)
    return table


def _written(figures: list[Figure], *, seed: int, is_quick: bool) -> Path:
    at = datetime.now(UTC)
    told = [{**msgspec.structs.asdict(each), "met": each.is_met} for each in figures]
    result = {"at": at, "machine": facts(), "seed": seed, "quick": is_quick, "figures": told}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{at:%Y%m%dT%H%M%SZ}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2))
    return path


if __name__ == "__main__":
    main()
