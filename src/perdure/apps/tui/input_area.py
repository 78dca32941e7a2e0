"""The text field with its completions, the attached files and the waiting messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from perdure.apps.chat.attachments import Attached, attached_line, is_mentioned
from perdure.apps.chat.conversation import Conversation
from perdure.apps.chat.files import files_below
from perdure.apps.chat.slash_commands import HELP
from perdure.apps.cli.exits import PathNotFound
from perdure.apps.terminal.text import one_line
from perdure.apps.tui.completion import Offers, offers_for
from perdure.apps.tui.composer import Composer
from perdure.apps.tui.text import plain
from perdure.errors import PerdureError
from perdure.events.types import AnyEvent, Event

_LEAST_CELLS = 20


class Waiting(Static):
    """The list of messages that wait for the running turn, one line for each.

    The list is hidden if no message waits.
    """

    def __init__(self) -> None:
        super().__init__("", id="waiting", markup=False)
        self._texts: dict[str, str] = {}

    def on_mount(self) -> None:
        """Start with an empty list."""
        self._draw()

    def on_resize(self) -> None:
        """Fit the lines to the new width."""
        self._draw()

    def add(self, name: str, text: str) -> None:
        """Show `text` until `name` is passed to `drop`."""
        self._texts[name] = text
        self._draw()

    def drop(self, name: str) -> None:
        """Hide the message `name`."""
        if self._texts.pop(name, None) is not None:
            self._draw()

    def clear_all(self) -> None:
        """Hide all messages."""
        self._texts.clear()
        self._draw()

    def follow(self, event: AnyEvent) -> None:
        """Show the queued messages of the log until the turn includes them."""
        if not isinstance(event, Event):
            return
        if event.type == "session:adopted":
            self.drop(str(event.payload.get("about")))
        elif event.type == "session:queued" and (text := _text_in(event.payload.get("entryBody"))):
            self.add(str(event.payload.get("entryId")), text)

    def _draw(self) -> None:
        room = max((self.size.width or 80) - 2, _LEAST_CELLS)
        lines = [one_line(f"waits: {text}", room) for text in self._texts.values()]
        self.display = bool(lines)
        self.update(plain("\n".join(lines)))


class InputArea(Vertical):
    """The input area for messages to `conversation`."""

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(id="input")
        self.composer = Composer(self.move)
        self.files: list[str] = []
        self.offers: Offers | None = None
        self._conversation = conversation
        self._offered = OptionList(id="offers", markup=False, compact=True)
        self._attached = Static("", id="attached", markup=False)
        self.waiting = Waiting()
        self._mentioned: set[str] = set()
        self._commands = _commands()

    def compose(self) -> ComposeResult:
        """Lay out the completions, the attached files, the waiting messages and the text field."""
        yield self._offered
        yield self._attached
        yield self.waiting
        yield self.composer

    def on_mount(self) -> None:
        """Hide the lists of completions and attached files, which are empty at the start."""
        self._offered.can_focus = False
        self._offered.display = False
        self._attached.display = False
        self.composer.placeholder = "Write a message, /command, !command or @file"

    async def use_folder(self, folder: Path) -> None:
        """Complete file names in `folder`."""
        self.files = await asyncio.to_thread(files_below, folder)

    def write(self, text: str) -> None:
        """Insert `text` and set the keyboard focus, unless a question hides the text field."""
        if self.display:
            self.composer.focus()
            self.composer.insert_text(text)

    # ------------------------------------------------------------ offers

    def on_text_area_changed(self, _: TextArea.Changed) -> None:
        """Offer completions for the text before the cursor, and show the attached files."""
        if (offers := self._offers_now()) != self.offers:
            self.offer(offers)
        if self._mentioned:
            self.show_attached()

    def _offers_now(self) -> Offers | None:
        row, column = self.composer.cursor_location
        line = self.composer.document.get_line(row)
        return offers_for(
            line, column, is_first=row == 0, commands=self._commands, files=self.files
        )

    def offer(self, offers: Offers | None) -> None:
        """Show `offers`; None closes the list."""
        self.offers = offers
        self._offered.display = offers is not None
        self._offered.clear_options()
        if offers is not None:
            self._offered.add_options(
                Option(plain(f"{value:<12}  {offers.hints.get(value, '')}".rstrip()))
                for value in offers.values
            )
            self._offered.highlighted = 0

    def move(self, key: str) -> bool:
        """Move ``up`` or ``down`` in the list of completions, or ``accept`` one.

        Returns False if no list of completions is open.

        The composer calls this method directly while it handles the key, because a Textual message
        would arrive after later keys.
        """
        if self.offers is None:
            return False
        if (offers := self._offers_now()) != self.offers:  # the text has changed just before
            self.offer(offers)
        at = self._offered.highlighted
        if offers is None or at is None:
            return False
        if key == "up":
            self._offered.action_cursor_up()
        elif key == "down":
            self._offered.action_cursor_down()
        else:
            self._accept(offers, offers.values[at])
        return True

    def _accept(self, offers: Offers, value: str) -> None:
        row, column = self.composer.cursor_location
        self.composer.replace(f"{value} ", (row, offers.start), (row, column))
        self.offer(None)
        if offers.kind == "file":
            self.run_worker(self._attach_file(value), group="attach")

    # ------------------------------------------------------------ attachments

    async def _attach_file(self, name: str) -> None:
        try:
            await self._conversation.add_file(name)
            self._mentioned.add(name)
        except (PerdureError, OSError) as error:
            told = "it is gone" if isinstance(error, PathNotFound) else str(error)
            self._conversation.remark(f"{name} is named, but not attached: {told}")
        self.show_attached()

    def on_composer_pasted_long(self, event: Composer.PastedLong) -> None:
        """Attach the paste, because it is too long to edit."""
        name = f"pasted text, {event.text.count(chr(10)) + 1} lines"
        self._conversation.attached.append(Attached(name, len(event.text.encode()), event.text))
        self.show_attached()

    def drop_unmentioned(self, text: str) -> None:
        """Remove the attached files whose ``@name`` the user deleted from the message `text`."""
        gone = self._unmentioned(text)
        attached = self._conversation.attached
        attached[:] = [each for each in attached if each.name not in gone]
        self._mentioned.clear()

    def _unmentioned(self, text: str) -> set[str]:
        return {name for name in self._mentioned if not is_mentioned(name, text)}

    def show_attached(self) -> None:
        """Show the files that will be sent with the text, not those whose name was deleted."""
        gone = self._unmentioned(self.composer.text)
        attached = [each for each in self._conversation.attached if each.name not in gone]
        self._attached.display = bool(attached)
        self._attached.update(plain(f"attached: {attached_line(attached)}"))


def _commands() -> Mapping[str, str]:
    """Return every command with its description, taken from the text of ``/help``."""
    commands = (line for line in HELP.splitlines() if line.startswith("/"))
    return {line.split()[0]: line[23:].removesuffix(";") for line in commands}


def _text_in(body: object) -> str:
    """Return the text of a user's queued message; "" for other entries."""
    if not isinstance(body, Mapping):
        return ""
    message = cast("Mapping[str, object]", body)
    if message.get("role") != "user":
        return ""
    parts = cast("list[Mapping[str, object]]", message.get("parts") or [])
    return " ".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)
