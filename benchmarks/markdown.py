"""The figures as a table between two marks of a Markdown file, with the machine and versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figures import Figure, shown
from benchmarks.machine import facts

BEGIN = "<!-- figures: python -m benchmarks --into FILE -->"
END = "<!-- end of the figures -->"


def put_into(file: Path, figures: Sequence[Figure], *, is_quick: bool) -> None:
    """Replace the text between the marks of `file`.

    Raises: ValueError if the file has no marks.
    """
    before, begin, rest = file.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{file} has no place for figures: {BEGIN} and {END}")
    lines = "\n".join((*_head(is_quick=is_quick), *map(_row, figures)))
    file.write_text(f"{before}{BEGIN}\n{lines}\n{END}{after}", "utf-8")


def _head(*, is_quick: bool) -> tuple[str, ...]:
    told = facts()
    kind = "a quick run, a tenth of the work" if is_quick else "a whole run"
    on = (
        f"{told['processor']}, {told['cores']} cores, load {told['load']}, "
        f"Python {told['python']}, SQLite {told['sqlite']}."
    )
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {kind}: {on}",
        "",
        "| What | | Figure | Raw | Goal | |",
        "|---|---|---|---|---|---|",
    )


def _row(figure: Figure) -> str:
    raw = "" if figure.raw is None else shown(figure.raw)
    met = {True: "met", False: "**missed**", None: ""}[figure.is_met]
    value = f"{shown(figure.value)} {figure.unit}".strip()
    return f"| {figure.claim} | {figure.what} | {value} | {raw} | {figure.goal} | {met} |"
