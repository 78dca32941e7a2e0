"""The scheduler of one flow: each pass starts all work that can run, then it waits for changes.

Between passes, the scheduler remembers only running tasks. All other state is in the log, where the
next pass finds it, for example a claim of a dead process or a reply from another process. If a node
fails, only this node is parked until a person decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import msgspec

from perdure.engine.flows.continuation import next_bodies
from perdure.engine.flows.files.runtime_files import ImprovementFile
from perdure.engine.flows.node_turn import FlowContext, NodeClaimLost, NodeTurn
from perdure.engine.flows.parked_work import ParkedWork, park_entry
from perdure.engine.flows.prompts.entry import INTERRUPTED
from perdure.engine.flows.roles import Roles, Unconfigured
from perdure.engine.flows.rules.improvement import RoleWork, roles_to_look_back
from perdure.engine.flows.rules.parts import (
    NodePart,
    ReflectionPart,
    TurnPart,
    ready_work,
    running_parts,
)
from perdure.engine.flows.rules.people import sessions_to_stop
from perdure.engine.flows.rules.ready_nodes import Work
from perdure.errors import ConfigError, LeaseHeld, LeaseLost, PerdureError, StoreError
from perdure.events.scope import within
from perdure.session.clock import Clock
from perdure.session.flows.kinds import NodeParked, RepairAsked, WorkflowChanged
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId

Wakes = Callable[[], AsyncIterator[int | None]]
"""Returns an iterator that yields at least once after every entry that any process appends to the
flow after the call. The iterator yields the seq of the newest known entry, or None if the seq is
unknown.
"""

LEAST_WAIT_S = 0.05
"""Minimum wait before a session of another process is retried, even if its lease has expired."""

MOST_WAIT_S = 0.25
"""Maximum wait before a retry, even if the lease lasts longer: its owner may have died."""

NO_TURN = "its work was begun, and its session has no turn of it"


class FlowRunner:
    """Runs a flow as far as possible without a person."""

    def __init__(self, ground: FlowContext, roles: Roles, clock: Clock, wakes: Wakes) -> None:
        self._ground = ground
        self._journal = ground.journal
        self._roles = roles
        self._clock = clock
        self._wakes = wakes
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Maps each role instance to its running task; each role has one session."""
        self._elsewhere: dict[str, float] = {}
        """Role instance whose session another process runs -> the time of the next attempt."""
        self._order = ImprovementFile(ground.record.folder)
        self._parked_work = ParkedWork(ground.journal)

    async def run(self) -> FlowState:
        """Run until all work that can be done now is done.

        Shape: when the call returns, the flow waits for a person or is completed.
        Raises: SessionNotFound if the flow does not exist; CorruptLog if the log is not a flow's;
        StoreError if the store fails; ConfigError if the record folder cannot be written. If the
        call raises an error, running work is suspended, and continues when the flow is run again.
        """
        wakes = self._wakes()
        woken: asyncio.Task[int | None] | None = None
        try:
            state = await self._journal.state()
            while True:
                woken = woken or asyncio.ensure_future(_next(wakes))
                state = await self._redrawn(state)
                await self._stop_asked(state)
                if state.improvement is not None and roles_to_look_back(state):
                    await self._order.write(state.improvement)  # before a role's claim names it
                self._begin(state)
                if self._tasks or self._elsewhere:
                    await self._something(woken)
                elif not await self._moved_on(state) and await self._is_newest(state):
                    return state
                if woken.done():
                    await self._look(woken.result())
                    woken = None
                state = await self._journal.latest_or_read()
        finally:
            await self._suspend(woken)

    async def _something(self, woken: asyncio.Task[int | None]) -> None:
        """Wait until a role's task ends, the flow changes, or a session could be free again."""
        waiting: list[asyncio.Future[Any]] = [woken, *self._tasks.values()]
        timer: asyncio.Task[None] | None = None
        if self._elsewhere:
            left_s = min(self._elsewhere.values()) - self._clock.steady_s()
            timer = asyncio.ensure_future(self._clock.sleep(left_s))
            waiting.append(timer)
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
        now_s = self._clock.steady_s()
        # The flow has changed: other processes may have released the other sessions.
        is_moved = woken.done()
        for role, due_s in [*self._elsewhere.items()]:
            if is_moved or due_s <= now_s:
                del self._elsewhere[role]
        self._collect()

    def _leave_alone(self, role: str, held: LeaseHeld) -> None:
        """Skip the session of `role` for a while, because another process works in it.

        If the other process dies during its turn, this process continues the turn.
        """
        left_s = (held.until - self._clock.now_ms()) / 1000
        wait_s = min(max(left_s, LEAST_WAIT_S), MOST_WAIT_S)
        self._elsewhere[role] = self._clock.steady_s() + wait_s

    async def _look(self, newest: int | None) -> None:
        """Read new entries, unless this process already knows all entries up to `newest`."""
        known = await self._journal.latest_or_read()
        if newest is None or newest > known.head:
            await self._journal.state()

    async def _is_newest(self, state: FlowState) -> bool:
        """Return whether `state` is the newest state in the log, not only in the cache."""
        return (await self._journal.state()).head == state.head

    # ------------------------------------------------------------ one pass

    async def _redrawn(self, state: FlowState) -> FlowState:
        """Return `state` with the graph that the files define now; ignore an unusable graph."""
        drawing = self._ground.drawing
        if drawing is None or state.run.improvement_phase is not None:
            return state
        graph = drawing.change(state).graph
        if graph is None:
            return state
        head, changed = state.head, WorkflowChanged(graph)
        return await self._journal.append(lambda now: (changed,) if now.head == head else ())

    def _begin(self, state: FlowState) -> None:
        """Start all work that can run."""
        for part in running_parts(state):
            self._start(part.role, self._goes_on(part))
        for work in ready_work(state):
            if not self._parked_work.is_unable(state, work):
                self._start(work.role, self._begins(state, work))

    def _start(self, role: str, work: Coroutine[Any, Any, None]) -> None:
        if role in self._tasks or role in self._elsewhere:
            work.close()
            return
        self._tasks[role] = asyncio.create_task(work, name=f"perdure-role-{role}")

    def _collect(self) -> None:
        """Remove finished tasks. Raises: the error of a task that failed."""
        for role, task in [*self._tasks.items()]:
            if task.done():
                del self._tasks[role]
                task.result()

    async def _moved_on(self, state: FlowState) -> bool:
        """Do the flow's own next step if no role works; return False if there is no such step."""
        bodies = next_bodies(state)
        if not bodies:
            return False
        head = state.head
        await self._journal.append(lambda now: bodies if now.head == head else ())
        return True

    async def _stop_asked(self, state: FlowState) -> None:
        for session in sessions_to_stop(state):
            await self._roles.stop(session)

    # ------------------------------------------------------------ what a role does

    async def _begins(self, state: FlowState, work: Work | RoleWork) -> None:
        """Begin `work` with its entry message, or park it."""
        role = work.role
        try:
            session = await self._roles.session(state, role)
            if isinstance(work, Work):
                message = await self._roles.entry_message(state, work)
                part: TurnPart = NodePart(role, work.node.id, session, work, work.paths(state))
            else:
                message = await self._roles.reflection_message(state, work)
                part = ReflectionPart(role, session, work)
        except LeaseHeld as error:  # another process runs the session, or the role's selector
            self._leave_alone(role, error)
        except LeaseLost:
            return
        except ConfigError as error:
            body = park_entry(work, str(error))
            if isinstance(error, Unconfigured) and isinstance(body, NodeParked):
                offers = error.offers
                body = msgspec.structs.replace(body, reason="role-configuration", offers=offers)
            await self._parked_work.park_unbegun(state, work, body)
        else:
            await self._turns(part, message)

    async def _goes_on(self, part: TurnPart) -> None:
        """Continue work that runs according to the log but has no task in this process."""
        try:
            is_ended = bool(part.session) and await self._roles.end_foreign_turn(part.session)
        except LeaseHeld as error:
            self._leave_alone(part.role, error)
            return
        # Before checking the session: ending or starting a turn changes the flow.
        state = await self._journal.state()
        try:
            is_open = bool(part.session) and await self._roles.is_open(part.session)
        except ConfigError as error:
            await self._parked_work.park_part(part, str(error))
            return
        if is_open:
            await self._turns(part, None)
            return
        repair = part.repair(state)
        if repair is not None:
            await self._turns(part, repair.message, repair)
        elif part.is_running(state):
            if part.session and (is_ended or state.is_foreign):
                again = msgspec.structs.replace(part, is_resumed=True)
                await self._turns(again, INTERRUPTED)
            else:
                await self._parked_work.park(state, park_entry(part, NO_TURN))

    async def _turns(
        self,
        part: TurnPart,
        message: str | None,
        repair: RepairAsked | None = None,
    ) -> None:
        """Run a turn and its repairs.

        Without a `message` to begin a turn, continue the open turn.
        """
        while True:
            last_answer = partial(self._roles.last_answer, part.session)
            turn = NodeTurn(self._ground, part, last_answer, repair)
            try:
                with _work_of(self._journal.flow, part):
                    if message is None:
                        await self._roles.recover(part.session, turn)
                    else:
                        await self._roles.begin(part.session, message, turn)
            except (NodeClaimLost, LeaseLost):
                return  # another process was faster; the remaining work shows in the log
            except LeaseHeld as error:
                self._leave_alone(part.role, error)
                return
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - any error stops only this node
                await self._parked_work.park_part(part, _error_text(error))
                return
            # The former owner may have ended a turn taken over here: the next pass sees that.
            repair = part.repair(await self._journal.latest_or_read())
            if repair is None:
                return
            message = repair.message

    async def _suspend(self, woken: asyncio.Task[int | None] | None) -> None:
        tasks = [*self._tasks.values(), *([] if woken is None else [woken])]
        for task in tasks:
            task.cancel()
        is_cancelled = False
        while pending := [task for task in tasks if not task.done()]:
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError:  # raised when all are suspended
                is_cancelled = True
        for task in tasks:
            if not task.cancelled():
                task.exception()  # seen: asyncio does not print it
        self._tasks.clear()
        if is_cancelled:
            raise asyncio.CancelledError


def _error_text(error: Exception) -> str:
    return str(error) if isinstance(error, PerdureError) else f"{type(error).__name__}: {error}"


async def _next(wakes: AsyncIterator[int | None]) -> int | None:
    return await anext(wakes)


def _work_of(flow: StreamId, part: TurnPart) -> AbstractContextManager[None]:
    """Return a context that adds the flow, role and node to every span and log line of a turn."""
    node = part.node if isinstance(part, NodePart) else None
    return within(flow=flow, role=part.role, node=node)
