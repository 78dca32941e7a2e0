"""The full-screen program as a display of a conversation: questions, screens, sessions, numbers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Generator
from pathlib import Path

import msgspec
from textual.app import App

from perdure.apps.chat.conversation import Conversation, is_command
from perdure.apps.chat.history import Drafts, earlier_inputs
from perdure.apps.chat.questions import Asked, Given
from perdure.apps.chat.session import AnswerOptions
from perdure.apps.session_costs import uncounted_spending
from perdure.apps.settings.layers import Configuration
from perdure.apps.terminal.contexts import chat_context
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import one_line
from perdure.apps.tui.approval import Approval
from perdure.apps.tui.gauge import Gauge, Numbers
from perdure.apps.tui.input_area import InputArea
from perdure.apps.tui.session_screen import SessionScreen
from perdure.apps.tui.transcript import Transcript
from perdure.apps.tui.tree_screen import TreeScreen
from perdure.client.agents.chat import Chat
from perdure.errors import PerdureError
from perdure.events.types import AnyEvent
from perdure.session.ledger import Spending
from perdure.session.messages import TextPart

_WORK_CELLS = 24
"""Maximum width, in cells, of typed text that is shown while it is processed."""


class ScreenTeller:
    """Passes events and remarks to the program, in the order in which they arrive."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[AnyEvent | str] = asyncio.Queue()

    def tell(self, event: AnyEvent) -> None:
        """Queue the event; the full-screen program shows queued events soon."""
        self.queue.put_nowait(event)

    def remark(self, text: str) -> None:
        """Queue the text; the full-screen program shows queued remarks soon."""
        self.queue.put_nowait(text)


