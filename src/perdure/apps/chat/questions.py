"""Questions of a running turn and of the agents that it invoked.

The questions are asked one at a time. A question answered by another process is no longer asked.
"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from perdure.apps.cli.exits import NeedsAnswer
from perdure.apps.terminal.approvals import approval_lines
from perdure.apps.terminal.event_lines import Teller
from perdure.apps.wiring import AGENT
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.delegation.questions import asked_below
from perdure.client.store import Store
from perdure.errors import AlreadyAnswered, QuestionClosed
from perdure.events.projection import events_of
from perdure.events.types import AnyEvent, Event
from perdure.session.ids import entry_place
from perdure.session.notes import PROGRAM, Answer, Question
from perdure.stores.wakeups import change
from perdure.tools.builtin.delegation import INVOKE_AGENT
from perdure.tools.paths.floors import is_hidden

SHOW = "show"
"""A person can type this in place of an answer to see the whole question."""
ELSEWHERE = "it was answered elsewhere"
EDITS_HINT = "/approve accept-edits, after this turn, allows edits without a question"
NO_ALWAYS = (
    "always is not offered: edits, commits, the clipboard, calls with a credential and calls that "
    "cannot be shown in full need an answer each time"
)


class Asked(msgspec.Struct, frozen=True):
    """A question that a turn waits for.

    `asker` is the invoked agent that asks the question; None for the chat's own agent. `hint` is a
    line about the question that is shown to the person.
    """

    id: str
    question: Question
    asker: str | None = None
    hint: str | None = None

    @property
    def question_text(self) -> str:
        """The question as it is displayed."""
        if self.asker is None:
            return self.question.text
        return f"{self.asker} (session {entry_place(self.id)[0]}) asks: {self.question.text}"


class Given(msgspec.Struct, frozen=True):
    """The answer of a person."""

    choice: str
    note: str | None = None


Ask = Callable[[Asked], Awaitable[Given]]
"""Asks a person for an answer, or raises NeedsAnswer."""


class QuestionLoop:
    """Gets answers to the questions of a chat's turns from the function `ask`.

    `ask` is None if there is no person to ask.
    """

    def __init__(self, store: Store, chat: Chat, teller: Teller, ask: Ask | None) -> None:
        self._store = store
        self._chat = chat
        self._teller = teller
        self._ask = ask
        self._turn = asyncio.Lock()

    async def ask(self, asked: Asked) -> None:
        """Wait for an answer to `asked`, from this terminal or another process.

        Raises: NeedsAnswer if there is no person to ask.
        """
        if self._ask is None:
            raise NeedsAnswer(asked.id, asked.question.choices, self._chat.id, asked.question_text)
        if _is_edit(asked, self._chat.agent):
            asked = msgspec.structs.replace(asked, hint=EDITS_HINT)
        async with self._turn:
            asking = asyncio.ensure_future(self._ask(asked))
            elsewhere = asyncio.ensure_future(self._wait_until_closed(asked.id))
            try:
                await asyncio.wait((asking, elsewhere), return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    given, by = asking.result(), getpass.getuser()
                    await self._store.answer(asked.id, given.choice, by=by, note=given.note)
                elif elsewhere.result():
                    self._teller.remark(ELSEWHERE)
            except AlreadyAnswered:
                self._teller.remark(ELSEWHERE)
            except QuestionClosed as error:
                self._teller.remark(str(error))
            finally:
                await cancel_tasks((asking, elsewhere))

    async def below(self) -> None:
        """Ask the questions of the agents that the turn invoked, until this call is cancelled.

        Raises: NeedsAnswer if there is no person to ask.
        """
        if INVOKE_AGENT not in self._chat.agent.registry.names:
            return
        changes = self._store.backend.changes()
        seen: set[str] = set()
        while True:
            at = self._store.outside.clock.now_ms()
            for each in await asked_below(self._store.backend, self._chat.id, at):
                waiting = each.question
                if waiting.id not in seen:
                    seen.add(waiting.id)
                    await self._tell(waiting.id)
                    await self.ask(Asked(waiting.id, waiting.question, each.asker))
            await change(changes, self._store.backend.address)

    async def _tell(self, question: str) -> None:
        """Print the event that reports the question of an invoked agent."""
        stream, seq = entry_place(question)
        (entry,) = await self._store.backend.entries(stream, seq - 1, 1)
        for event in events_of(entry):
            self._teller.tell(event)

    async def _wait_until_closed(self, question: str) -> bool:
        """Wait until `question` is closed; return whether an answer closed it."""
        session = await self._store.open(entry_place(question)[0])
        changes = self._store.backend.changes(session.id)
        while question in {each.id for each in await session.questions()}:
            await change(changes, self._store.backend.address)
        async for each in session.entries(kind=Answer.kind, newest_first=True):
            if each.about == question:
                return True
        return False


async def pending_questions(chat: Chat) -> tuple[Asked, ...]:
    """Return the open questions of turns in the chat's session, not those of invoked agents."""
    asked = await chat.session.questions()
    return tuple(Asked(each.id, each.question) for each in asked if each.question.topic != PROGRAM)


def question_in(event: AnyEvent) -> Asked | None:
    """Return the question in `event`; None if it contains no question of a turn.

    `agent`, `expires_at` and similar fields are not set, because they have other names in an event.
    """
    if not isinstance(event, Event) or event.type != "inbox:question":
        return None
    if event.payload["topic"] == PROGRAM:
        return None
    return Asked(str(event.payload["entryId"]), msgspec.convert(event.payload, Question))


def question_lines(asked: Asked) -> Iterator[str]:
    """Return the lines that show `asked` in a line-by-line chat."""
    yield asked.question_text
    yield from approval_lines(asked.question)
    if asked.hint is not None:
        yield f"  {asked.hint}"


def answer_lines(asked: Asked, said: str) -> Iterator[str]:
    """Return lines with the valid answers to `asked`; the person typed `said`, which is invalid."""
    if said == "always" and "allow" in asked.question.choices:
        yield NO_ALWAYS
    more = f", or {SHOW} to see all of it" if asked.question.arguments is not None else ""
    yield f"answer {', '.join(asked.question.choices)}{more}"


async def cancel_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel `tasks`, and wait until they have ended."""
    waiting = [task for task in tasks if not task.done()]
    for task in waiting:
        task.cancel()
    if waiting:
        await asyncio.wait(waiting)


def _is_edit(asked: Asked, agent: Agent) -> bool:
    """Return whether perdure would not ask this question in the mode ``accept-edits``.

    Returns False for an invoked agent and for an agent from a file, because a chat cannot change
    the mode of these agents.
    """
    is_own = asked.asker is None and agent.id == AGENT and agent.permissions.approval == "ask"
    is_write = asked.question.action == "fs_write"
    return is_own and is_write and not is_hidden(Path(asked.question.preview or "").parts)
