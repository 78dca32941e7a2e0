"""Follow a turn that another process runs, by reading its entries from the log."""

from __future__ import annotations

from contextlib import ExitStack, suppress

from perdure.engine.turns.environment import Environment
from perdure.engine.turns.requests import STOPPED, refuse_request
from perdure.engine.turns.session_turns import Signals
from perdure.engine.turns.state import Phase, TurnState, fold
from perdure.errors import Erased, LeaseHeld, LeaseLost, TurnFailed
from perdure.errors.engine import failure_of
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, entry_id
from perdure.session.info import erasure_in
from perdure.session.ledger import TurnFinished, TurnRefused, TurnStarted, TurnStopRequested
from perdure.stores.session_store import append_to
from perdure.stores.wakeups import change


class FollowedTurn:
    """A turn of another process: the turn that answers `request`, or that began at seq `turn`.

    The object remembers every entry that it has read, so you can cancel `ended` and call `ended`
    again. While the turn waits for a person, this process also marks the session as waiting. With
    `is_told`, the program's `on_wait` is called with the question, because no other program shows
    the question of a requested turn.
    """

    def __init__(
        self,
        environment: Environment,
        signals: Signals,
        *,
        request: int | None = None,
        turn: int | None = None,
        is_told: bool = True,
    ) -> None:
        assert request is not None or turn is not None
        self._environment = environment
        self._signals = signals
        self._changes = environment.store.changes(environment.stream)
        self.request = request
        self._request = None if request is None else entry_id(environment.stream, request)
        self._turn = turn
        self._read_to = request if request is not None else (turn or 0) - 1
        self._is_due = False
        self._state: TurnState | None = None
        self._is_told = is_told
        self._told: set[EntryId] = set()

    @property
    def about(self) -> EntryId:
        """The id of the entry to which a request to stop the turn refers."""
        if self._request is not None:
            return self._request
        assert self._turn is not None
        return entry_id(self._environment.stream, self._turn)

    @property
    def is_asking(self) -> bool:
        """Whether the turn waits for a person's answer, according to the entries read so far."""
        return self._state is not None and self._state.phase is Phase.ASKING

    async def ended(self) -> TurnState:
        """Return the state of the turn after it has ended.

        If a request was stopped before its turn began, the result is the state of an aborted turn.
        Raises: TurnFailed if no turn can answer the request; Erased if the session was erased;
        StoreUnavailable if the store cannot be reached.
        """
        environment = self._environment
        with ExitStack() as waits:
            while (state := self._state) is None or state.finished is None:
                self._mark_waiting(waits)
                if not self._is_due:
                    await change(self._changes, environment.store.address)
                self._is_due = True  # until a read has succeeded
                added = await environment.store.entries(environment.stream, after=self._read_to)
                self._is_due = False
                for entry in added:
                    self._take(entry)
            return state

    async def stop(self) -> None:
        """Ask the process that runs the turn to end it; reject the request if no turn has begun."""
        environment = self._environment
        body = new_side(TurnStopRequested(self._signals.stopping.is_cancel), self.about)
        at = environment.clock.now_ms()
        await append_to(environment.store, environment.stream, body, at=at)
        if self.request is not None and not self._signals.begun.done():
            with suppress(LeaseHeld, LeaseLost):  # a process has it: it stops the turn
                await refuse_request(environment.claim, self.request, *STOPPED)

    def _take(self, entry: Entry) -> None:
        self._read_to = entry.seq
        erased = erasure_in(entry)
        if erased is not None and erased.is_whole:
            raise Erased(entry.stream)
        if self._state is None:
            if entry.kind == TurnRefused.kind and entry.about == self._request:
                self._refused(entry)
                return
            if not self._is_start(entry):
                return
            self._state = TurnState(entry.stream, entry.seq - 1)
            if not self._signals.begun.done():
                self._signals.begins_after(entry.seq - 1)
        if self._state.finished is None:
            self._state = fold(self._state, (entry,))

    def _refused(self, entry: Entry) -> None:
        """Mark the turn as aborted if the request was rejected because of a stop.

        Raises: TurnFailed if the request was rejected for a reason other than a stop.
        """
        body = body_of(entry)
        assert isinstance(body, TurnRefused)
        if body.code != STOPPED[0]:
            raise TurnFailed(body.error, failure_of(body.code, "request_refused"))
        self._state = TurnState(entry.stream, entry.seq, finished=TurnFinished("aborted"))
        if not self._signals.begun.done():
            self._signals.begins_after(entry.seq - 1)

    def _is_start(self, entry: Entry) -> bool:
        if entry.kind != TurnStarted.kind:
            return False
        return entry.seq == self._turn or (
            self._request is not None and entry.about == self._request
        )

    def _mark_waiting(self, waits: ExitStack) -> None:
        """Mark the session as waiting for a person while the turn has an open question."""
        waits.close()
        state = self._state
        if state is None or state.phase is not Phase.ASKING or state.question is None:
            return
        environment, asked = self._environment, state.question
        if asked.answer is None:
            waits.enter_context(environment.person_waits.waiting((environment.stream,)))
            if self._is_told and asked.id not in self._told:
                self._told.add(asked.id)
                environment.person_waits.on_wait(environment.stream, asked.id)
