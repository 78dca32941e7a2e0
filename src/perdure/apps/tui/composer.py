"""The text field of the chat: several lines, history, and pastes kept unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, cast

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS  # it has no public name
from textual.binding import Binding, BindingType
from textual.keys import Keys
from textual.message import Message
from textual.widgets import TextArea

from perdure.session.messages import LONG_PASTE
from perdure.session.printable import safe

# Alt-Enter of tmux and others; Textual takes it for Enter.
cast("dict[str, object]", ANSI_SEQUENCES_KEYS)["\x1b\r"] = (Keys.ControlJ,)

TAB_CELLS = 8
"""Width of a tab in cells, so that a tab is visibly deeper than four spaces."""


class TextMessage(Message):
    """Base class of the messages between widgets that contain a `text`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Composer(TextArea):
    """The field in which the user writes. Enter sends; Ctrl-J or Alt-Enter begins a new line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Send"),
        Binding("ctrl+j", "newline", "New line"),
    ]

    class Submitted(TextMessage):
        """The user sent `text`."""

    class PastedLong(TextMessage):
        """The user pasted a text that is too long to edit."""

    def __init__(self, move: Callable[[str], bool]) -> None:
        """`move` performs ``up``, ``down`` or ``accept`` in the list of completions.

        `move` returns False if no list of completions is open.
        """
        super().__init__(id="composer", compact=True, highlight_cursor_line=False)
        self.indent_width = TAB_CELLS
        self._move = move
        self._earlier: list[str] = []
        self._place = -1
        self._draft = ""

    def use_history(self, texts: Sequence[str]) -> None:
        """Let the history keys recall `texts`, newest first."""
        self._earlier = list(texts)
        self._place = -1

    def remember(self, text: str) -> None:
        """Add `text` to the history as the newest text."""
        if self._earlier[:1] != [text]:
            self._earlier.insert(0, text)
        self._place = -1

    def show_text(self, text: str) -> None:
        """Replace the typed text by `text`."""
        self.text = safe(text)
        self.move_cursor(self.document.end)

    # ------------------------------------------------------------ keys

    async def _on_key(self, event: events.Key) -> None:
        """Handle keys in the order in which they were typed.

        Textual's key bindings are not used, because they would change the order of the keys.
        """
        actions = {
            "enter": self.action_submit,
            "ctrl+j": self.action_newline,
            "shift+enter": self.action_newline,
            "alt+enter": self.action_newline,
            "tab": self.action_complete,
            "up": self.action_earlier,
            "down": self.action_later,
        }
        if (action := actions.get(event.key)) is not None:
            event.prevent_default()
            event.stop()
            action()

    def action_submit(self) -> None:
        """Accept a completion, begin a new line after a backslash, or send the text."""
        row, column = self.cursor_location
        if self._move("accept"):
            return
        if self.document.get_line(row)[:column].endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column))
        else:
            self.submit()

    def submit(self) -> None:
        """Send the text, unless it is empty."""
        if self.text.strip():
            text = self.text
            self.text = ""
            self.post_message(self.Submitted(text))

    def action_newline(self) -> None:
        """Begin a new line."""
        self.insert("\n")

    def action_complete(self) -> None:
        """Accept a completion, or move to the newest tool call."""
        if not self._move("accept") and self.screen.focus_previous("FoldBlock") is None:
            self.focus()

    def action_earlier(self) -> None:
        """Move up: in the list of completions, in the text, or in the history."""
        if self._move("up"):
            return
        if not self.cursor_at_first_line:
            self.action_cursor_up()
        elif self._place + 1 < len(self._earlier):
            if self._place < 0:
                self._draft = self.text
            self._place += 1
            self.show_text(self._earlier[self._place])

    def action_later(self) -> None:
        """Move down: in the list of completions, in the text, or in the history."""
        if self._move("down"):
            return
        if not self.cursor_at_last_line:
            self.action_cursor_down()
        elif self._place >= 0:
            self._place -= 1
            self.show_text(self._draft if self._place < 0 else self._earlier[self._place])

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert a paste with its line breaks and indentation, without sending the message."""
        event.stop()
        event.prevent_default()
        self.insert_text(event.text)

    def insert_text(self, text: str) -> None:
        """Insert `text` at the cursor; if it is too long to edit, attach it."""
        text = safe(text.replace("\r\n", "\n").replace("\r", "\n"))
        if len(text) > LONG_PASTE:
            self.post_message(self.PastedLong(text))
        else:
            self.replace(text, *self.selection)
