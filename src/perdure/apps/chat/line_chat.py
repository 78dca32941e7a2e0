"""Line-by-line chat: typed lines are messages, lines with a slash are commands.

A line typed during a turn steers the turn: the model receives the line with its next call. Piped
lines and commands wait for the end of the turn.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from perdure.apps.chat.conversation import (
    SHORT_ANSWERS,
    Conversation,
    is_command,
    is_shell_command,
)
from perdure.apps.chat.files import files_below
from perdure.apps.chat.history import earlier_inputs
from perdure.apps.chat.questions import (
    SHOW,
    Asked,
    Given,
    answer_lines,
    cancel_tasks,
    question_lines,
)
from perdure.apps.chat.session import AnswerOptions
from perdure.apps.chat.slash_commands import LEAVING
from perdure.apps.chat.turn_view import Left
from perdure.apps.cli.exits import DONE, INTERRUPTED, NeedsAnswer, exit_code_of
from perdure.apps.session_rows import RowFilter, newest_rows, short_ids
from perdure.apps.terminal.event_lines import JsonTeller, Teller
from perdure.apps.terminal.line_editor import LineEditor
from perdure.apps.terminal.line_input import KEYS, PASTE_S, TypedLines, interrupts
from perdure.apps.terminal.outline import draw, lines_of
from perdure.apps.terminal.output import local_time, out_style, show, show_lines, width
from perdure.apps.terminal.text import one_line, safe
from perdure.client.agents.chat import Chat
from perdure.errors import PerdureError
from perdure.session.ids import StreamId

TREE_LINES = 60
LISTED = 10
"""Number of sessions that /resume lists."""

_CELLS = 100


def leaving_remark(session: StreamId, place: Sequence[str]) -> str:
    """Return a line with the command that resumes `session`; `place` are the command's options.

    Pure.
    """
    words = ("perdure", "chat", "--session", session, *place)
    return f"{safe(shlex.join(words))}  continues it"


async def _run_until_ctrl_c(work: Coroutine[Any, Any, None], teller: Teller) -> None:
    """Run `work`, the shell command of a user; Ctrl-C stops it and does not end the chat."""
    running = asyncio.ensure_future(work)
    try:
        with interrupts(running.cancel):
            await asyncio.wait((running,))
    finally:
        await cancel_tasks((running,))
    if running.cancelled():
        teller.remark("\n(stopped)")
    else:
        running.result()


class LineChat:
    """A chat at a terminal or a pipe, line by line."""

    def __init__(
        self,
        answering: AnswerOptions,
        lines: TypedLines,
        teller: Teller,
        cwd: Path | None,
        editor: LineEditor | None = None,
        *,
        place: Sequence[str] = (),
    ) -> None:
        self.teller = teller
        self._place = place
        self._editor = editor
        self._lines = lines
        self._is_shown = not isinstance(teller, JsonTeller)
        self._is_greeted = False
        self._wanted: asyncio.Future[str | None] | None = None
        self._steering: asyncio.Task[None] | None = None
        self._conversation = Conversation(answering, self, cwd)

    async def run(self, session: str | None) -> int:
        """Chat until the user leaves, and return the exit code.

        For piped input, the exit code is that of the last message that failed, or 0.
        """
        conversation = self._conversation
        try:
            async with conversation.answering.runtime:
                if session is not None:
                    await conversation.open(session)
                await self._set_up_editor()
                while (line := await self._line("> ")) is not None:
                    if line.strip() in LEAVING:
                        break
                    if is_shell_command(line) and self._lines.is_terminal:
                        await _run_until_ctrl_c(conversation.obey(line), self.teller)
                    else:
                        await conversation.obey(line)
        except Left:
            self.teller.remark("")
            return INTERRUPTED
        finally:
            self._lines.close()
            if self._editor is not None:
                self._editor.close()
            if conversation.chat is not None:
                self.teller.remark(leaving_remark(conversation.chat.id, self._place))
        if self._lines.is_terminal or conversation.failure is None:
            return DONE
        return exit_code_of(conversation.failure)

    def _greet(self) -> None:
        """Print the session's heading once, before the first prompt."""
        if self._is_greeted:
            return
        self._is_greeted = True
        chat, model = self._conversation.chat, self._conversation.answering.agent.model
        where = f"A new session with {model}" if chat is None else f"Session {chat.id}"
        self.teller.remark(f"{where}. /help says what else you can type.")

    async def _set_up_editor(self) -> None:
        """Set up the editor to recall earlier input and to complete commands and files."""
        editor, conversation = self._editor, self._conversation
        if editor is None:
            return
        with suppress(PerdureError):
            folder = conversation.folder
            editor.use_history(await earlier_inputs(conversation.answering.store, folder))
        files = await asyncio.to_thread(files_below, conversation.folder)
        commands = sorted(conversation.commands.by_word)

        def offers(word: str) -> list[str]:
            if word.startswith("/"):
                return [each for each in commands if each.startswith(word)]
            at = word.startswith("@")
            found = [name for name in files if name.startswith(word.removeprefix("@"))]
            return [f"@{name}" if at else name for name in found]

        editor.complete_with(offers)

    # ------------------------------------------------------------ the display

    async def show_session(self, chat: Chat | None) -> None:
        """Do nothing, because the command that changed the session prints the change."""

    async def show_tree(self, chat: Chat) -> None:
        """Print the tree of the session."""
        roots = await chat.session.tree(TREE_LINES * 5)
        lines = lines_of(roots, chat.session.leaf, limit=TREE_LINES)
        show_lines(draw(lines, chat.id, width(), out_style()))

    async def choose_session(self) -> str | None:
        """List the newest sessions."""
        store = self._conversation.answering.store
        rows = await newest_rows(store, RowFilter(), LISTED)
        ids = await short_ids(store, [row.info.id for row in rows])
        for row in rows:
            told = f"{local_time(row.info.updated_at)}  {one_line(row.info.name, _CELLS)}"
            self.teller.remark(f"/resume {ids[row.info.id]}  {told}")
        return None

    async def begin_turn(self, chat: Chat) -> None:
        """Begin to pass typed lines to the turn."""
        if self._lines.is_terminal:
            self._steering = asyncio.create_task(self._pass_lines())

    async def end_turn(self, chat: Chat) -> None:
        """Read typed lines as messages again, first the lines that the turn did not receive."""
        if self._steering is not None:
            await cancel_tasks((self._steering,))
            self._steering = None
            self._lines.put_back(self._conversation.take_late())

    async def ask(self, asked: Asked) -> Given:
        """Return the typed answer to `asked`.

        Raises: NeedsAnswer when stdin has ended.
        """
        chat, choices = self._conversation.chat, asked.question.choices
        assert chat is not None
        self._conversation.remark(*question_lines(asked))
        if self._editor is not None:
            self._editor.drop_typed()
        while True:
            prompt = safe(f"{' / '.join(choices)}? ")
            if self._is_shown and self._editor is None:
                show(prompt, end="", is_flushed=True)
            line = await self._answer_line(prompt)
            if line is None:
                raise NeedsAnswer(asked.id, choices, chat.id, asked.question_text)
            typed, _, rest = line.strip().partition(" ")
            choice = typed.lower()
            if choice not in choices:
                choice = SHORT_ANSWERS.get(choice, typed)
            if choice in choices:
                return Given(choice, rest.strip() or None)
            await self._explain(asked, choice)

    # ------------------------------------------------------------ lines

    async def _line(self, prompt: str) -> str | None:
        """Return the next line typed at `prompt`; None at end of input. Two Ctrl-C raise Left."""
        presses = 0
        is_left = asyncio.Event()

        def on_interrupt() -> None:
            nonlocal presses
            presses += 1
            if presses > 1:
                is_left.set()
            else:
                self.teller.remark("\n(Ctrl-C again leaves, as /quit does)")
                self._show_prompt(prompt)
                if self._editor is not None:
                    self._editor.show_again(prompt)

        with interrupts(on_interrupt):
            self._greet()
            self._show_prompt(prompt)
            typing = asyncio.ensure_future(self._next_message(prompt))
            leaving = asyncio.ensure_future(is_left.wait())
            await asyncio.wait((typing, leaving), return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if typing.done():
                return typing.result()
            typing.cancel()
            raise Left

    def _show_prompt(self, prompt: str) -> None:
        if self._is_shown and self._lines.is_terminal and self._editor is None:
            show(prompt, end="", is_flushed=True)

    async def _next_message(self, prompt: str) -> str | None:
        """Return the next line; lines that were typed during a turn but not sent come first."""
        if self._lines.has_waiting:
            return await self._lines.next()
        return await self._next(prompt)

    async def _next(self, prompt: str) -> str | None:
        if self._editor is None or self._lines.has_ended:
            return await self._lines.next()
        self._lines.close()  # readline reads now
        return await self._editor.read(prompt)

    async def _pass_lines(self) -> None:
        """Pass lines typed during a turn to the waiting question, or to the turn.

        Commands are held back until the turn has ended.
        """
        while True:
            is_edited = self._editor is not None and self._editor.is_reading
            line = await (self._next("") if is_edited else self._lines.next())
            if self._wanted is not None and not self._wanted.done():
                self._wanted.set_result(line)
            elif line is None:
                return
            elif whole := await self._with_rest(line):
                if is_shell_command(whole) or is_command(whole.partition(" ")[0]):
                    self._conversation.defer(whole)
                    self.teller.remark("(after this turn)")
                else:
                    await self._conversation.steer(whole)

    async def _with_rest(self, line: str) -> str:
        """Return `line` and the lines that follow immediately, because they were pasted together.

        If the turn ends before all lines are read, the lines become the next messages.
        """
        lines = [line]
        try:
            while (more := await self._lines.waiting(PASTE_S)) is not None:
                lines.append(more)
        except asyncio.CancelledError:
            self._lines.put_back(lines)
            raise
        whole = KEYS.sub("", "\n".join(lines))
        return whole if whole.strip() else ""

    async def _edited_answer(self, editor: LineEditor, prompt: str) -> str | None:
        """Return an answer typed after the question was shown; "" if several lines were pasted."""
        if self._steering is not None:
            await cancel_tasks((self._steering,))
        try:
            line = await self._next(prompt)
            return "" if line is not None and "\n" in line else line
        finally:
            if self._steering is not None:
                self._steering = asyncio.create_task(self._pass_lines())

    async def _explain(self, asked: Asked, said: str) -> None:
        """Print `asked` in full if `said` is `SHOW`; otherwise print the valid answers."""
        if said == SHOW and asked.question.arguments is not None:
            self._conversation.remark(*await self._conversation.whole_question(asked))
        else:
            self._conversation.remark(*answer_lines(asked, said))

    async def _answer_line(self, prompt: str) -> str | None:
        if self._editor is not None:
            return await self._edited_answer(self._editor, prompt)
        if not self._lines.is_terminal:
            return await self._lines.next()
        self._wanted = asyncio.get_running_loop().create_future()
        try:
            return await self._wanted
        finally:
            self._wanted = None
