"""Do one piece of work: run the turn of a request, or continue an open turn or a flow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from perdure.client.agents.chat import Chat
from perdure.client.agents.delegation.questions import awaited_sessions
from perdure.client.agents.runners import EmbeddedRunner, answering
from perdure.client.agents.runtime import Runtime
from perdure.client.agents.turn import Turn
from perdure.client.cluster.flow_work import FlowWork
from perdure.client.cluster.limits import Slots, paced
from perdure.client.cluster.parked_turns import ParkedTurns
from perdure.client.cluster.runner import cluster_of
from perdure.engine.telemetry.activation import ClusterReport
from perdure.engine.turns.lease import led_by_other
from perdure.engine.turns.requests import (
    FEW,
    STOPPED,
    OpenRequest,
    break_turn,
    open_request,
    refuse_request,
    stop_of_turn,
)
from perdure.errors import (
    Erased,
    LeaseHeld,
    LeaseLost,
    PerdureError,
    RequestAnswered,
    SessionNotFound,
    StoreUnavailable,
    TurnFailed,
    TurnOpen,
    TurnSuspended,
)
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.ledger import TurnRequested, TurnStopRequested
from perdure.stores.cluster.protocol import Work
from perdure.stores.protocol import StreamState
from perdure.stores.wakeups import change

MAX_LOSSES = 3
"""If this number of workers died during a piece of work, the work is not begun again."""

BUSY_S = 0.5
"""The wait before work is retried while another process works in its session."""

MAX_LEFT_OPEN = 3
"""Work ends after this number of errors that left its turn open; a scan queues the turn again."""

CANCEL_S = 1.0
"""How often a task that continues after its cancellation is cancelled again."""

STOP_LOOK_S = 0.3
"""The shortest time between two checks for a request to stop a running turn."""

PARK_S = 1.0
"""How long a turn that waits for a person keeps its slot, to continue after a quick answer."""

_AGAIN = (LeaseHeld, LeaseLost, RequestAnswered, StoreUnavailable, TurnOpen)
"""Errors after which work is checked again.

