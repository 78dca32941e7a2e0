"""The scheduler of a runtime: sends due messages, and plans the recurring messages of its agents.

The log contains all planned messages: a ``turn_requested`` with a due time waits in its session.
The session for an agent's next recurring message has an id computed from the agent, the expression
and the time. Several processes that plan the same time compute the same id, so they create only one
session with one request.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import suppress
from types import TracebackType
from typing import Self

from perdure.client.agents.agent import Agent
from perdure.client.agents.bindings import Bindings
from perdure.client.agents.runners import EmbeddedRunner, answering
from perdure.client.agents.runtime import Runtime
from perdure.client.agents.runtime_services import Host
from perdure.client.cluster.requirements import requirement_for
from perdure.client.conversation.workspace import Workspace, detect_workspace
from perdure.client.requests.cron import Recurring
from perdure.client.requests.schedule import ScheduledMessage, scheduled_in
from perdure.client.session_fields import title_of
from perdure.engine.turns.lease import led_elsewhere
from perdure.engine.turns.requests import STOPPED, refuse_request, requested_stop
from perdure.errors import (
    Erased,
    HeadConflict,
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    LimitExceeded,
    RequestAnswered,
    SecretPasted,
    SessionExists,
    SessionNotFound,
    StoreError,
    StoreUnavailable,
    TurnOpen,
    TurnSuspended,
    WrongArgument,
)
from perdure.session.argument_checks import takes_all_declared
from perdure.session.clock import minute, moment_of
from perdure.session.codec import new_side
from perdure.session.ids import StreamId, entry_place
from perdure.session.info import StreamHeader
from perdure.session.ledger import TurnRequested
from perdure.session.messages import user
from perdure.stores.access.cancellation import cancel_all
from perdure.stores.session_store import append_to

LOOK_S = 1.0
"""How often the scheduler looks for messages that are due."""

_MOST_USED_TIMES = 100
"""Maximum number of dates of a cron expression that a pass tries, until one is unused.

A date is used if its message was sent or cancelled, or if the session of its message was erased.
"""

_LONGEST_AGENT_ID = 100
"""Maximum number of characters of an agent's id in a session id; 28 others remain."""

_LATER = (LeaseHeld, LeaseLost, StoreUnavailable, TurnOpen, TurnSuspended, InvalidTransition)
"""Errors after which the next pass tries again."""

_STAYING = (LimitExceeded, SecretPasted, WrongArgument)
"""Errors that would occur again at every try, so the message is rejected."""

_LONGEST_DELAY_S = 300.0
"""The longest delay before the next try after any other error; the first delay is `LOOK_S`."""

_log = logging.getLogger(__name__)


