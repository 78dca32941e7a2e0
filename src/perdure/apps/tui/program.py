"""The full-screen chat: its keys and what they do."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widgets import TextArea

from perdure.apps.chat.conversation import is_command, is_shell_command
from perdure.apps.chat.history import Drafts, drafts_of
from perdure.apps.chat.session import AnswerOptions
from perdure.apps.chat.slash_commands import HELP, LEAVING
from perdure.apps.chat.turn_view import Left
from perdure.apps.cli.exits import DONE, INTERRUPTED
from perdure.apps.terminal.line_input import is_gone, typed_ahead
from perdure.apps.tui.approval import Approval
from perdure.apps.tui.composer import Composer
from perdure.apps.tui.gauge import KeyFooter, numbers_after
from perdure.apps.tui.lines_screen import LinesScreen
from perdure.apps.tui.screen_display import ScreenDisplay
from perdure.apps.tui.text import plain
from perdure.apps.tui.transcript import Transcript
from perdure.session.ids import StreamId

KEYS = """Enter                  send; during a turn: steer it
Ctrl-J, Alt-Enter      begin a new line (so does a \\ before Enter)
Up, Down               earlier messages
@                      complete the name of a file, and attach it
Tab, Shift-Tab         complete, or move to a tool call; Enter unfolds it
Ctrl-O                 unfold or fold all tool calls
Ctrl-R                 show or hide the model's reasoning
Escape                 stop the turn or the command
PageUp, PageDown       scroll
F1                     this help
Ctrl-C twice, Ctrl-D   exit; the session can be resumed"""

_LEAVE_S = 3.0
"""A second Ctrl-C within this time exits."""

_KEEP_S = 0.25
"""Delay after which typed text is stored; newer text is lost if the terminal is killed."""

_LOST_LOOK_S = 1.0
"""How often the chat checks whether its terminal is gone."""


class ChatProgram(App[int]):
    """The terminal chat."""

    CSS_PATH = "style.tcss"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "Composer"  # from the start: no other widget gets what is typed
    INLINE_PADDING = 0

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help", priority=True),
        Binding("escape", "stop", "Stop"),
        Binding("ctrl+o", "unfold", "Tools", priority=True),
        Binding("ctrl+r", "reasoning", "Reason", priority=True),
        Binding("pageup", "page(-1)", "Scroll", show=False, priority=True),
        Binding("pagedown", "page(1)", "Scroll", show=False, priority=True),
        Binding("ctrl+d", "leave", "Exit", show=False, priority=True),
        Binding("ctrl+c", "interrupt", "Exit", key_display="^C^C", priority=True),
    ]

    def __init__(
        self,
        answering: AnswerOptions,
        session: str | None,
        cwd: Path | None,
        *,
        theme: str = "textual-dark",
        drafts: Drafts | None = None,
        terminal: int | None = None,
    ) -> None:
        """Text that is typed into the file descriptor `terminal` during the start is not lost."""
        super().__init__(ansi_color=True if theme.startswith("ansi") else None)
        self.theme = theme
        self.shown = ScreenDisplay(self, answering, cwd, drafts)
        self.conversation = self.shown.conversation
        self.transcript, self.input = self.shown.transcript, self.shown.input
        self.failure: Exception | None = None
        self._first_session = session
        self._terminal = terminal
        self._typed_ahead = ""
        self._in_order = asyncio.Lock()
        self._obeying: asyncio.Task[object] | None = None
        self._pressed_at = -_LEAVE_S
        self._is_unfolded = False
        self._keeping: Timer | None = None
        self._typed = count()

    def compose(self) -> ComposeResult:
        """Lay out the transcript, the text field, the gauge and the keys."""
        yield self.transcript
        yield self.input
        yield self.shown.gauge
        yield KeyFooter()

    # ------------------------------------------------------------ start and end

    async def on_load(self) -> None:
        """Read the keys that were typed before the start; an Enter is read as a line break."""
        if self._terminal is not None:
            self._typed_ahead = await asyncio.to_thread(typed_ahead, self._terminal)

    def on_mount(self) -> None:
        """Open the session."""
        self.begin_capture_print(self)
        self.run_worker(self._show_told(), group="told")
        self.run_worker(self._open(), group="open")
        if self._terminal is not None:
            self.set_interval(_LOST_LOOK_S, self._leave_lost_terminal)

    def _leave_lost_terminal(self) -> None:
        """Exit if the terminal is gone, because Textual itself would read EOF forever."""
        if self._terminal is not None and is_gone(self._terminal):
            self._keep_draft()
            self.exit(INTERRUPTED)

    async def _open(self) -> None:
        composer, text = self.input.composer, self._typed_ahead
        is_entered = text.endswith("\n") and text.count("\n") == 1  # more lines may be a paste
        if text.strip() and not is_entered:
            composer.insert_text(text)
        try:
            if self._first_session is None:
                await self.shown.show_session(None)
                model = self.conversation.answering.agent.model
                self.conversation.remark(
                    f"A new session with {model}. /help lists commands and keys."
                )
            else:
                async with self._in_order:  # an interrupted turn of it comes first
                    await self.conversation.open(self._first_session)
                await self.shown.refresh_gauge()
            if text.strip() and is_entered:
                composer.post_message(Composer.Submitted(text.removesuffix("\n")))
        except Left:
            self.exit(INTERRUPTED)
        except Exception as error:  # noqa: BLE001 - the command line reports it
            self.failure = error
            self.exit(DONE)

    async def _show_told(self) -> None:
        """Show events and remarks in the order in which they arrive."""
        queue = self.shown.teller.queue
        while True:
            told = await queue.get()
            if isinstance(told, str):
                await self.transcript.remark(told)
            else:
                await self.transcript.feed(told)
                self.input.waiting.follow(told)
                gauge = self.shown.gauge
                gauge.show(numbers_after(gauge.numbers, told))
            queue.task_done()

    def on_print(self, event: events.Print) -> None:
        """Show warnings that other parts of the program print to stderr."""
        if text := event.text.strip():
            self.conversation.remark(text)

    def action_leave(self) -> None:
        """Exit; a running turn stays open and can be resumed."""
        self._keep_draft()
        self.exit(DONE)

    async def action_interrupt(self) -> None:
        """Copy a selection, or else clear the text and stop work; exit at a second key press."""
        if selected := self.screen.get_selected_text():
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
            return
        before, self._pressed_at = self._pressed_at, asyncio.get_running_loop().time()
        if self._pressed_at - before < _LEAVE_S:
            self.exit(INTERRUPTED)
            return
        composer = self.input.composer
        if composer.text.strip():
            composer.remember(composer.text)
            composer.text = ""
        await self.action_stop()
        self._pressed_at = asyncio.get_running_loop().time()  # the hint is visible from now on
        self.shown.gauge.hint("Ctrl-C again exits; the session can be resumed", _LEAVE_S)

    async def action_stop(self) -> None:
        """Close the list of completions; if it is not open, stop the running turn or command."""
        chat = self.conversation.chat
        if self.input.offers is not None:
            self.input.offer(None)
        elif chat is not None and chat.is_running:
            await chat.abort()
        elif self._obeying is not None and not self._obeying.done():
            self._obeying.cancel()

    # ------------------------------------------------------------ what is typed

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Store unsent text after a delay; delete it immediately when the field is empty."""
        if event.text_area is not self.input.composer:
            return
        if not self.input.composer.text:
            self._keep_draft()
        elif self._keeping is None:
            self._keeping = self.set_timer(_KEEP_S, self._keep_draft)

    def _keep_draft(self) -> None:
        if self._keeping is not None:
            self._keeping.stop()
        self._keeping = None
        self.shown.keep_draft()

    def on_transcript_typed(self, event: Transcript.Typed) -> None:
        """Write text into the text field if it was typed while a tool call had the focus."""
        self.input.write(event.text)

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        """Process the submitted text: steer the turn, send a message, or run a command."""
        text = event.text  # the field may hold newer text, with offers
        self.input.composer.remember(text)
        self.input.drop_unmentioned(text)
        self.transcript.anchor()  # also after scrolling up
        if text.strip() in LEAVING:
            self.exit(DONE)
        elif text.strip() == "/help":
            self.action_help()
        elif not self.shown.is_busy or is_shell_command(text):
            self.run_worker(self._obey_in_order(text), group="obey")
        elif is_command(text.partition(" ")[0]):
            self.run_worker(self._obey(text), group="command")
        else:
            self.run_worker(self._steer(text), group="steer")

    async def _obey_in_order(self, text: str) -> None:
        waiting, name = self.input.waiting, f"typed {next(self._typed)}"
        if self._in_order.locked():
            waiting.add(name, text)
        try:
            async with self._in_order:
                waiting.drop(name)
                self._obeying = asyncio.current_task()  # Escape stops it, not what waits for it
                with self.shown.working(text):
                    await self._obey(text)
        finally:
            waiting.drop(name)

    async def _steer(self, text: str) -> None:
        await self.conversation.steer(text)
        self.input.show_attached()
        for late in self.conversation.take_late():  # the next messages
            self.run_worker(self._obey_in_order(late), group="obey")

    async def _obey(self, text: str) -> None:
        if text.startswith("!"):
            self.conversation.remark(text)  # a command of the user is no message of the session
        try:
            await self.conversation.obey(text)
            await self.shown.refresh_gauge()
        except Left:
            self.exit(INTERRUPTED)
        except asyncio.CancelledError:
            self.conversation.remark("(stopped)")
            raise
        except Exception as error:  # noqa: BLE001 - the command line reports it
            self.failure = error
            self.exit(DONE)
        self.input.show_attached()

    # ------------------------------------------------------------ keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return False for the keys of the chat while another screen covers the chat."""
        is_covered = len(self.screen_stack) > 1
        return not (is_covered and action in ("help", "unfold", "reasoning", "page"))

    def action_help(self) -> None:
        """Show the commands and the keys."""
        lines = [*HELP.splitlines(), "", *KEYS.splitlines()]
        self.push_screen(LinesScreen("Commands and keys", map(plain, lines)))

    def action_unfold(self) -> None:
        """Unfold or fold all tool calls."""
        self._is_unfolded = not self._is_unfolded
        self.transcript.unfold_all(is_unfolded=self._is_unfolded)

    def action_reasoning(self) -> None:
        """Show or hide the model's reasoning."""
        self.transcript.show_reasoning(is_shown=not self.transcript.is_reasoning_shown)

    async def action_page(self, direction: int) -> None:
        """Scroll by a page: the question, or the messages if there is no question."""
        if isinstance(self.focused, Approval):
            self.focused.scroll_page(direction)
            return
        await self.transcript.scroll_page(direction)


