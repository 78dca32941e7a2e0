"""Flows as queued work: a worker runs a flow until it is completed or waits for a person.

The log contains all finished work of a flow, so another worker can continue the flow. A flow that
waits for a person uses no slot. The worker that ran the flow watches the flow's log and the
sessions of its roles, and queues the flow again. If the worker that watches a flow dies, the
periodic scan of another worker (`recovery.py`) queues the flow again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from perdure.client.agents.runtime_services import Host
from perdure.client.cluster.limits import Slots
from perdure.client.cluster.parked_turns import first_change
from perdure.client.cluster.requirements import flow_requirement, queue_name
from perdure.client.cluster.runner import queue_flow, unqueued_flows
from perdure.client.flows.execution import Execution
from perdure.client.flows.locations import belongs_to
from perdure.client.flows.role_setup import Equipment
from perdure.client.flows.waits import awaited_by, is_ready, running_sessions
from perdure.client.flows.waker import Waker
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.parked_work import park_entry
from perdure.engine.flows.requests import COMPLETED, close_flow_request, open_requests
from perdure.engine.flows.rules.parts import ready_work, running_parts
from perdure.engine.turns.requests import break_turn
from perdure.errors import (
    ConfigError,
    Erased,
    FlowRefusal,
    LeaseHeld,
    LeaseLost,
    LimitExceeded,
    PerdureError,
    SessionNotFound,
    StoreError,
    StoreUnavailable,
    TurnSuspended,
)
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.flows.kinds import FlowRequestClosed, FlowRequested
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.notes import SideBody
from perdure.stores.access.cancellation import cancel_all
from perdure.stores.cluster.protocol import Work
from perdure.stores.session_store import SessionStore

PARK_S = 1.0
"""How long a flow whose roles all wait for a person keeps its slot."""

LOOK_S = 0.25
"""How often a worker checks whether all roles of a running flow wait for a person."""

FAILED = "work_failed"
"""The error code for a request whose flow cannot run, if the error has no code."""

_log = logging.getLogger(__name__)


class FlowWork:
    """Runs the flows of one namespace in one worker, and watches those that wait for a person."""

    def __init__(self, host: Host, slots: Slots) -> None:
        self._host = host
        self._slots = slots
        self._store = host.store.backend
        self._clock = host.store.outside.clock
        self._waker = Waker(self._store)
        self._runs: set[asyncio.Future[FlowState]] = set()
        self._watching: dict[StreamId, asyncio.Task[None]] = {}
        self._is_suspended = False

    async def once(self, work: Work) -> str:
        """Run the flow as far as possible without a person; return the outcome.

        Raises: TurnSuspended if the worker stops; SessionNotFound if the flow does not exist;
        Erased if it was erased; StoreUnavailable if the store cannot be reached.
        """
        request = await self._open_request(work)
        if request is None:
            return "answered"
        async with self._slots.held(work, self._store, lambda: self._is_over(work)):
            ended = await self._run(work, request)
        if ended == "waiting":
            self.watch(work.stream)
        return ended

    async def give_up(self, work: Work, losses: int) -> str:
        """Give up the flow, because `losses` workers died while they ran it.

        After the call, each node that was running waits for a person. If no node was running, each
        node that could begin next waits for a person.
        """
        reason = (
            f"{losses} workers died while they ran this flow, so this work is not tried again; "
            "look at their logs, then reply to continue"
        )
        _log.error("flow %s: %s", work.stream, reason)
        journal = self._journal(work.stream)
        state = await journal.state()
        for session in running_sessions(state):
            if session is not None:
                with suppress(SessionNotFound, Erased):
                    await break_turn(self._host.claim(session), reason)
        await journal.append(lambda state: _parked(state, reason))
        self.watch(work.stream)
        return "given up"

    def watch(self, flow: StreamId) -> None:
        """Queue `flow` again as soon as it can continue without a person."""
        if flow not in self._watching and not self._is_suspended:
            task = self._watching[flow] = asyncio.ensure_future(self._queued_again(flow))
            task.add_done_callback(lambda _: self._watching.pop(flow, None))

    async def queue_lost(self) -> None:
        """Queue the requested flows that can continue but are in no queue. Raises: StoreError."""
        for entry in await unqueued_flows(self._store):
            with suppress(SessionNotFound, Erased):
                await self._queue_if_ready(entry)

    async def suspend(self) -> None:
        """Suspend all flows immediately, so that other workers continue them."""
        self._is_suspended = True
        await cancel_all((*self._watching.values(), *self._runs))
        with suppress(StoreError):
            await self._waker.close()

    # ------------------------------------------------------------ inside

    async def _run(self, work: Work, request: Entry) -> str:
        body = body_of(request)
        assert isinstance(body, FlowRequested)
        journal = self._journal(work.stream)
        host = self._host
        equipment = Equipment(host.models, host.agents, body.on_interrupt, body.offered)
        execution = Execution(host, equipment, self._waker)
        try:
            state = await self._run_or_parked(execution, journal)
        except (TurnSuspended, LeaseHeld, LeaseLost, StoreUnavailable, SessionNotFound, Erased):
            raise
        except FlowRefusal as error:  # its folder was removed after this worker had seen it
            _log.warning("%s", error)
            return "left"
        except Exception as error:  # noqa: BLE001 - every error closes the request with its reason
            _log.warning("flow %s cannot be run", work.stream, exc_info=True)
            code = error.code if isinstance(error, PerdureError) else FAILED
            await self._close(request, FlowRequestClosed(code, str(error) or type(error).__name__))
            return "failed"
        if state.run.status != "completed":
            return "waiting"
        await self._close(request, FlowRequestClosed(COMPLETED))
        return "done"

    async def _run_or_parked(self, execution: Execution, journal: Journal) -> FlowState:
        """Run the flow; suspend it when every running role waits for a person."""
        if self._is_suspended:
            raise TurnSuspended
        running = asyncio.ensure_future(execution.run(journal, until_completed=False))
        waiting = asyncio.ensure_future(self._long_wait(journal))
        self._runs.add(running)
        try:
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._runs.discard(running)
            waiting.cancel()
            if not running.done():
                running.cancel()
                await asyncio.wait((running,))
        if not running.cancelled():
            return running.result()
        if self._is_suspended:
            raise TurnSuspended
        return await journal.state()

    async def _long_wait(self, journal: Journal) -> None:
        """Return when all running roles have waited `PARK_S` seconds for a person."""
        waits = self._host.person_waits
        loop = asyncio.get_running_loop()
        since: float | None = None
        while since is None or loop.time() - since < PARK_S:
            await asyncio.sleep(LOOK_S)
            state = journal.latest
            sessions = () if state is None or state.selecting else running_sessions(state)
            is_waiting = bool(sessions) and all(
                session is not None and waits.is_waiting(session) for session in sessions
            )
            since = (since or loop.time()) if is_waiting else None

    async def _queued_again(self, flow: StreamId) -> None:
        try:
            while requests := await open_requests(self._store, flow):
                state = await self._journal(flow).state()
                awaited = await awaited_by(self._store, state, self._clock.now_ms())
                changes = [self._store.changes(each) for each in awaited]
                if await self._queue_if_ready(requests[-1]):
                    return
                await first_change(changes)
        except (SessionNotFound, Erased):
            pass
        except StoreError as error:  # the sweep finds the flow
            _log.info("flow %s: %s", flow, error)

    async def _queue_if_ready(self, request: Entry) -> bool:
        """Queue the flow of `request` if it can continue, or close `request` if it is completed.

        Return whether the flow was queued or the request was closed.
        """
        body, now = body_of(request), self._clock.now_ms()
        state = await self._journal(request.stream).state()
        if not isinstance(body, FlowRequested):
            return False
        if state.run.status == "completed":
            await self._close(request, FlowRequestClosed(COMPLETED))
            return True
        if not await is_ready(self._store, state, now):
            return False
        await queue_flow(self._store, request.stream, request.seq, body, now)
        return True

    async def _is_over(self, work: Work) -> bool:
        return await self._open_request(work) is None

    async def _open_request(self, work: Work) -> Entry | None:
        """Return the request that belongs to `work`; None if the request is closed.

        Raises: SessionNotFound.
        """
        found = await open_requests(self._store, work.stream)
        return next((each for each in found if each.seq == work.request), None)

    async def _close(self, request: Entry, closed: FlowRequestClosed) -> None:
        now = self._clock.now_ms()
        await close_flow_request(self._store, request.id, request.stream, closed, now)

    def _journal(self, flow: StreamId) -> Journal:
        return Journal(self._store, flow, self._clock)


async def requested_flows(store: SessionStore) -> dict[str, list[Entry]]:
    """Return the open requests of flows in the namespace of `store`, by queue."""
    found: dict[str, list[Entry]] = {}
    for entry in await store.open_of_all(FlowRequested.kind):
        body = body_of(entry)
        if isinstance(body, FlowRequested):
            queue = queue_name(store.namespace, flow_requirement(body))
            found.setdefault(queue, []).append(entry)
    return found


def with_folders(requests: Sequence[Entry]) -> list[StreamId]:
    """Return the flows of `requests` whose folders are on this machine. Blocks the thread.

    The record folder must contain the mark of this flow, because another machine can have a folder
    with the same path.
    """
    found: list[StreamId] = []
    for entry in requests:
        body = body_of(entry)
        if not isinstance(body, FlowRequested):
            continue
        workspace, record = (Path(each) for each in body.folders)
        with suppress(ConfigError, LimitExceeded, OSError):
            if workspace.is_dir() and belongs_to(entry.stream, record):
                found.append(entry.stream)
    return found


def _parked(state: FlowState, reason: str) -> list[SideBody]:
    """Return the entries that make the running nodes of the flow wait for a person.

    If no node runs, the entries make the nodes that could begin next wait.
    """
    return [park_entry(work, reason) for work in running_parts(state) or ready_work(state)]
