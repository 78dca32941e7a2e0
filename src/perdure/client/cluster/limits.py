"""Cluster limits in one worker: a turn waits for its slot, a model request for its permit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from perdure.client.cluster.runner import cluster_of, priority_of
from perdure.client.conversation.agent_binding import model_of
from perdure.errors import PerdureError, StoreUnavailable, TurnSuspended
from perdure.models.protocol import Delta, ModelClient, ModelInfo, ModelRequest, streaming
from perdure.stores.cluster.limits import LimitService, Slot, slot_id, subjects_of
from perdure.stores.cluster.protocol import RANKS, Work
from perdure.stores.session_store import SessionStore
from perdure.stores.wakeups import change

LOOK_S = 0.1
"""How often a worker asks for slots that its turns wait for."""

RENEW_S = 1.0
"""How often a worker reads the limits, and stores the slots of its turns again."""

AGAIN_S = 1.0
"""The time after which a waiting turn first checks whether its work has ended meanwhile.

This is also the longest sleep of a waiting model request, because the limits may change.
"""

OVER_S = 10.0
"""How often a waiting turn checks again whether its work has ended, if no commit wakes it."""

FAILED_S = 0.5
"""The wait before the next try after an error of the store."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Turn:
    """A turn of this worker.

    `subjects` are the turn's namespace, model and provider, to which limits apply; empty if no
    limit was known when the turn began.
    """

    work: Work
    store: SessionStore
    subjects: tuple[str, ...] = ()
    rank: int = 0
    is_running: bool = False
    may_run: asyncio.Event = field(default_factory=asyncio.Event)


