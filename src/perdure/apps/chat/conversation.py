"""Runs a chat independently of its display: messages, commands, turns and questions.

A `Display` shows the conversation: line by line, or as a full-screen program. Input has the same
meaning line by line and in the full-screen program: a message, a command with a slash, or
``!command`` for the user's shell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from perdure.apps.chat.attachments import (
    Attached,
    attach,
    attach_mentioned,
    message_with,
    unread_instructions,
)
from perdure.apps.chat.permissions import TypedPermissions
from perdure.apps.chat.questions import Asked, Given, pending_questions
from perdure.apps.chat.session import AnswerOptions, Resumed
from perdure.apps.chat.shell_command import run_shell
from perdure.apps.chat.slash_commands import Presentation, SlashCommands, surplus, unknown_command
from perdure.apps.chat.turn_view import pasted_remark, resuming_remark, show_turn, tell_begun
from perdure.apps.terminal.advice import chat_message_of, with_commands
from perdure.apps.terminal.approvals import approval_lines
from perdure.apps.terminal.event_lines import Teller
from perdure.apps.terminal.output import size
from perdure.apps.terminal.previews import NOT_SEEN
from perdure.apps.terminal.text import safe
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat, steer_open
from perdure.client.agents.turn import Turn
from perdure.client.inbox.details import in_full
from perdure.errors import PerdureError, TurnFailed
from perdure.session.kinds import CustomMessage

SHORT_ANSWERS = {"y": "allow", "yes": "allow", "n": "deny", "no": "deny"}
"""Short answers that a person can type for the choices of a question."""

_SHELL_MARKS = ("!", "!!")
"""Prefixes of a shell command of the user."""


class Display(Presentation, Protocol):
    """A display that shows a conversation and asks its questions."""

    @property
    def teller(self) -> Teller:
        """The object that prints the events of turns, and remarks."""
        ...

    async def ask(self, asked: Asked) -> Given:
        """Return the user's answer to `asked`."""
        ...

    async def begin_turn(self, chat: Chat) -> None:
        """Called when a turn begins."""
        ...

    async def end_turn(self, chat: Chat) -> None:
        """Called when the turn has ended."""
        ...