def theme_of(wanted: str, environment: Mapping[str, str]) -> str:
    """Return Textual's theme for the setting `wanted`; "auto" reads $COLORFGBG.

    If $NO_COLOR is set, or the terminal lacks 256 colours, the terminal's own colours are used.
    """
    has_colours = "256" in environment.get("TERM", "") or bool(environment.get("COLORTERM"))
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    is_light = background in ("7", "15") if wanted == "auto" else wanted == "light"
    if environment.get("NO_COLOR") or wanted == "terminal" or not has_colours:
        return "ansi-light" if is_light else "ansi-dark"
    return "textual-light" if is_light else "textual-dark"


async def run_program(
    answering: AnswerOptions, session: str | None, cwd: Path | None, *, theme: str, is_inline: bool
) -> tuple[int, StreamId | None]:
    """Run the chat until the user leaves.

    Returns the exit code, and the session that can be resumed.

    Raises: the error that ended the chat.
    """
    drafts = await drafts_of(answering.store, os.environ)
    program = ChatProgram(
        answering,
        session,
        cwd,
        theme=theme_of(theme, os.environ),
        drafts=drafts,
        terminal=sys.stdin.fileno(),
    )
    async with answering.runtime:
        code = await program.run_async(inline=is_inline, mouse=not is_inline)
    if program.failure is not None:
        raise program.failure
    chat = program.conversation.chat
    return program.return_code or code or DONE, None if chat is None else chat.id
