"""Rows of text in aligned columns, one of which gives way when the line is too long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from rich.cells import cell_len

from perdure.apps.terminal.style import Meaning, Style
from perdure.apps.terminal.text import clip, pad

_GAP = 2


class Column(msgspec.Struct, frozen=True):
    """A column. `is_right` aligns numbers; `gives_way` is cut first when space is short."""

    title: str
    meaning: Meaning = "plain"
    is_right: bool = False
    gives_way: bool = False


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, style: Style
) -> Iterator[str]:
    """A heading and `rows`, each at most `width` cells if the columns that do not give way fit."""
    widths = [
        max(cell_len(column.title), *(cell_len(row[n]) for row in rows), 0)
        for n, column in enumerate(columns)
    ]
    excess = sum(widths) + _GAP * (len(columns) - 1) - width
    for n, column in enumerate(columns):
        if column.gives_way and excess > 0:
            cut = min(excess, max(widths[n] - 8, 0))
            widths[n] -= cut
            excess -= cut
    heading = [column.title for column in columns]
    yield _line(heading, columns, widths, style, is_heading=True)
    for row in rows:
        yield _line(row, columns, widths, style, is_heading=False)


def _line(
    cells: Sequence[str],
    columns: Sequence[Column],
    widths: Sequence[int],
    style: Style,
    *,
    is_heading: bool,
) -> str:
    shown: list[str] = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        text = clip(cell, width)
        text = " " * (width - cell_len(text)) + text if column.is_right else pad(text, width)
        shown.append(style.paint(text, "faint" if is_heading else column.meaning))
    return (" " * _GAP).join(shown).rstrip()
