"""Performing a turn in front of somebody: its events told, its questions asked, Ctrl-C obeyed.

The first Ctrl-C ends the turn, and what was said so far is kept; the second leaves at once, and the
turn stays open in the log to be resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from perdure.apps.cli.exits import NeedsAnswer
from perdure.apps.terminal.telling import Teller
from perdure.apps.terminal.typed import interrupts
from perdure.client.agents.chat import Chat
from perdure.client.agents.turn import Reply, Turn
from perdure.events.types import AnyEvent, Event

RESUMING = "going on with the turn that was interrupted"
PASTED = "your message holds what looks like a credential ({}); it is stored and sent as it is"
STOPPING = "stopping the turn; Ctrl-C again leaves it as it is"


class Asked(msgspec.Struct, frozen=True):
    """A question that a turn waits for."""

    id: str
    text: str
    choices: tuple[str, ...]


Ask = Callable[[Asked], Awaitable[None]]
"""Has a question answered, or raises NeedsAnswer."""


class Left(Exception):
    """Somebody left in the middle; what was running stays open."""


async def performed(
    chat: Chat,
    turn: Turn,
    teller: Teller,
    *,
    after: int = -1,
    pending: Sequence[Asked] = (),
    ask: Ask | None = None,
) -> Reply | None:
    """How `turn` ended, once its events after seq `after` were told; None if it was stopped.

    `pending` are questions it asked before that.

    Raises: Left; NeedsAnswer when it asks and there is nobody to `ask`; what the turn raises.
    """
    presses = 0
    is_left = asyncio.Event()
    stopping: set[asyncio.Task[None]] = set()

    def pressed() -> None:
        nonlocal presses
        presses += 1
        if presses == 1:
            teller.remark(STOPPING)
            stopping.add(asyncio.create_task(chat.abort()))
        else:
            is_left.set()

    with interrupts(pressed):
        telling = asyncio.create_task(
            _told(chat, turn, teller, after=after, pending=pending, ask=ask)
        )
        leaving = asyncio.create_task(is_left.wait())
        try:
            await asyncio.wait((telling, leaving), return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
                reply = await turn
                return None if presses else reply
            raise Left
        finally:
            await _cancelled((telling, leaving, *stopping))
            if turn.is_running:
                await chat.suspend()


async def _told(
    chat: Chat, turn: Turn, teller: Teller, *, after: int, pending: Sequence[Asked], ask: Ask | None
) -> None:
    for asked in pending:
        await _asked(chat, asked, ask)
    async for event in turn:
        if isinstance(event, Event) and event.seq <= after:
            continue
        teller.tell(event)
        if (asked := question_in(event)) is not None:
            await _asked(chat, asked, ask)


async def _asked(chat: Chat, asked: Asked, ask: Ask | None) -> None:
    if ask is None:
        raise NeedsAnswer(asked.id, asked.choices, chat.id)
    await ask(asked)


async def pending_questions(chat: Chat) -> tuple[Asked, ...]:
    """What the session waits for now."""
    return tuple(
        Asked(waiting.id, waiting.question.text, waiting.question.choices)
        for waiting in await chat.session.questions()
    )


def question_in(event: AnyEvent) -> Asked | None:
    """The question that `event` asks."""
    if not isinstance(event, Event) or event.type != "inbox:question":
        return None
    return msgspec.convert({**event.payload, "id": event.payload["entryId"]}, Asked)


async def _cancelled(tasks: Iterable[asyncio.Task[object]]) -> None:
    waiting = [task for task in tasks if not task.done()]
    for task in waiting:
        task.cancel()
    if waiting:
        await asyncio.wait(waiting)
