"""The navigator of a session's tree: move, fold, search, label, branch, fork and compare."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from perdure.apps.cli.sessions.diff import difference, difference_lines
from perdure.apps.terminal.outline import Fold
from perdure.apps.terminal.previews import preview_of
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import one_line
from perdure.apps.tui.gauge import KeyFooter
from perdure.apps.tui.lines_screen import LinesScreen
from perdure.apps.tui.text import painted, plain
from perdure.apps.tui.tree_lines import TreeLines
from perdure.apps.tui.tree_rows import TreeState, tree_state
from perdure.client.session import Session
from perdure.session.codec import role_of
from perdure.session.ids import EntryId

FIRST_READ = 400
"""Number of entries that are read first; the key `+` reads four times as many."""

_PREVIEW_CELLS = 1_000
_LEAST_CELLS = 40
_SOUGHT_CELLS = 30

_ASKED: Mapping[str, str] = {
    "label": "label of the entry; empty removes it",
    "search": "find in the entries; n and N go to the next and the previous one",
}

Obey = Callable[[str], Awaitable[None]]
"""Runs a typed command."""


class TreeScreen(ModalScreen[str | None]):
    """The tree of `session`.

    Returns the command that the user chose; None if the user chose none.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "edit", "Edit"),
        Binding("f", "go('/fork')", "Fork"),
        Binding("l", "ask('label')", "Label"),
        Binding("c", "compare", "Compare"),
        Binding("slash", "ask('search')", "Search"),
        Binding("n", "next(1)", "Next", show=False),
        Binding("N", "next(-1)", "Previous", show=False),
        Binding("left", "fold(True)", "Fold", priority=True),
        Binding("right", "fold(False)", "Unfold", priority=True),
        Binding("plus", "more", "Read more", show=False),
        Binding("escape,q", "leave", "Close"),
    ]

    def __init__(self, session: Session, style: Style, obey: Obey) -> None:
        super().__init__(id="tree-screen")
        self.lines = TreeLines(session.id, style)
        self._session = session
        self._drawn_style = style
        self._obey = obey
        self._limit = FIRST_READ
        self._compared: EntryId | None = None
        self._asks = ""
        self._sought = ""

    def compose(self) -> ComposeResult:
        """Lay out the tree, the selected entry, and the keys."""
        yield Static("", id="tree-title", markup=False)
        yield self.lines
        yield Static("", id="tree-entry", markup=False)
        yield Input(id="tree-input", compact=True)
        yield KeyFooter()

    async def on_mount(self) -> None:
        """Read the newest entries, and select the leaf."""
        self.query_one("#tree-input").display = False
        await self._read()
        self.lines.select(self._session.leaf)
        self.lines.focus()

    async def _read(self) -> None:
        roots = await self._session.tree(self._limit)
        before, read = self.lines.state, tree_state(roots, self._session.leaf)
        state = TreeState(read.rows, read.shown | before.shown, before.closed)
        self.lines.draw_state(state, self.size.width)
        self._show_title()

    def _show_title(self, match: tuple[int, int] | None = None) -> None:
        """In the title, show the number of `match`, the marked entry, or the count of entries."""
        read = len(self.lines.state.rows)
        more = "; + reads earlier ones" if read >= self._limit else ""
        title = f"{read} entries of {self._session.id}{more}"
        if match is not None:
            sought = one_line(self._sought, _SOUGHT_CELLS)
            title = f"“{sought}”: match {match[0]} of {match[1]}; n next, N previous"
        elif self._compared is not None:
            number = self._compared.rpartition("/")[2]
            title = f"Entry {number} is marked: now press c at the end of the other branch"
        self.query_one("#tree-title", Static).update(plain(title))

    def on_resize(self) -> None:
        """Draw for the new width."""
        self.lines.draw_state(self.lines.state, self.size.width)

    def on_option_list_option_highlighted(self, _: OptionList.OptionHighlighted) -> None:
        """Show the beginning of the selected entry."""
        entry = self.lines.entry
        text = preview_of(entry, _PREVIEW_CELLS).what if entry is not None else ""
        if isinstance(self.lines.line, Fold):
            text = "Right unfolds these entries."
        self.query_one("#tree-entry", Static).update(plain(text))

    def on_option_list_option_selected(self, _: OptionList.OptionSelected) -> None:
        """Continue at the selected entry."""
        self.action_go("/branch")

    def _hint(self, text: str) -> None:
        """Show `text` in place of the selected entry, until another entry is selected."""
        self.query_one("#tree-entry", Static).update(plain(text))

    # ------------------------------------------------------------ keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return False for the keys of the tree while the user types text."""
        return not self._asks or action == "leave"

    def action_leave(self) -> None:
        """Close the text field, or the navigator."""
        if self._asks:
            self.action_ask("")
        else:
            self.dismiss(None)

    def action_go(self, command: str) -> None:
        """Continue at the selected entry, or in a fork that ends there."""
        entry = self.lines.entry
        if entry is None:
            self.lines.unfold()
        else:
            self.dismiss(f"{command} {entry.id}")

    def action_edit(self) -> None:
        """Continue before the user's selected message, and let the user edit the message."""
        entry = self.lines.entry
        if entry is not None and role_of(entry) == "user":
            self.dismiss(f"edit {entry.id}")
        else:
            self._hint("only your own messages can be edited")

    def action_fold(self, is_folded: bool) -> None:  # noqa: FBT001 - a binding passes it by position
        """Fold or unfold the selected line."""
        if is_folded:
            self.lines.fold()
        else:
            self.lines.unfold()

    async def action_more(self) -> None:
        """Read more entries of a long session."""
        self._limit *= 4
        await self._read()

    async def action_compare(self) -> None:
        """Mark an entry; if another entry is marked already, show how both branches differ."""
        entry = self.lines.entry
        if entry is None:
            return
        if self._compared is None:
            self._compared = entry.id
            self._show_title()
            return
        ends = (self._compared, entry.id)
        self._compared = None
        self._show_title()
        paths = [await self._session.path(end) for end in ends]
        room = max(self.size.width - 6, _LEAST_CELLS)
        found = difference(*paths)
        lines = difference_lines(found, ends, self._session.id, room, self._drawn_style)
        await self.app.push_screen(  # pyright: ignore[reportUnknownMemberType] - any app can show it
            LinesScreen("Two branches compared", map(painted, lines))
        )

    # ------------------------------------------------------------ labels and search

    def action_ask(self, what: str) -> None:
        """Ask for a label or a text to find, as `what` says; `what` "" closes the text field."""
        if what == "label" and self.lines.entry is None:
            return
        self._asks = what
        field = self.query_one("#tree-input", Input)
        field.display = bool(what)
        field.value = ""
        field.placeholder = _ASKED.get(what, "")
        self.refresh_bindings()
        (field if what else self.lines).focus()

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Label the entry, or select the first match."""
        what, value = self._asks, event.value.strip()
        self.action_ask("")
        entry = self.lines.entry
        if what == "label" and entry is not None:
            await self._obey(f"/label {entry.id} {value}".rstrip())
            await self._read()
        elif what == "search" and value:
            self._sought = value
            self.lines.seek(value)
            self.action_next(1)

    def action_next(self, step: int) -> None:
        """Select the next or the previous match of the search."""
        match = self.lines.go_to_match(step)
        if match is None:
            told = "nothing found" if self._sought else "nothing was searched yet; / searches"
            self._hint(told)
        self._show_title(match)
