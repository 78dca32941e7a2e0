"""The session picker of the full-screen chat: the search of ``sessions pick``, with a preview."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from perdure.apps.picker.selection import (
    Choice,
    State,
    after,
    choices_of,
    first_state,
    none_text,
)
from perdure.apps.terminal.output import local_time
from perdure.apps.terminal.previews import message_line
from perdure.apps.terminal.text import one_line
from perdure.apps.tui.gauge import KeyFooter
from perdure.apps.tui.text import plain
from perdure.client.store import Store
from perdure.errors import PerdureError

MOST_LISTED = 200
"""Maximum number of listed sessions; others are found by typing."""

_PREVIEWED = 6
_WRAPPED = 20
"""Cells that can stay empty in the preview, because its last message is broken between words."""

_TIME_CELLS = 18


class SessionScreen(ModalScreen[str | None]):
    """All sessions of `store`; sessions of `folder` come first.

    Returns the id of the chosen session; None if none was chosen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Continue it", priority=True),  # before the text field
        Binding("up", "move(-1)", "Up", show=False, priority=True),
        Binding("down", "move(1)", "Move", key_display="↑↓", priority=True),
        Binding("pageup", "move(-10)", "Up", show=False, priority=True),
        Binding("pagedown", "move(10)", "Down", show=False, priority=True),
        Binding("tab", "everywhere", "All folders or this one", priority=True),
        Binding("escape", "leave", "Close"),
    ]

    def __init__(self, store: Store, folder: str) -> None:
        super().__init__(id="session-screen")
        self._store = store
        self._folder = folder
        self._state = State((), folder)

    def compose(self) -> ComposeResult:
        """Lay out the text field, the list, the preview and the keys."""
        yield Input(
            placeholder='words of a title, id or folder, or "exact words"',
            compact=True,
        )
        yield OptionList(id="sessions", markup=False, compact=True)
        yield Static("", id="session-preview", markup=False)
        yield KeyFooter()

    async def on_mount(self) -> None:
        """List the sessions."""
        self.query_one(OptionList).can_focus = False
        found = await self._store.recent(None)
        self._state = first_state(choices_of(found), self._folder)
        self._draw()
        self.query_one(Input).focus()

    def _draw(self) -> None:
        sessions = self.query_one(OptionList)
        sessions.clear_options()
        sessions.add_options(
            Option(plain(_row(choice, self._room))) for choice in self._state.fitting[:MOST_LISTED]
        )
        if self._state.fitting:
            sessions.highlighted = 0
        else:
            self._preview()  # it ends the preview of an earlier selection

    def _change(self, *keys: str) -> None:
        """Apply `keys`, which must not close the picker, and list the sessions again."""
        for key in keys:
            found = after(self._state, key)
            assert isinstance(found, State)
            self._state = found
        self._draw()

    @property
    def _room(self) -> int:
        return max(self.size.width - 6, 40)

    def _choice(self) -> Choice | None:
        at = self.query_one(OptionList).highlighted
        fitting = self._state.fitting
        return fitting[at] if at is not None and at < len(fitting) else None

    def on_input_changed(self, event: Input.Changed) -> None:
        """List the sessions that match the typed text."""
        self._change("erase_all", f"text:{event.value}")

    def on_option_list_option_highlighted(self, _: OptionList.OptionHighlighted) -> None:
        """Show the end of the highlighted session."""
        self._preview()

    @work(exclusive=True)
    async def _preview(self) -> None:
        choice = self._choice()
        if choice is None:
            if not self._state.fitting:
                text = none_text(self._state)
                self.query_one("#session-preview", Static).update(plain(text))
            return
        info = choice.info
        lines = [
            plain(f"{info.id}  {info.source or 'perdure'}  {info.messages} messages", "bold"),
            plain(info.cwd or "(no folder)"),
        ]
        try:
            session = await self._store.open(info.id)
            messages = await session.messages(last=_PREVIEWED)
            for message in messages:
                # One line each, and two for the newest, so that it is never below the edge.
                cells = self._room * 2 - _WRAPPED if message is messages[-1] else self._room
                text = message_line(message, cells)
                lines.append(plain(one_line(f"{message.role}: {text}", cells)))
        except PerdureError as error:
            lines.append(plain(str(error)))
        self.query_one("#session-preview", Static).update(Content("\n").join(lines))

    # ------------------------------------------------------------ keys

    def action_move(self, step: int) -> None:
        """Move the selection."""
        sessions = self.query_one(OptionList)
        if sessions.highlighted is not None:
            last = sessions.option_count - 1
            sessions.highlighted = min(max(sessions.highlighted + step, 0), last)

    def action_everywhere(self) -> None:
        """Switch between the sessions of this folder and the sessions of all folders."""
        self._change("everywhere")

    def action_choose(self) -> None:
        """Choose the highlighted session."""
        if (choice := self._choice()) is not None:
            self.dismiss(choice.info.id)

    def action_leave(self) -> None:
        """Close the picker without choosing a session."""
        self.dismiss(None)


def _row(choice: Choice, width: int) -> str:
    info = choice.info
    mark = "●" if info.open_turn is not None else " "
    name = one_line(info.name or "(nothing said yet)", max(width - _TIME_CELLS - 4, 20))
    return f"{mark} {local_time(info.updated_at)}  {name}"
