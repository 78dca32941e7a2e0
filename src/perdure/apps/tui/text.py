"""Outside text as Textual shows it: sanitized, and never read as markup."""

from __future__ import annotations

from rich.text import Text
from textual.content import Content

from perdure.apps.terminal.output import printable
from perdure.session.printable import safe

_TAB = 8


def shown(text: str) -> str:
    """Return `text` with visible control characters, for widgets that do not read markup."""
    return safe(text).expandtabs(_TAB)


def plain(text: str, style: str = "") -> Content:
    """Return `text` in one style. Square brackets in it are not markup."""
    content = Content(shown(text))
    return content.stylize(style) if style else content


def painted(line: str) -> Content:
    """Return a line of `Style.paint`; other escape sequences in it become visible."""
    return Content.from_rich_text(Text.from_ansi(printable(line)))


_DIFF_STYLES = {"+": "$text-success", "-": "$text-error", "@": "dim"}


def diff_content(diff: str, indent: str = "") -> Content:
    """Return a unified diff; the colours repeat its signs."""
    lines = diff.split("\n")
    return Content("\n").join(
        plain(indent + line, _DIFF_STYLES.get(line[:1], "")) for line in lines
    )