class Conversation:
    """A chat in one session, which is created with the first message."""

    def __init__(self, answering: AnswerOptions, display: Display, cwd: Path | None) -> None:
        self.answering = answering
        self.chat: Chat | None = None
        self.attached: list[Attached] = []
        self.display = display
        self._cwd = cwd
        self.failure: PerdureError | None = None
        self._unsent: list[CustomMessage] = []
        self._late: list[str] = []
        self._in_order = asyncio.Lock()
        self.commands = SlashCommands(self)

    @property
    def folder(self) -> Path:
        """The folder in which the agent works."""
        if self.chat is not None:
            return Path(self.chat.workspace.working_dir)
        return (self._cwd or Path()).absolute()

    def remark(self, *lines: str) -> None:
        """Print lines that are not part of the conversation."""
        for line in lines:
            self.display.teller.remark(line)

    # ------------------------------------------------------------ sessions

    async def open(self, session: str) -> None:
        """Continue the chat in `session`; resume its interrupted turn first."""
        await self.go_on(await self.answering.go_on(session, self._cwd))

    async def begin_anew(self) -> None:
        """Begin a new session with the next message."""
        self.chat = None
        await self.display.show_session(None)

    async def go_on(self, resumed: Resumed) -> None:
        """Continue in the session `resumed`; finish its interrupted turn first."""
        chat = self.chat = resumed.chat
        await self.display.show_session(chat)
        if resumed.turn is not None:
            self.remark(await resuming_remark(chat, self.answering.requested_model))
            pending = await pending_questions(chat)
            await self._perform(chat, resumed.turn, resumed.head, pending)
        await self.answering.use_model(chat)

    # ------------------------------------------------------------ what is typed

    async def obey(self, text: str) -> None:
        """Process the input `text`: a message or a command.

        Errors are printed as remarks; `failure` stores the last error of a message.
        """
        if not text.strip():
            return
        word, _, rest = text.partition(" ")
        try:
            if (told := surplus(word, rest)) is not None:
                self.remark(told)
            elif (command := self.commands.by_word.get(word)) is not None:
                await command(rest.strip())
            elif is_command(word):
                self.remark(unknown_command(word, self.commands.by_word))
            elif is_shell_command(text):
                await self._run(text)
            else:
                await self._say_or_note(text)
        except TurnFailed as error:
            self.remark(f"The turn failed: {with_commands(error.reason)}")
        except PerdureError as error:
            self.remark(chat_message_of(error))
        except OSError as error:
            self.remark(f"{error.filename}: {error.strerror}" if error.filename else str(error))

    async def _say_or_note(self, text: str) -> None:
        """Send `text`; store an error in `failure`."""
        try:
            await self._say(text)
        except PerdureError as error:
            self.failure = error
            raise

    async def add_file(self, name: str) -> Attached:
        """Attach the file `name` to the next message. Raises: the errors of `attach`."""
        attached = await asyncio.to_thread(attach, name, self.folder)
        self.attached.append(attached)
        return attached

    async def permit(self, typed: TypedPermissions) -> Agent:
        """Change the permissions of the session, or of the next session; return its agent.

        Raises: the errors of `AnswerOptions.permit`.
        """
        self.chat = await self.answering.permit(self.chat, typed)
        return self.answering.agent if self.chat is None else self.chat.agent

    async def _run(self, text: str) -> None:
        if text.strip() in _SHELL_MARKS:
            self.remark(f"{text.strip()} needs a command: !COMMAND runs it in your shell")
            return
        is_private = text.startswith("!!")
        command = text.lstrip("!").strip()
        run = await run_shell(command, self.folder)
        self.remark(run.output or "(no output)")
        if run.code != 0:
            self.remark(f"({run.ending})")
        if is_private:
            self.remark(NOT_SEEN)
        noted = run.message(in_context=not is_private)
        if self.chat is None:
            self._unsent.append(noted)
        else:
            await self.chat.session.append(noted)

    async def _attach_mentioned(self, text: str) -> None:
        """Attach the files that `text` names, except those that are already attached."""
        known = [each.name for each in self.attached]
        address = self.answering.store.backend.address
        found = await asyncio.to_thread(attach_mentioned, text, self.folder, address, known)
        self.attached += found.attached
        for attached in found.attached:
            self.remark(f"attached: {safe(attached.name)} ({size(attached.size_bytes)})")
        self.remark(*found.remarks)

    async def _say(self, text: str) -> None:
        await self._attach_mentioned(text)
        attached = tuple(self.attached)
        said = message_with(text, attached)
        chat = self.chat
        if chat is None:
            chat = await self.answering.begin(self._cwd, text)
            self.chat = chat
            if self._unsent:
                await chat.session.append_many(self._unsent)
                self._unsent.clear()
            await tell_begun(chat, self.display.teller)
            if told := unread_instructions(self.folder, text):
                self.remark(told)
        if told := pasted_remark(text, chat):
            self.remark(told)
        self._drop_sent(attached)
        await self._perform(chat, chat.send(said))

    async def steer(self, text: str) -> None:
        """Send `text` and the attached files to the running turn. Errors are printed as remarks.

        If the turn has just ended, the text is stored, and `take_late` returns it. If this call is
        cancelled, it still sends or stores the text before it ends.
        """
        chat = self.chat
        assert chat is not None
        steering: asyncio.Future[None] | None = None
        try:
            async with self._in_order:
                if chat.turn is not None:
                    with suppress(Exception):  # the turn reports its error
                        await chat.turn.started()
                steering = asyncio.ensure_future(self._steer(chat, text))
                await asyncio.shield(steering)
        except asyncio.CancelledError:
            if steering is None:
                self._late.append(text)
            else:
                await asyncio.wait((steering,))
            raise

    def defer(self, text: str) -> None:
        """Store the command `text` until the turn ends; after that, `take_late` returns it."""
        self._late.append(text)

    def take_late(self) -> list[str]:
        """Remove and return the commands of `defer`, and the texts that `steer` sent too late."""
        late, self._late = self._late, []
        return late

    async def _steer(self, chat: Chat, text: str) -> None:
        try:
            await self._attach_mentioned(text)
            attached = tuple(self.attached)
            message = message_with(text, attached)
            entry = await steer_open(self.answering.store.backend, chat, message)
        except PerdureError as error:
            self.remark(chat_message_of(error))
            return
        if entry is None:
            self._late.append(text)
        else:
            self._drop_sent(attached)

    def _drop_sent(self, sent: Collection[Attached]) -> None:
        """Remove the files in `sent` from the attached files; files attached later remain."""
        self.attached[:] = [each for each in self.attached if all(each is not one for one in sent)]

    async def _perform(
        self, chat: Chat, turn: Turn, after: int = -1, pending: Sequence[Asked] = ()
    ) -> None:
        await self.display.begin_turn(chat)
        try:
            await show_turn(
                self.answering.store,
                chat,
                turn,
                self.display.teller,
                after=after,
                pending=pending,
                ask=self.display.ask,
            )
        finally:
            await self.display.end_turn(chat)

    async def whole_question(self, asked: Asked) -> list[str]:
        """Return all lines of the open question `asked`, with the arguments and diff in full."""
        for each in await self.answering.store.questions():
            if each.id == asked.id:
                question = await in_full(self.answering.store.backend, each)
                return list(approval_lines(question, limit=None))
        return list(approval_lines(asked.question, limit=None))


def is_command(word: str) -> bool:
    """Return whether `word` looks like a chat command, not a path or the offline model's /tool."""
    return word.startswith("/") and word[1:].isalpha() and word != "/tool"


def is_shell_command(text: str) -> bool:
    """Return whether `text` is ``!COMMAND``, ``!!COMMAND``, ``!`` or ``!!``, but not ``!!!``."""
    is_bare = text.strip() in _SHELL_MARKS
    return is_bare or (text.startswith("!") and bool(text.strip("! \n")))
