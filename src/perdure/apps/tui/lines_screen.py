"""A screen that shows text; it can be scrolled and closed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from perdure.apps.tui.gauge import KeyFooter
from perdure.apps.tui.text import plain


class LinesScreen(ModalScreen[None]):
    """Lines of text under a title."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,f1", "close", "Close"),
        Binding("down,j", "scroll(1)", "Scroll", key_display="↑↓"),
        Binding("up,k", "scroll(-1)", "Scroll", show=False),
        Binding("pagedown,space", "page(1)", "Page", key_display="PgUp PgDn"),
        Binding("pageup", "page(-1)", "Page", show=False),
    ]

    def __init__(self, title: str, lines: Iterable[Content]) -> None:
        super().__init__(classes="lines-screen")
        self._heading = title
        self._body = Content("\n").join(lines)

    def compose(self) -> ComposeResult:
        """Lay out the title, the text and the keys."""
        yield Static(plain(self._heading, "bold"), classes="title", markup=False)
        with VerticalScroll(can_focus=False):
            yield Static(self._body, markup=False)
        yield KeyFooter()

    def action_scroll(self, lines: int) -> None:
        """Scroll the text."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, direction: int) -> None:
        """Scroll the text by a page."""
        self.action_scroll(direction * max(self.query_one(VerticalScroll).size.height - 1, 1))

    def action_close(self) -> None:
        """Close the screen."""
        self.dismiss(None)