The store is unavailable, or another process writes to the session, perhaps a process that was
declared dead and whose turn continues in this process.
"""

_log = logging.getLogger(__name__)


class _WaitsForPerson(Exception):
    """The turn of the session waits for a person, and no longer runs in this process."""


class _LeftOpen(Exception):
    """An error ended the task of a turn, but the turn is still open: its end is not in the log."""


class Performer:
    """Does the work of one namespace in the namespace's runtime."""

    def __init__(self, runtime: Runtime, slots: Slots, report: ClusterReport | None = None) -> None:
        self._runtime = runtime
        self._report = report
        runtime.host.runner = EmbeddedRunner()
        self._host = runtime.host
        self._slots = slots
        self._store = runtime.host.store.backend
        runtime.host.paced = paced(self._store)
        self._cluster = cluster_of(self._store)
        self.parked = ParkedTurns(self._store, self._host.store.outside.clock)
        self.flows = FlowWork(runtime.host, slots)

    async def perform(self, work: Work) -> str:
        """Do `work`, and return its outcome.

        The call waits while another process works in the session, and while the store cannot be
        reached.
        A turn that waits for a person is parked, and continues later as new work.
        Raises: TurnSuspended when the worker stops: the turn stays open.
        """
        errors = 0
        while True:
            try:
                losses = await self._cluster.losses(work)
                state, page, _ = await self._store.tail(work.stream, FEW)
                is_flow, is_lost = state.header.kind == "flow", losses >= MAX_LOSSES
                if is_lost:
                    give_up = self.flows.give_up if is_flow else self._give_up
                    ended = await give_up(work, losses)
                elif is_flow:
                    ended = await self.flows.once(work)
                else:
                    ended = await self._once_or_parked(work, state, page)
                if losses:
                    await self._cluster.forget_losses(work)
            except _AGAIN as error:
                _log.info("session %s: %s", work.stream, error)
                await asyncio.sleep(BUSY_S)
            except _LeftOpen as error:
                _log.warning("session %s: a turn was left open: %s", work.stream, error)
                errors += 1
                if errors == MAX_LEFT_OPEN:
                    return "left open"
                await asyncio.sleep(BUSY_S * 4**errors)
            except (SessionNotFound, Erased):
                return "removed"
            else:
                return ended

    async def _once_or_parked(self, work: Work, state: StreamState, page: Sequence[Entry]) -> str:
        try:
            return await self._once(work, state, page)
        except _WaitsForPerson:
            is_behind = await self._open_request(work) is not None
            self.parked.park(work.stream, work if is_behind else None)
            return "waiting"

    async def _once(self, work: Work, state: StreamState, page: Sequence[Entry]) -> str:
        request = await self._open_request(work, page)
        if request is None and state.open_turn is None:  # perhaps a turn has begun since
            state = await self._store.state(work.stream)
        if request is None and state.open_turn is None:
            return "answered"
        if request is not None and state.open_turn is not None and await self._is_asking(work):
            raise _WaitsForPerson
        held = led_by_other(self._host.claim(work.stream), state)
        if held is not None:
            raise held
        async with self._slots.held(work, self._store, lambda: self._is_over(work)) as has_waited:
            if has_waited and request is not None:
                request = await self._still_open(work, request)
            return await self._run(work, request)

    async def _is_over(self, work: Work) -> bool:
        """Whether `work` is finished, or a stop of its turn or request was requested."""
        turn = (await self._store.state(work.stream)).open_turn
        if turn is not None:
            return await stop_of_turn(self._store, work.stream, turn) is not None
        request = await self._open_request(work)
        return request is None or request.stop is not None

    async def _run(self, work: Work, request: OpenRequest | None) -> str:
        """Continue the open turn, if there is one, then answer `request`.

        The turn does not begin if another process has answered `request` since it was read.
        """
        try:
            chat = await self._runtime.resume(work.stream)
        except (LeaseHeld, StoreUnavailable, SessionNotFound, Erased):
            raise
        except PerdureError as error:
            return await self._refuse(work, request, error)
        if chat.turn is not None:
            await self._settle(work, chat.turn)
            if request is not None:
                request = await self._still_open(work, request)
        return "continued" if request is None else await self._answer(work, chat, request)

    async def _answer(self, work: Work, chat: Chat, request: OpenRequest) -> str:
        body, seq = body_of(request.entry), request.entry.seq
        assert isinstance(body, TurnRequested)
        if request.stop is not None:
            await refuse_request(self._host.claim(work.stream), seq, *STOPPED)
            return "stopped"
        taken_at = self._host.store.outside.clock.now_ms()
        delay_s = (taken_at - max(request.entry.at, body.due_at or 0)) / 1000
        try:
            with answering(work.stream, seq):
                turn = chat.send(body.message)
            report = self._report_start(work, chat.agent.id, turn, delay_s)
            reporting = asyncio.ensure_future(report)
            try:
                error = await self._settle(work, turn, seq)
            finally:
                reporting.cancel()
        except (TurnSuspended, *_AGAIN):
            raise
        except PerdureError as refusal:
            error = refusal
        if error is not None and await self._open_request(work) is not None:
            return await self._refuse(work, request, error)
        return "done"

    async def _report_start(self, work: Work, agent: str, turn: Turn, delay_s: float) -> None:
        """Report the delay when `turn` has begun; if it does not begin, `_settle` finds out why."""
        with suppress(PerdureError):
            await turn.started()
            if self._report is not None:
                self._report.started(work.namespace, agent, delay_s)

    async def _settle(
        self, work: Work, turn: Turn, request: int | None = None
    ) -> PerdureError | None:
        """Wait for the end of `turn`, which answers `request` (None: no request).

        Return the error of the turn; the log contains the error if the turn had begun.
        Raises: TurnSuspended if the worker stops; one of `_AGAIN` if the work must be tried again.
        Raises _LeftOpen if the turn failed but is still open; _WaitsForPerson if the turn was
        stopped because it waits for a person.
        """
        obeying = asyncio.ensure_future(self._obey_stops(work, turn, request))
        waiting = asyncio.ensure_future(self._long_wait(turn))
        ended = asyncio.ensure_future(turn.settled())
        try:
            await asyncio.wait((ended, waiting), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                await turn.stop()
            await ended
            await turn
        except TurnSuspended:
            if waiting.done():
                raise _WaitsForPerson from None
            raise
        except _AGAIN:
            raise
        except PerdureError as error:
            _log.info("session %s: %s", work.stream, error)
            has_ended = isinstance(error, TurnFailed)  # the log contains this error
            if not has_ended and (await self._store.state(work.stream)).open_turn is not None:
                raise _LeftOpen(str(error)) from error
            return error
        else:
            return None
        finally:
            await end_tasks(obeying, waiting, ended)

    async def _long_wait(self, turn: Turn) -> None:
        """Return when `turn` has waited `PARK_S` seconds for a person."""
        loop, since = asyncio.get_running_loop(), None
        while True:
            change = self._host.person_waits.change()
            since = (since or loop.time()) if turn.is_waiting else None
            left_s = None if since is None else since + PARK_S - loop.time()
            if left_s is not None and left_s <= 0:
                return
            await asyncio.wait((change,), timeout=left_s)
            change.cancel()

    async def _is_asking(self, work: Work) -> bool:
        now = self._host.store.outside.clock.now_ms()
        return bool(await awaited_sessions(self._store, work.stream, now))

    async def _obey_stops(self, work: Work, turn: Turn, request: int | None) -> None:
        """Stop `turn`, which answers `request`, if another process requests a stop."""
        changes, is_due = self._store.changes(work.stream), False
        while turn.is_running:
            await asyncio.sleep(STOP_LOOK_S)
            if not is_due:
                await change(changes, self._store.address)
            is_due = True  # until a look has succeeded
            with suppress(StoreUnavailable):
                stop = await self._requested_stop(work, request)
                is_due = False
                if stop is not None and stop.is_cancel:
                    turn.cancel()
                elif stop is not None:
                    turn.abort()

    async def _requested_stop(self, work: Work, request: int | None) -> TurnStopRequested | None:
        """Return the newest request to stop the open turn, which answers `request`."""
        store, kind = self._store, TurnStopRequested.kind
        if request is not None and not await store.entries(work.stream, request, 1, kind=kind):
            return None
        turn = (await store.state(work.stream)).open_turn
        return None if turn is None else await stop_of_turn(store, work.stream, turn)

    async def _open_request(self, work: Work, page: Sequence[Entry] = ()) -> OpenRequest | None:
        """Return the request of `work`; None if there is no request, or if it is answered.

        `page` are the newest entries of the session, if they were read.
        """
        if work.request is None:
            return None
        return await open_request(self._store, work.stream, work.request, page)

    async def _still_open(self, work: Work, request: OpenRequest) -> OpenRequest:
        """Return `request` as it is now.

        Raises: RequestAnswered if another process closed the request; the request's turn can still
        be open.
        """
        found = await self._open_request(work)
        if found is None:
            raise RequestAnswered(work.stream, request.entry.seq)
        return found

    async def _refuse(self, work: Work, request: OpenRequest | None, error: PerdureError) -> str:
        _log.warning("session %s: no turn can begin: %s", work.stream, error)
        if request is not None:
            claim = self._host.claim(work.stream)
            await refuse_request(claim, request.entry.seq, error.code, str(error))
        return "refused"

    async def _give_up(self, work: Work, losses: int) -> str:
        """End the turn or reject the request, because several workers died during this work."""
        reason = (
            f"{losses} workers died while they ran this turn, so it is not tried again; look at "
            "their logs, then send the message again"
        )
        _log.error("session %s: %s", work.stream, reason)
        claim = self._host.claim(work.stream)
        request = await self._open_request(work)
        if request is not None:
            await refuse_request(claim, request.entry.seq, "workers_died", reason)
        elif (await self._store.state(work.stream)).open_turn is not None:
            await break_turn(claim, reason)
        return "given up"


async def end_tasks(*tasks: asyncio.Task[None]) -> None:
    """Cancel `tasks` repeatedly until all have ended.

    One cancellation is not always enough, because a read of the store can replace the cancellation
    by an error. Raises: CancelledError if the caller was cancelled, but only after all tasks have
    ended.
    """
    cancelled: asyncio.CancelledError | None = None
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=CANCEL_S)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
