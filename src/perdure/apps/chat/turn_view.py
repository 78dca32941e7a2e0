"""Performing a turn in front of somebody: its events told, its questions asked, Ctrl-C obeyed.

The first Ctrl-C ends the turn, and what was said so far is kept; the second leaves at once, and the
turn stays open in the log to be resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure.apps.chat.questions import Ask, Asked, QuestionLoop, cancel_tasks, question_in
from perdure.apps.terminal.event_lines import Teller
from perdure.apps.terminal.line_input import interrupts
from perdure.client.agents.chat import Chat
from perdure.client.agents.message_secrets import credentials_in
from perdure.client.agents.turn import Reply, Turn
from perdure.client.store import Store
from perdure.events.projection import events_of
from perdure.events.types import Event

RESUMING = "going on with the turn that was interrupted"
_PASTED = {
    "warn": "your message seems to contain a credential ({}); it is stored and sent unchanged",
    "redact": "your message seems to contain a credential ({}); it is stored and sent masked",
}
STOPPING = "stopping the turn; press Ctrl-C again to exit at once"


def pasted_remark(text: str, chat: Chat) -> str | None:
    """Return what happens to a credential in `text`; None without one, or if an error says it."""
    told = _PASTED.get(chat.agent.on_pasted)
    kinds = credentials_in(text) if told else ()
    return told.format(", ".join(kinds)) if told and kinds else None


class Left(Exception):
    """The person left during a turn; the turn stays open."""


async def tell_begun(chat: Chat, teller: Teller) -> None:
    """Tell the events of the session that `chat` has just begun: ``session:started``."""
    async for entry in chat.session.entries():
        for event in events_of(entry):
            teller.tell(event)


async def show_turn(
    store: Store,
    chat: Chat,
    turn: Turn,
    teller: Teller,
    *,
    after: int = -1,
    pending: Sequence[Asked] = (),
    ask: Ask | None = None,
) -> Reply | None:
    """How `turn` ended, once its events after seq `after` were told; None if it was stopped.

    `pending` are questions it asked before that. What agents ask whom it has invoked is asked, too.

    Raises: Left; NeedsAnswer when it asks and there is nobody to `ask`; what the turn raises.
    """
    presses = 0
    is_left = asyncio.Event()
    stopping: set[asyncio.Task[None]] = set()

    def on_interrupt() -> None:
        nonlocal presses
        presses += 1
        if presses == 1:
            teller.remark(STOPPING)
            stopping.add(asyncio.create_task(chat.abort()))
        else:
            is_left.set()

    asking = QuestionLoop(store, chat, teller, ask)
    with interrupts(on_interrupt):
        telling = asyncio.create_task(
            _print_events(turn, teller, asking, after=after, pending=pending)
        )
        leaving = asyncio.create_task(_wait_for_leave(is_left))
        below = asyncio.create_task(asking.below())
        try:
            await _first_of(telling, leaving, below)
            reply = await turn
            return None if presses else reply
        finally:
            await cancel_tasks((telling, leaving, below, *stopping))
            if turn.is_running:
                await chat.suspend()


async def _first_of(telling: asyncio.Task[None], *others: asyncio.Task[None]) -> None:
    """Wait until all is told; what one of `others` raises before is raised."""
    while not telling.done():
        running = [task for task in others if not task.done()]
        await asyncio.wait((telling, *running), return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            if task.done():
                task.result()
    telling.result()


async def _wait_for_leave(is_left: asyncio.Event) -> None:
    await is_left.wait()
    raise Left


async def _print_events(
    turn: Turn, teller: Teller, asking: QuestionLoop, *, after: int, pending: Sequence[Asked]
) -> None:
    for asked in pending:
        await asking.ask(asked)
    async for event in turn:
        if isinstance(event, Event) and event.seq <= after:
            continue
        teller.tell(event)
        if (asked := question_in(event)) is not None:
            await asking.ask(asked)
