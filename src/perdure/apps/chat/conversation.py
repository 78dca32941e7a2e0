"""Line-by-line chat: typed lines are messages, lines with a slash are commands.

A line typed during a turn steers it: the model receives it with its next call. Lines from a pipe
wait for the end of the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from perdure.apps.chat.questions import Asked, Given, cancel_tasks, pending_questions
from perdure.apps.chat.session import AnswerOptions, Resumed
from perdure.apps.chat.slash_commands import SlashCommands
from perdure.apps.chat.turn_view import RESUMING, Left, pasted_remark, show_turn, tell_begun
from perdure.apps.cli.exits import DONE, INTERRUPTED, NeedsAnswer
from perdure.apps.terminal.advice import message_of, with_commands
from perdure.apps.terminal.approvals import approval_lines
from perdure.apps.terminal.event_lines import JsonTeller, Teller
from perdure.apps.terminal.line_input import TypedLines, interrupts
from perdure.apps.terminal.output import show
from perdure.apps.terminal.text import safe
from perdure.client.agents.chat import Chat
from perdure.client.agents.turn import Turn
from perdure.client.inbox.details import in_full
from perdure.errors import PerdureError, TurnFailed

SHOW = "show"
"""Typed instead of an answer, it prints all of a question."""

SHORT_ANSWERS = {"y": "allow", "yes": "allow", "n": "deny", "no": "deny"}
"""Typed instead of a choice of the question."""


class Conversation:
    """A chat at a terminal in one session, which is created with the first message."""

    def __init__(
        self, answering: AnswerOptions, lines: TypedLines, teller: Teller, cwd: Path | None
    ) -> None:
        self.answering = answering
        self.chat: Chat | None = None
        self._lines = lines
        self._teller = teller
        self._cwd = cwd
        self._is_shown = not isinstance(teller, JsonTeller)
        self._is_greeted = False
        self._wanted: asyncio.Future[str | None] | None = None
        self._commands = SlashCommands(self).by_word

    async def run(self, session: str | None) -> int:
        """Chat until the user leaves, and return the exit code."""
        try:
            async with self.answering.runtime:
                if session is not None:
                    await self.go_on(await self.answering.go_on(session, self._cwd))
                while (line := await self._line("> ")) is not None:
                    if line.strip() in ("/quit", "/exit"):
                        break
                    await self._obey(line)
        except Left:
            self._teller.remark("")
            return INTERRUPTED
        finally:
            self._lines.close()
            if self.chat is not None:
                self._teller.remark(f"perdure chat --session {self.chat.id}  continues it")
        return DONE

    def _greet(self) -> None:
        """Print the session once, before the first prompt."""
        if self._is_greeted:
            return
        self._is_greeted = True
        model = self.answering.agent.model
        where = f"A new session with {model}" if self.chat is None else f"Session {self.chat.id}"
        self._teller.remark(f"{where}. /help says what else you can type.")

    def remark(self, text: str) -> None:
        """Print a line that is not part of the conversation."""
        self._teller.remark(text)

    def begin_anew(self) -> None:
        """Begin a new session with the next message."""
        self.chat = None

    async def go_on(self, resumed: Resumed) -> None:
        """Continue in another session; a turn that was interrupted there comes first."""
        chat = self.chat = resumed.chat
        if resumed.turn is not None:
            self._teller.remark(RESUMING)
            pending = await pending_questions(chat)
            await self._perform(chat, resumed.turn, resumed.head, pending)
        await self.answering.use_model(chat)

    # ------------------------------------------------------------ lines

    async def _line(self, prompt: str) -> str | None:
        """Return the next line typed at `prompt`; None at the end. Ctrl-C twice leaves."""
        presses = 0
        is_left = asyncio.Event()

        def on_interrupt() -> None:
            nonlocal presses
            presses += 1
            if presses > 1:
                is_left.set()
            else:
                self._teller.remark("\n(Ctrl-C again leaves, as /quit does)")
                self._show_prompt(prompt)

        with interrupts(on_interrupt):
            self._greet()
            self._show_prompt(prompt)
            typing = asyncio.ensure_future(self._lines.next())
            leaving = asyncio.ensure_future(is_left.wait())
            await asyncio.wait((typing, leaving), return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if typing.done():
                return typing.result()
            typing.cancel()
            raise Left

    def _show_prompt(self, prompt: str) -> None:
        if self._is_shown and self._lines.is_terminal:
            show(prompt, end="", is_flushed=True)

    async def _obey(self, line: str) -> None:
        if not line.strip():
            return
        word, _, rest = line.partition(" ")
        try:
            if word in self._commands:
                await self._commands[word](rest.strip())
            elif _is_command(word):
                self._teller.remark(f"unknown command {word}; /help lists the commands")
            else:
                await self._say(line)
        except TurnFailed as error:
            self._teller.remark(f"The turn failed: {with_commands(error.reason)}")
        except PerdureError as error:
            self._teller.remark(message_of(error))

    # ------------------------------------------------------------ turns

    async def _say(self, text: str) -> None:
        chat = self.chat
        if chat is None:
            chat = self.chat = await self.answering.begin(self._cwd, text)
            await tell_begun(chat, self._teller)
        if told := pasted_remark(text, chat):
            self._teller.remark(told)
        await self._perform(chat, chat.send(text))

    async def _perform(
        self, chat: Chat, turn: Turn, after: int = -1, pending: Sequence[Asked] = ()
    ) -> None:
        steering = asyncio.create_task(self._pass_lines(chat)) if self._lines.is_terminal else None
        try:
            await show_turn(
                self.answering.store,
                chat,
                turn,
                self._teller,
                after=after,
                pending=pending,
                ask=self._ask,
            )
        finally:
            if steering is not None:
                await cancel_tasks((steering,))

    async def _pass_lines(self, chat: Chat) -> None:
        """Pass lines typed while a turn runs to the question that waits, or to the turn."""
        while True:
            line = await self._lines.next()
            if self._wanted is not None and not self._wanted.done():
                self._wanted.set_result(line)
            elif line is None:
                return
            elif line.strip():
                await self._steer(chat, line)

    async def _steer(self, chat: Chat, line: str) -> None:
        steering = asyncio.ensure_future(chat.steer(line))
        try:
            await asyncio.shield(steering)
        except asyncio.CancelledError:  # the turn is over, but the line was typed
            await asyncio.wait((steering,))
            raise
        except PerdureError as error:
            self._teller.remark(message_of(error))

    async def _ask(self, asked: Asked) -> Given:
        """Return the typed answer to `asked`.

        Raises: NeedsAnswer when stdin has ended.
        """
        assert self.chat is not None
        self._teller.remark(asked.question_text)
        for told in approval_lines(asked):
            self._teller.remark(told)
        while True:
            if self._is_shown:
                show(safe(f"{' / '.join(asked.choices)}? "), end="", is_flushed=True)
            line = await self._answer_line()
            if line is None:
                raise NeedsAnswer(asked.id, asked.choices, self.chat.id, asked.question_text)
            typed, _, rest = line.strip().partition(" ")
            choice = typed.lower()
            if choice not in asked.choices:
                choice = SHORT_ANSWERS.get(choice, typed)
            if choice in asked.choices:
                return Given(choice, rest.strip() or None)
            await self._explain(asked, choice)

    async def _explain(self, asked: Asked, said: str) -> None:
        """Print `asked` in full if `said` requests it; otherwise print the valid answers."""
        if said == SHOW and asked.arguments is not None:
            waiting = await self.answering.store.questions()
            for each in (each for each in waiting if each.id == asked.id):
                question = await in_full(self.answering.store.backend, each)
                for told in approval_lines(question, limit=None):
                    self._teller.remark(told)
            return
        more = f", or {SHOW} to see all of it" if asked.arguments is not None else ""
        self._teller.remark(f"answer {', '.join(asked.choices)}{more}")

    async def _answer_line(self) -> str | None:
        if not self._lines.is_terminal:
            return await self._lines.next()
        self._wanted = asyncio.get_running_loop().create_future()
        try:
            return await self._wanted
        finally:
            self._wanted = None


def _is_command(word: str) -> bool:
    """Whether `word` looks like a command: not a path, and not one of the offline model."""
    return word.startswith("/") and word[1:].isalpha() and word != "/tool"
