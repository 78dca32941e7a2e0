"""Run a turn at a terminal: print the turn's events, ask its questions, handle Ctrl-C.

The first Ctrl-C ends the turn and stores the partial answer. The second Ctrl-C exits immediately;
the turn stays open in the log and can be resumed.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import cast

from perdure.apps.chat.permissions import NO_COMMANDS, refusal_lines
from perdure.apps.chat.questions import Ask, Asked, QuestionLoop, cancel_tasks, question_in
from perdure.apps.terminal.event_lines import Teller
from perdure.apps.terminal.line_input import interrupts
from perdure.apps.terminal.output import remark
from perdure.apps.terminal.text import safe
from perdure.apps.wiring import AGENT
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.message_secrets import credentials_in
from perdure.client.agents.runtime import Runtime
from perdure.client.agents.turn import Reply, Turn
from perdure.client.conversation.authority import Withheld
from perdure.client.inbox.consent import COMMANDS
from perdure.client.store import Store
from perdure.errors import ToolDenied
from perdure.events.projection import events_of
from perdure.events.types import AnyEvent, Event

RESUMING = "going on with the turn that was interrupted"
_PASTED = {
    "warn": "your message seems to contain a credential ({}); it is stored and sent unchanged",
    "redact": "your message seems to contain a credential ({}); it is stored and sent masked",
}
NOT_IN_FORCE = (
    "this session {}: its permissions, tools and open turn are not in force; it continues with "
    "yours (`perdure sessions show` lists them)"
)
GONE = (
    "the session's folder {} does not exist: --cwd DIR moves the session to another one "
    "(`perdure chat --session {} --cwd DIR`), or make it again"
)
ELSEWHERE = (
    "the session's folder {} does not exist here: its tools work in {}; --cwd DIR moves the session"
)
BORROWED = "the session's folder is {}: its tools work in {}; --cwd DIR moves the session"
_WHY: Mapping[Withheld, str] = {
    "imported": "was imported",
    "unknown": "was not written by your perdure (`perdure store trust {}` can change that)",
}
STOPPING = "stopping the turn; press Ctrl-C again to exit at once"


async def resuming_remark(chat: Chat, requested: str | None) -> str:
    """Return the remark to print before the interrupted turn of `chat` continues.

    A turn keeps its model, because that model wrote the turn's earlier answers and tool calls. If
    another model was `requested`, the remark names the turn's model.
    """
    model = (await chat.session.context(1)).model or chat.agent.model
    if requested in (None, model):
        return RESUMING
    return f"{RESUMING}, with its model {model}; {requested} gets the next message"


def pasted_remark(text: str, chat: Chat) -> str | None:
    """Return a remark if `text` contains a credential and the agent does not reject the text."""
    told = _PASTED.get(chat.agent.on_pasted)
    kinds = credentials_in(text) if told else ()
    return told.format(", ".join(kinds)) if told and kinds else None


def remark_moved(
    store: Store, chat: Chat, withheld: Withheld | None, recorded: str | None, *, is_first: bool
) -> None:
    """Print why settings of a resumed session are not in force, and where the session works.

    `store` contains the session. `recorded` is the folder that lists show for the session; None if
    the user named a folder. The folder is not printed if the session works in the current folder
    and was continued in perdure before.
    """
    if withheld is not None:
        address = shlex.quote(safe(store.backend.address))
        remark(NOT_IN_FORCE.format(_WHY[withheld].format(address)))
    folder = chat.workspace.working_dir
    if not os.path.isdir(folder):  # noqa: PTH112 - one that cannot be read is none
        remark(GONE.format(safe(folder), chat.id))
    elif recorded is not None and (is_first or Path(folder) != Path.cwd()):
        if not os.path.isdir(recorded):  # noqa: PTH112 - one that cannot be read is none
            remark(ELSEWHERE.format(safe(recorded), safe(folder)))
            return
        with suppress(OSError):  # one of them is gone since
            if not Path(recorded).samefile(folder):
                remark(BORROWED.format(safe(recorded), safe(folder)))


async def remark_unpriced(runtime: Runtime, agent: Agent, caps: Agent) -> None:
    """Print a warning if `caps` sets a budget and a model of `agent` has no known price."""
    warning = await runtime.host.unpriced_warning(agent, runtime.host.budget_of(caps))
    if warning is not None:
        remark(f"{warning}; its price goes into [models.prices] of your settings")


class Left(Exception):
    """The user left during a turn; the turn stays open."""


async def tell_begun(chat: Chat, teller: Teller) -> None:
    """Print the events of the session that `chat` has just started: ``session:started``."""
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
    """Print the events of `turn` after seq `after`; return its reply, or None if it was stopped.

    `pending` contains the questions that the turn asked before this call. Questions of invoked
    agents are asked in the same way as those of the chat's own agent.

    Raises: Left if the user leaves; NeedsAnswer if the turn asks a question and there is no person
    to answer; the errors of the turn.
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
            _print_events(chat, turn, teller, asking, after=after, pending=pending)
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
    """Wait until `telling` has printed all events. Raises: the first error in `others`."""
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
    chat: Chat,
    turn: Turn,
    teller: Teller,
    asking: QuestionLoop,
    *,
    after: int,
    pending: Sequence[Asked],
) -> None:
    for asked in pending:
        await asking.ask(asked)
    known = {asked.id for asked in pending}  # the turn may have asked while they were read
    hinted: set[str] = set()
    async with aclosing(aiter(turn)) as events:
        async for event in events:
            if isinstance(event, Event) and event.seq <= after:
                continue
            teller.tell(event)
            for hint in _command_hints(event, chat.agent):
                if hint not in hinted:
                    hinted.add(hint)
                    teller.remark(hint)
            if (asked := question_in(event)) is not None and asked.id not in known:
                await asking.ask(asked)


def _command_hints(event: AnyEvent, agent: Agent) -> Iterator[str]:
    """Return lines that say how to allow the command that the model was not allowed to run.

    The permissions of an agent from a file are not extended in a chat, so there are no hints.
    """
    if not isinstance(event, Event) or event.type != "agent:tool_result" or agent.id != AGENT:
        return
    told = event.payload
    if told.get("toolId") != COMMANDS:
        return
    if told.get("errorCode") == "unknown_tool":
        yield NO_COMMANDS
    elif told.get("errorCode") == ToolDenied.code:
        given = told.get("toolInput")
        if isinstance(given, dict):
            yield from refusal_lines(cast("dict[str, object]", given), agent.permissions)
