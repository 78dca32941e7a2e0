"""A screen of text that can be scrolled and closed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from perdure.apps.tui.text import plain


class LinesScreen(ModalScreen[None]):
    """Lines under a title."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "close", "Close")]

    def __init__(self, title: str, lines: Iterable[Content]) -> None:
        super().__init__(classes="lines-screen")
        self._heading = title
        self._body = Content("\n").join(lines)

    def compose(self) -> ComposeResult:
        """Lay out title, text and keys."""
        yield Static(plain(self._heading, "bold"), classes="title", markup=False)
        with VerticalScroll():
            yield Static(self._body, markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def action_close(self) -> None:
        """Close it."""
        self.dismiss(None)