@takes_all_declared
class Scheduler:
    """Sends the messages that are due in sessions for which `runtime` has the agent and tools.

    The scheduler sends messages of ``chat.send(at=)``, even if the program that sent them has
    ended, and messages of ``Agent(recurring=...)``. The scheduler works only inside its ``async
    with`` block. Any number of processes can have a scheduler: each message is sent once. `perdure
    serve` and workers have a scheduler of their own.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._host = runtime.host
        self._store = runtime.host.store.backend
        self._outside = runtime.host.store.outside
        self._bindings = Bindings(runtime.host)
        self._unplanned: set[str] = set()
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._delays: dict[str, tuple[float, float]] = {}  # when to try again, the wait after it
        self._told: set[str] = set()
        self._planning: dict[str, asyncio.Task[None]] = {}
        self._keeping: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._keeping = [
            asyncio.create_task(self._send_all()),
            asyncio.create_task(self.keep_planned(LOOK_S)),
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await cancel_all(self._keeping)
        await cancel_all(self._sending.values())

    async def plan(self) -> None:
        """Store the next message for each `Recurring`, unless one is already waiting.

        If no worker ran at a planned time, the message is sent later, one time. A failed plan is
        logged, and retried the next time. Durable: all changes are stored when this returns.
        """
        await asyncio.gather(*await self._begin_planning())

    async def keep_planned(self, every_s: float) -> None:
        """Call `plan` repeatedly. An agent that starts slowly does not delay other agents."""
        try:
            while True:
                try:
                    await self._begin_planning()
                except Exception:  # noqa: BLE001 - the next pass is due whatever failed in this one
                    _log.warning("recurring messages could not be planned", exc_info=True)
                await self._outside.clock.sleep(every_s)
        finally:
            await cancel_all(self._planning.values())

    async def send_due(self) -> None:
        """Begin to send the messages that are due, each in a task of its own.

        With ``Runtime(runner="workers")``, workers send the due messages.
        """
        if not isinstance(self._host.runner, EmbeddedRunner):
            return
        now, steady_s = self._outside.clock.now_ms(), self._outside.clock.steady_s()
        waiting = await scheduled_in(self._store)
        ids = {message.id for message in waiting}
        self._delays = {id: delay for id, delay in self._delays.items() if id in ids}
        self._told &= ids
        for message in waiting:
            again_s, _ = self._delays.get(message.id, (steady_s, 0.0))
            if message.due_at <= now and again_s <= steady_s and message.id not in self._sending:
                task = asyncio.create_task(self._send(message))
                self._sending[message.id] = task
                task.add_done_callback(lambda _, id=message.id: self._sending.pop(id, None))

    # ------------------------------------------------------------ inside

    async def _send_all(self) -> None:
        while True:
            try:
                await self.send_due()
            except Exception:  # noqa: BLE001 - the next pass is due whatever failed in this one
                _log.warning("scheduled messages could not be looked for", exc_info=True)
            await self._outside.clock.sleep(LOOK_S)

    async def _begin_planning(self) -> list[asyncio.Task[None]]:
        """Begin to plan each agent in its own task, unless one still runs; return all tasks."""
        waiting = await scheduled_in(self._store)
        for agent in self._host.agents.values():
            if agent.recurring and agent.id not in self._planning:
                task = asyncio.create_task(self._plan_agent(agent, waiting))
                self._planning[agent.id] = task
                task.add_done_callback(lambda _, id=agent.id: self._planning.pop(id, None))
        return list(self._planning.values())

    async def _has_planned(self, name: str, waiting: list[ScheduledMessage]) -> bool:
        """Whether a session with the id prefix `name` has an uncancelled message in `waiting`."""
        for each in waiting:
            seq = entry_place(each.id)[1]
            if each.session.startswith(name) and not (
                await requested_stop(self._store, each.session, seq, seq)
            ):
                return True
        return False

    async def _plan_agent(self, agent: Agent, waiting: list[ScheduledMessage]) -> None:
        for each in agent.recurring:
            name = _session_prefix(agent, each)
            try:
                if await self._has_planned(name, waiting):
                    continue
                await self._plan(agent, each, name)
                self._unplanned.discard(name)
            except Exception as error:  # noqa: BLE001 - the others are planned all the same
                if name not in self._unplanned:
                    _log.warning("agent %s: %r is not planned: %s", agent.id, each.cron, error)
                self._unplanned.add(name)

    async def _plan(self, agent: Agent, each: Recurring, name: str) -> None:
        due_at = self._outside.clock.now_ms()
        for _ in range(_MOST_USED_TIMES):
            due_at = each.next_after(due_at)
            id = StreamId(f"{name}{moment_of(due_at):%Y%m%dT%H%M}")
            title = f"{agent.name or agent.id} {minute(due_at)} UTC"
            place = detect_workspace(Workspace(scope=agent.permissions.scope))
            now = self._outside.clock.now_ms()
            header = StreamHeader(id, now, cwd=place.working_dir, title=title_of(title))
            with suppress(SessionExists):
                try:
                    await self._bindings.begin(agent, header, place, is_planned=True)
                except Erased:
                    continue
            if await self._request(id, each, due_at):
                return

    async def _request(self, stream: StreamId, each: Recurring, due_at: int) -> bool:
        """Append the request if the session has none; return whether a request waits now."""
        state = await self._store.state(stream)
        found = await self._store.notes(stream, (TurnRequested.kind,))
        if found:
            waiting = await scheduled_in(self._store)
            return await self._has_planned(stream, [m for m in waiting if m.id == found[0].id])
        new = new_side(TurnRequested(user(each.message), due_at))
        with suppress(HeadConflict):  # another process planned it
            now = self._outside.clock.now_ms()
            await append_to(self._store, stream, new, at=now, expected_head=state.head)
        return True

    async def _send(self, message: ScheduledMessage) -> None:
        seq = entry_place(message.id)[1]
        claim = self._host.claim(message.session)
        try:
            missing = await missing_for(self._host, message.session)
            if missing:
                self._tell_missing(message, missing)
                return
            if await requested_stop(self._store, message.session, seq, seq) is not None:
                await refuse_request(claim, seq, *STOPPED)
                return
            if await led_elsewhere(claim) is not None:
                return
            chat = await self._runtime.resume(message.session)
            if chat.turn is not None:
                await chat.turn.settled()
            with answering(message.session, seq):
                turn = chat.send(message.message)
            await turn.stored()  # from here on the turn cannot be lost
        except (*_LATER, RequestAnswered, SessionNotFound, Erased) as error:
            _log.info("scheduled message %s: %s", message.id, error)
        except _STAYING as error:
            self._delay(message)
            _log.warning("scheduled message %s is refused: %s", message.id, error)
            with suppress(StoreError, Erased):  # the next pass refuses it
                await refuse_request(claim, seq, error.code, str(error))
        except Exception as error:  # noqa: BLE001 - what fails now may work later
            self._delay(message)
            _log.warning("scheduled message %s cannot be sent yet: %s", message.id, error)

    def _tell_missing(self, message: ScheduledMessage, missing: str) -> None:
        """Log once that `message` waits for what is `missing`."""
        if message.id not in self._told:
            self._told.add(message.id)
            _log.warning(
                "scheduled message %s waits: this process does not have %s", message.id, missing
            )

    def _delay(self, message: ScheduledMessage) -> None:
        """Increase the delay before the next try of `message`."""
        _, wait_s = self._delays.get(message.id, (0.0, LOOK_S))
        self._delays[message.id] = (
            self._outside.clock.steady_s() + wait_s,
            min(wait_s * 2, _LONGEST_DELAY_S),
        )


async def missing_for(host: Host, session: StreamId) -> str:
    """Return what `host` lacks to send the scheduled messages of `session`; "" if nothing.

    Raises: SessionNotFound.
    """
    required = await requirement_for(host.store.backend, session)
    return required.missing_from(host.agents.get(required.agent))


def _session_prefix(agent: Agent, each: Recurring) -> str:
    """Return the prefix that all session ids for the recurring message `each` have.

    If the id of the agent is long, the prefix contains a shortened form.
    """
    id = agent.id
    if len(id) > _LONGEST_AGENT_ID:
        key = hashlib.blake2b(id.encode(), digest_size=8).hexdigest()
        id = f"{id[: _LONGEST_AGENT_ID - len(key) - 1]}.{key}"
    return f"{id}-{each.key}-"