class Slots:
    """Requests, stores and returns the slots of one worker.

    The worker requests each slot, the store grants it, and the worker returns it.

    While any limit of turns is set, every turn has a slot. A turn to which no limit applies gets
    its slot immediately. A worker that takes over turns knows from the stored slots which turns ran
    and which only waited. Each update sends all slots of the worker to the store, and restores the
    slots that the store has lost. Turns that began before their limit was set also get slots.
    `stop` ends all waits for slots.
    """

    def __init__(self, limits: LimitService, worker: str) -> None:
        self._limits = limits
        self._worker = worker
        self._turns: dict[str, _Turn] = {}
        self._stored: frozenset[str] = frozenset()
        self._is_changed = asyncio.Event()
        self._is_stopped = False

    @asynccontextmanager
    async def held(
        self, work: Work, store: SessionStore, is_over: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[bool]:
        """Wait until the limits permit the turn of `work`.

        The turn is allowed to run inside the ``with`` block. If a limit of turns is set, the turn
        has a slot inside the block, and the block gets True, because the turn might have waited for
        its slot. The wait also ends, without a slot, when `is_over` returns True, because no work
        is left then. Raises: TurnSuspended if the worker stops; SessionNotFound if the session does
        not exist; StoreError if the store fails; the errors of `is_over`.
        """
        turn, limited = _Turn(work, store), await self._limited()
        if limited:
            await _look_up(turn)
        if self._is_stopped:
            raise TurnSuspended
        id = slot_id(self._worker, work.id)
        self._turns[id] = turn
        try:
            if limited:
                self._is_changed.set()
                if not await self._granted(turn, is_over):
                    del self._turns[id]
                    self._is_changed.set()
            turn.is_running = True
            yield bool(limited)
        finally:
            if self._turns.pop(id, None) is not None and id in self._stored:
                self._is_changed.set()

    async def _granted(self, turn: _Turn, is_over: Callable[[], Awaitable[bool]]) -> bool:
        """Return True when the turn can run, or False if the turn ends before it gets its slot."""
        changes, timeout_s = turn.store.changes(turn.work.stream), AGAIN_S
        while not (turn.may_run.is_set() or self._is_stopped):
            waits = (
                asyncio.ensure_future(turn.may_run.wait()),
                asyncio.ensure_future(change(changes, turn.store.address)),
            )
            try:
                done, _ = await asyncio.wait(
                    waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                for each in waits:
                    each.cancel()
            for each in done:
                each.result()
            timeout_s = OVER_S
            if waits[0] not in done and await is_over():
                return False
        if self._is_stopped:
            raise TurnSuspended
        return True

    def stop(self) -> None:
        """Prevent further turns from beginning, and suspend the turns that wait."""
        self._is_stopped = True
        for turn in self._waiting():
            turn.may_run.set()

    async def keep(self) -> None:
        """Update the slots in the store, and request slots for waiting turns, until cancelled."""
        while True:
            is_waiting = any(not turn.may_run.is_set() for turn in self._waiting())
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S if is_waiting else RENEW_S):
                    await self._is_changed.wait()
            self._is_changed.clear()
            try:
                await self._sync()
            except Exception:  # noqa: BLE001 - the next pass is due whatever failed in this one
                _log.warning("slots could not be asked for", exc_info=True)
                await asyncio.sleep(FAILED_S)
                self._is_changed.set()

    def _waiting(self) -> list[_Turn]:
        return [turn for turn in self._turns.values() if not turn.is_running]

    async def _sync(self) -> None:
        """Store the slots of this worker, and let turns run if the store granted their slots."""
        limited = await self._limited()
        for turn in list(self._turns.values()):
            if limited and not turn.subjects:
                try:
                    await _look_up(turn)
                except StoreUnavailable:
                    raise
                except PerdureError as error:  # the session was removed, and its turn ends
                    _log.info("session %s: %s", turn.work.stream, error)
        free = [turn for turn in self._turns.values() if limited.isdisjoint(turn.subjects)]
        slots = [
            Slot(id, turn.work.namespace, turn.subjects, self._runs(turn, limited), turn.rank)
            for id, turn in self._turns.items()
            if limited and turn.subjects
        ]
        if slots or self._stored:
            self._stored |= frozenset(slot.id for slot in slots)
            granted = await self._limits.sync_slots(self._worker, slots)
            self._stored = frozenset(slot.id for slot in slots)
            for id in granted & self._turns.keys():
                self._turns[id].may_run.set()
        for turn in free:
            turn.may_run.set()

    def _runs(self, turn: _Turn, limited: frozenset[str]) -> bool:
        """Whether the turn runs or is about to run; after `stop`, no turn is about to run."""
        is_about_to = turn.may_run.is_set() or limited.isdisjoint(turn.subjects)
        return turn.is_running or (is_about_to and not self._is_stopped)

    async def _limited(self) -> frozenset[str]:
        found = await self._limits.limits()
        return frozenset(each.subject for each in found if each.turns is not None)


async def _look_up(turn: _Turn) -> None:
    """Read the subjects of `turn`, and the rank of its priority, from the log."""
    store, stream = turn.store, turn.work.stream
    state, model = await store.state(stream), None
    if state.header.kind != "flow":  # its roles have models of their own
        model = await model_of(store, stream, await store.context_window(stream, state.leaf, 1))
    subjects = subjects_of(turn.work.namespace, model)
    turn.rank = RANKS[await priority_of(store, turn.work)]
    turn.subjects = subjects


class Pace:
    """Delays the model requests of one worker until the limits permit them, in order of arrival.

    If several requests with the same subjects (namespace, model, provider) wait, only the first of
    them asks the store for permission.
    """

    def __init__(self, limits: LimitService) -> None:
        self._limits = limits
        self._lines: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()

    async def permitted(self, subjects: tuple[str, ...]) -> None:
        """Wait until the limits permit a request.

        While the store is unavailable, the request waits.
        """
        if not await self._is_limited(subjects):
            return
        line = self._lines.setdefault(subjects, asyncio.Lock())
        async with line:
            while await self._is_limited(subjects):
                wait_s = await self._wait_s(subjects)
                if wait_s <= 0:
                    return
                await asyncio.sleep(min(wait_s, AGAIN_S))

    async def _wait_s(self, subjects: Sequence[str]) -> float:
        try:
            return await self._limits.permit_request(subjects)
        except StoreUnavailable as error:
            _log.info("a request to a model waits: %s", error)
            return FAILED_S

    async def _is_limited(self, subjects: Sequence[str]) -> bool:
        try:
            limits = await self._limits.limits()
        except StoreUnavailable:
            return True  # `_wait_s` says so, and waits
        return any(each.per_minute is not None and each.subject in subjects for each in limits)


class PacedModels:
    """A model client that sends requests only at the rate that the cluster's limits permit."""

    def __init__(self, models: ModelClient, store: SessionStore, pace: Pace) -> None:
        self._models = models
        self._namespace = store.namespace
        self._pace = pace

    def info(self, model: str) -> ModelInfo:
        """Return the properties of `model` that the wrapped client knows."""
        return self._models.info(model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Wait until the limits permit the request, then call the model."""
        await self._pace.permitted(subjects_of(self._namespace, request.model))
        async with streaming(self._models, request) as deltas:
            async for delta in deltas:
                yield delta


def paced(store: SessionStore) -> Callable[[ModelClient], ModelClient]:
    """Return a function that wraps a model client so that it obeys the cluster's limits."""
    pace = Pace(cluster_of(store).limits)
    return lambda models: PacedModels(models, store, pace)