class ScreenDisplay:
    """Shows a conversation on the screen of `program`."""

    def __init__(
        self,
        program: App[int],
        answering: AnswerOptions,
        cwd: Path | None,
        drafts: Drafts | None = None,
    ) -> None:
        self.teller = ScreenTeller()
        self.is_busy = False
        self.conversation = Conversation(answering, self, cwd)
        self.transcript = Transcript()
        self.input = InputArea(self.conversation)
        self.gauge = Gauge()
        self._program = program
        self._drafts = drafts
        self._kept_as = self._draft_name()

    async def ask(self, asked: Asked) -> Given:
        """Show the question in place of the text field, and return the answer."""
        await self.teller.queue.join()
        program = self._program
        panel = Approval(
            asked, lambda: self.conversation.whole_question(asked), self._rows_for_questions
        )
        self.transcript.screen.add_class("full")  # all rows of the terminal, also below the prompt
        await program.mount(panel, before=self.input)
        self.input.display = False
        self._set_state("waits for your answer")
        try:
            return await panel.answer()
        finally:
            if program.is_running and program.screen_stack:  # empty when the program ends
                self._set_state("running" if self.is_busy else "")
                await panel.remove()
                self.input.display = True
                self.input.composer.focus()

    def _rows_for_questions(self) -> int:
        """Return the number of rows for a question: the height of the terminal.

        In inline mode, 2 rows are added, because the panel has no border.
        """
        return self._program.size.height + 2 * self._program.is_inline

    async def show_tree(self, chat: Chat) -> None:
        """Open the tree navigator, and run the command that the user chooses there."""
        program = self._program
        style = Style(is_coloured=not program.no_color)
        screen = TreeScreen(chat.session, style, self.conversation.obey)
        chosen = await program.push_screen_wait(screen)
        if chosen is None:
            return
        command, _, entry = chosen.partition(" ")
        if command == "edit":
            await self._edit(chat, entry)
        else:
            await self.conversation.obey(chosen)

    async def _edit(self, chat: Chat, entry: str) -> None:
        """Continue the session before the message `entry`, and put its text into the text field."""
        found = await chat.session.entry(entry)
        await self.conversation.obey(f"/branch {found.parent_id or 'root'}")
        parts = found.message.parts if found.message is not None else ()
        text = "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
        self.input.composer.show_text(text)

    async def choose_session(self) -> str | None:
        """Open the picker."""
        conversation = self.conversation
        screen = SessionScreen(conversation.answering.store, str(conversation.folder))
        return await self._program.push_screen_wait(screen)

    async def show_session(self, chat: Chat | None) -> None:
        """Show the newest messages of the session, and load the input history of its folder."""
        await self.teller.queue.join()
        session, is_running = (None, False) if chat is None else (chat.session, chat.is_running)
        await self.transcript.open(session, is_running=is_running)
        self.input.waiting.clear_all()
        self.gauge.show(Numbers(uncounted=None))
        await self.refresh_gauge()
        conversation = self.conversation
        with contextlib.suppress(PerdureError):
            inputs = await earlier_inputs(conversation.answering.store, conversation.folder)
            self.input.composer.use_history(inputs)
        self._offer_draft()
        await self.input.use_folder(conversation.folder)

    async def _show_uncounted_cost(self, chat: Chat) -> None:
        """Show the same cost as the command `/cost`. A long session is read in the background."""
        try:
            prices = Configuration(Path(chat.workspace.working_dir), os.environ).prices
            found = await uncounted_spending(self.conversation.answering.store, chat, prices)
        except PerdureError:
            return  # for example invalid settings, which `/cost` reports
        if self.conversation.chat is not None and self.conversation.chat.id == chat.id:
            self.gauge.show(msgspec.structs.replace(self.gauge.numbers, uncounted=found))

    # ------------------------------------------------------------ unsent text

    def _draft_name(self) -> str:
        """Return the name for unsent text: the session id, or the folder for a new session."""
        chat = self.conversation.chat
        return str(self.conversation.folder) if chat is None else chat.id

    def _offer_draft(self) -> None:
        """Show text that was unsent when an earlier chat of this session was killed.

        If the user typed text while the session was being opened, this text follows the unsent
        text.
        """
        composer = self.input.composer
        if self._drafts is None:
            return
        if text := self._drafts.take(self._draft_name(), composer.text):
            composer.show_text("\n".join(filter(None, (text, composer.text))))
            self.teller.remark("the text that was not sent last time is back; Ctrl-C clears it")
        self.keep_draft()

    def keep_draft(self) -> None:
        """Store the text of the text field, so that it is not lost if the terminal is killed."""
        if self._drafts is None:
            return
        if (name := self._draft_name()) != self._kept_as:
            self._drafts.keep(self._kept_as, "")  # the text was typed while `name` opened
        self._kept_as = name
        self._drafts.keep(name, self.input.composer.text)

    @contextlib.contextmanager
    def working(self, text: str) -> Generator[None]:
        """Show that `text` is being processed, because loading a library can take seconds."""
        word = text.partition(" ")[0]
        is_local = is_command(word) or text.startswith("!")
        shown = one_line(word if is_local else f"“{text}”", _WORK_CELLS)
        self._set_state(f"working: {shown}" if is_local else f"sending {shown}")
        try:
            yield
        finally:
            self._set_state("")

    async def begin_turn(self, chat: Chat) -> None:
        """Show that a turn runs."""
        self.is_busy = True
        self.input.show_attached()
        self._set_state("running")

    async def end_turn(self, chat: Chat) -> None:
        """Show that no turn runs."""
        self.is_busy = False
        self._set_state("")

    def _set_state(self, state: str) -> None:
        gauge = self.gauge
        gauge.show(msgspec.structs.replace(gauge.numbers, state=state))

    async def refresh_gauge(self) -> None:
        """Show the model, the cost and the context of the session, read from the log."""
        conversation, gauge = self.conversation, self.gauge
        chat, answering = conversation.chat, conversation.answering
        known = msgspec.structs.replace(
            gauge.numbers, folder=str(conversation.folder), model=answering.agent.model
        )
        is_counted = True
        if chat is not None:
            context = await chat_context(chat)
            spent = await chat.spent()
            is_imported = (await chat.session.info()).origin == "import"
            is_counted = not (is_imported or spent.unpriced_calls)
            model = context.model or chat.agent.model
            known = msgspec.structs.replace(
                known,
                model=model,
                thinking=context.thinking_level or chat.agent.thinking_level,
                cost_microcents=spent.cost_microcents,
                unpriced=spent.unpriced_calls,
                context=context.tokens if context.messages else None,
                window=answering.window_of(model),
            )
        if is_counted:
            known = msgspec.structs.replace(known, uncounted=Spending())
        gauge.show(known)
        if chat is not None and not is_counted:
            work = self._show_uncounted_cost(chat)
            self._program.run_worker(work, group="cost", exclusive=True)
