"""Line-by-line chat: typed lines are messages, lines with a slash are commands.

A line typed during a turn steers it: the model receives it with its next call. Lines from a pipe
wait for the end of the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from perdure.apps.chat.questions import Asked, Given, cancel_tasks, pending_questions
from perdure.apps.chat.session import AnswerOptions, Resumed
from perdure.apps.chat.turn_view import RESUMING, Left, pasted_remark, show_turn, tell_begun
from perdure.apps.cli.exits import DONE, INTERRUPTED, NeedsAnswer
from perdure.apps.cli.options import ROOT
from perdure.apps.terminal.advice import message_of, with_commands
from perdure.apps.terminal.approvals import approval_lines
from perdure.apps.terminal.event_lines import JsonTeller, Teller
from perdure.apps.terminal.line_input import TypedLines, interrupts
from perdure.apps.terminal.outline import draw, lines_of
from perdure.apps.terminal.output import count_of, out_style, show, show_lines, width
from perdure.apps.terminal.text import safe
from perdure.client.agents.chat import Chat
from perdure.client.agents.turn import Turn
from perdure.client.inbox.details import in_full
from perdure.errors import PerdureError, TurnFailed

TREE_LINES = 60

SHOW = "show"
"""Typed instead of an answer, it prints all of a question."""

HELP = """/tree                  the tree of this session
/branch ENTRY          continue from another entry ("root": before the first)
/label ENTRY [TEXT]    label an entry, or remove its label
/compact [FOCUS]       summarize older messages
/quit                  exit; the session can be resumed"""


class Conversation:
    """A chat at a terminal in one session, which is created with the first message."""

    def __init__(
        self, answering: AnswerOptions, lines: TypedLines, teller: Teller, cwd: Path | None
    ) -> None:
        self._answering = answering
        self._lines = lines
        self._teller = teller
        self._cwd = cwd
        self._chat: Chat | None = None
        self._is_shown = not isinstance(teller, JsonTeller)
        self._is_greeted = False
        self._wanted: asyncio.Future[str | None] | None = None
        self._commands: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "/help": self._help,
            "/tree": self._tree,
            "/branch": self._branch,
            "/label": self._label,
            "/compact": self._compact,
        }

    async def run(self, session: str | None) -> int:
        """Chat until the user leaves, and return the exit code."""
        try:
            async with self._answering.runtime:
                if session is not None:
                    await self._go_on(await self._answering.go_on(session, self._cwd))
                while (line := await self._line("> ")) is not None:
                    if line.strip() in ("/quit", "/exit"):
                        break
                    await self._obey(line)
        except Left:
            self._teller.remark("")
            return INTERRUPTED
        finally:
            self._lines.close()
            if self._chat is not None:
                self._teller.remark(f"perdure chat --session {self._chat.id}  continues it")
        return DONE

    def _greet(self) -> None:
        """Print the session once, before the first prompt."""
        if self._is_greeted:
            return
        self._is_greeted = True
        model = self._answering.agent.model
        where = f"A new session with {model}" if self._chat is None else f"Session {self._chat.id}"
        self._teller.remark(f"{where}. /help says what else you can type.")

    async def _go_on(self, resumed: Resumed) -> None:
        chat = self._chat = resumed.chat
        if resumed.turn is not None:
            self._teller.remark(RESUMING)
            pending = await pending_questions(chat)
            await self._perform(chat, resumed.turn, resumed.head, pending)
        await self._answering.use_model(chat)

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
        chat = self._chat
        if chat is None:
            chat = self._chat = await self._answering.begin(self._cwd, text)
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
                self._answering.store,
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
        assert self._chat is not None
        self._teller.remark(asked.question_text)
        for told in approval_lines(asked):
            self._teller.remark(told)
        while True:
            if self._is_shown:
                show(safe(f"{' / '.join(asked.choices)}? "), end="", is_flushed=True)
            line = await self._answer_line()
            if line is None:
                raise NeedsAnswer(asked.id, asked.choices, self._chat.id, asked.question_text)
            choice, _, rest = line.strip().partition(" ")
            if choice in asked.choices:
                return Given(choice, rest.strip() or None)
            await self._explain(asked, choice)

    async def _explain(self, asked: Asked, said: str) -> None:
        """Print `asked` in full if `said` requests it; otherwise print the valid answers."""
        if said == SHOW and asked.arguments is not None:
            waiting = await self._answering.store.questions()
            for each in (each for each in waiting if each.id == asked.id):
                question = await in_full(self._answering.store.backend, each)
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

    # ------------------------------------------------------------ commands

    async def _help(self, _: str) -> None:
        self._teller.remark(HELP)

    async def _tree(self, _: str) -> None:
        chat = self._begin()
        if chat is None:
            return
        await chat.session.info()
        lines = lines_of(
            await chat.session.tree(TREE_LINES * 5), chat.session.leaf, limit=TREE_LINES
        )
        show_lines(draw(lines, chat.id, width(), out_style()))

    async def _branch(self, entry: str) -> None:
        chat = self._begin()
        if chat is not None and self._is_given(entry, "/branch ENTRY"):
            session = chat.session
            await session.branch(None if entry == ROOT else await session.find(entry))
            self._teller.remark(f"going on from {chat.session.leaf or 'before the first entry'}")

    async def _label(self, rest: str) -> None:
        chat = self._begin()
        if chat is not None and self._is_given(rest, "/label ENTRY [TEXT]"):
            entry, _, text = rest.partition(" ")
            noted = await chat.session.label(await chat.session.find(entry), text)
            self._teller.remark(f"{noted.about} is called {text.strip() or 'nothing'} now")

    async def _compact(self, focus: str) -> None:
        chat = self._begin()
        if chat is None:
            return
        before = (await chat.session.context()).tokens
        made = await chat.compact(focus or None)
        after = (await chat.session.context()).tokens
        self._teller.remark(
            f"{before:,} → {count_of(after, 'token')}" if made else "there is nothing old enough"
        )

    def _begin(self) -> Chat | None:
        if self._chat is None:
            self._teller.remark("no messages yet")
        return self._chat

    def _is_given(self, rest: str, usage: str) -> bool:
        if not rest:
            self._teller.remark(usage)
        return bool(rest)


def _is_command(word: str) -> bool:
    """Whether `word` looks like a command: not a path, and not one of the offline model."""
    return word.startswith("/") and word[1:].isalpha() and word != "/tool"
