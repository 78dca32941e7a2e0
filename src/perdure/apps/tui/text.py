"""Text from outside, as Textual shows it: sanitized, and never interpreted as markup."""

from __future__ import annotations

from rich.cells import chop_cells
from rich.text import Text
from textual.content import Content

from perdure.apps.terminal.output import printable
from perdure.session.printable import safe

_TAB = 8
_LEAST_ROOM = 20


def shown(text: str) -> str:
    """Return `text` with visible control characters, for widgets that do not interpret markup."""
    return safe(text).expandtabs(_TAB)


def plain(text: str, style: str = "") -> Content:
    """Return `text` in one style. Square brackets in the text are not interpreted as markup."""
    content = Content(shown(text))
    return content.stylize(style) if style else content


def hanging(line: str, room: int, style: str = "") -> Content:
    """Return `line` in rows of at most `room` cells.

    Rows after the first are indented and marked.
    """
    rest = shown(line)
    mark = f"{' ' * min(len(rest) - len(rest.lstrip()), room // 2)}… "
    rows: list[str] = []
    while rest or not rows:
        start = mark if rows else ""
        row = next(iter(chop_cells(rest, max(room - len(start), _LEAST_ROOM))), "")
        if len(row) < len(rest) and (end := row.rfind(" ") + 1) > len(row) // 2:
            row = row[:end]  # between two words
        rows.append(start + row)
        rest = rest[len(row) :]
    content = Content("\n".join(rows))
    return content.stylize(style) if style else content


def painted(line: str) -> Content:
    """Return a line that `Style.paint` made; other escape sequences in it become visible."""
    return Content.from_rich_text(Text.from_ansi(printable(line)))


_DIFF_STYLES = {"+": "$text-success", "-": "$text-error", "@": "dim"}


def diff_content(diff: str, indent: str, room: int) -> Content:
    """Return a unified diff in rows of at most `room` cells.

    The colours only repeat the meaning of the signs + and -.
    """
    lines = diff.split("\n")
    return Content("\n").join(
        hanging(indent + line, room, _DIFF_STYLES.get(line[:1], "")) for line in lines
    )
