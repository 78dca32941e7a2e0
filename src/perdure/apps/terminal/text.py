"""Safe text of limited width: `safe` makes control characters visible; widths are in cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure.apps.terminal.style import Meaning, Style
from perdure.session.printable import safe
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from rich import cells
else:
    cells = Later("rich.cells")

_HALF = re.compile("[\ud800-\udfff]")
_SPACES = re.compile(r"\s+")
_PIECES = re.compile(r"(?<! )( *+)((?:`[^`]*`|[^ ])+)")
"""Matches spaces and the word after them; a command in backticks is one word."""

_LONGEST_ECHO = 200
_ECHO_START = 60

_LOOKED_AT = 4
"""The part of a long text that is read to fill one line, as a multiple of the line's width."""


def whole(text: str) -> str:
    """Return `text` with U+FFFD in place of every lone surrogate, so that UTF-8 can encode it."""
    return _HALF.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, width: int) -> str:
    """Return the start of `text` on one line of at most `width` cells, with "…" if it is cut."""
    start = text[: max(width, 1) * _LOOKED_AT]
    line = clip(safe(_SPACES.sub(" ", start)).strip(), width)
    is_cut = len(start) < len(text) and not line.endswith("…")
    return clip(line + "…", width) if is_cut else line


def shorten_echoes(message: str, words: Iterable[str]) -> str:
    """Shorten those of the typed `words` that `message` repeats in full.

    Without this call, a long quoted text would hide the rest of the message.
    """
    for word in words:
        for part in (word, word.partition("=")[2], word.removeprefix("./")):
            if len(part) > _LONGEST_ECHO:
                for spelt in (repr(part)[1:-1], part):
                    short = f"{spelt[:_ECHO_START]}… ({len(part):,} characters)"
                    message = message.replace(spelt, short)
    return message


def cell_len(text: str) -> int:
    """Return how many cells `text` needs; plain ASCII is counted without loading rich."""
    return len(text) if _is_plain(text) else cells.cell_len(text)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def clip(text: str, width: int) -> str:
    """Cut `text` to at most `width` cells; if it is cut, the result ends with an ellipsis."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    start = text[: width - 1] if _is_plain(text) else cells.set_cell_size(text, width - 1)
    return start.rstrip() + "…"


def clip_path(path: str, width: int) -> str:
    """Cut `path` to at most `width` cells, in the middle, so that the name of the file remains.

    If the name of the file does not fit, the end of the name remains.
    """
    if width <= 0:
        return ""
    if cell_len(path) <= width:
        return path
    name = path.rpartition("/")[2]
    wanted = min(max(cell_len(name) + 1, (width - 1) * 2 // 3), width - 1)
    end = path[max(len(path) - wanted, 0) :]
    while cell_len(end) > wanted:
        end = end[1:]
    space = width - 1 - cell_len(end)
    start = path[:space] if _is_plain(path) else cells.set_cell_size(path, space).rstrip()
    return f"{start}…{end}"


def pad(text: str, width: int) -> str:
    """Pad `text` with spaces to `width` cells; longer text is unchanged."""
    return text + " " * (width - cell_len(text))


def wrap(text: str, width: int) -> Iterator[str]:
    """Return the lines of `text`, broken between words so that each has at most `width` cells.

    A command in backticks stays on one line if it fits. A word longer than a line is not broken.
    """
    line, used = "", 0
    for space, word in _words(text, width):
        cells_of_word = cell_len(word)
        if line and used + len(space) + cells_of_word > width:
            yield line
            line, used = word, cells_of_word
        else:
            line, used = f"{line}{space}{word}", used + len(space) + cells_of_word
    yield line


def _words(text: str, width: int) -> Iterator[tuple[str, str]]:
    """Return each word of `text` with the spaces before it; split commands wider than `width`."""
    for space, word in _PIECES.findall(text.expandtabs()):
        if " " not in word or cell_len(word) <= width:
            yield space, word
            continue
        first, *rest = word.split(" ")
        yield space, first
        for each in rest:
            yield " ", each


_GAP = 2
_LEAST = 8
"""Minimum width, in cells, of a column that is cut."""


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    `is_right` aligns the column to the right, for numbers; a `gives_way` column is cut first. The
    cells of an `is_path` column are cut in the middle.
    """

    title: str
    meaning: Meaning = "plain"
    is_right: bool = False
    gives_way: bool = False
    is_path: bool = False


def table_width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Return how many cells wide the table is if nothing is cut."""
    return sum(_widths(columns, rows)) + _GAP * (len(columns) - 1)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(cell_len(column.title), *(cell_len(row[n]) for row in rows), 0)
        for n, column in enumerate(columns)
    ]


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, style: Style
) -> Iterator[str]:
    """Return a heading and `rows`, at most `width` cells wide.

    Only columns with `gives_way` are cut, so lines are wider if the other columns do not fit.
    """
    widths = _widths(columns, rows)
    excess = sum(widths) + _GAP * (len(columns) - 1) - width
    giving = [n for n, column in enumerate(columns) if column.gives_way]
    while giving and excess > 0:  # the widest first, so that one column does not give all
        size, widest = max((widths[n], n) for n in giving)
        if size <= _LEAST:
            break
        widths[widest] -= 1
        excess -= 1
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
        text = clip_path(cell, width) if column.is_path else clip(cell, width)
        text = " " * (width - cell_len(text)) + text if column.is_right else pad(text, width)
        shown.append(style.paint(text, "faint" if is_heading else column.meaning))
    return (" " * _GAP).join(shown).rstrip()
