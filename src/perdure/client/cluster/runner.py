"""`DbosRunner`: turns are queued on the store's PostgreSQL, and workers run them.

A request is an entry of the session, and is committed before it is queued. No request is lost, even
if the queue is lost: if only the log contains a request, workers queue it again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar

import msgspec

from perdure.client.agents.agent import Agent
from perdure.client.agents.runners import NewTurn
from perdure.client.cluster.absent_workers import AbsentWorkers
from perdure.client.cluster.requirements import (
    flow_requirement,
    needed_agent,
    queue_name,
    requirement_for,
)
from perdure.client.requests.due_turn import store_request
from perdure.client.requests.followed_turn import FollowedTurn
from perdure.engine.flows.requests import store_flow_request
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.session_turns import SessionTurns, Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import ConfigError, InvalidTransition
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.flows.kinds import FlowRequested
from perdure.session.ids import StreamId, entry_place
from perdure.session.ledger import Priority, TurnRequested
from perdure.stores.cluster.protocol import ClusterService, Order, SharedStore, Work
from perdure.stores.protocol import LogReader
from perdure.stores.session_store import SessionStore

_PLACES: ContextVar[list[str | None] | None] = ContextVar("places", default=None)
"""Key of the place that `DbosRunner.room` reserved for a turn; empty after a turn has used it."""


class DbosRunner:
    """Queues turns for workers, and follows them in the log."""

    def __init__(self) -> None:
        self._absent = AbsentWorkers()

    def require(self, store: SessionStore) -> None:
        try:
            cluster_of(store)
        except ConfigError as error:
            raise ConfigError(
                f'{error}, or run turns here with Runtime(runner="embedded")'
            ) from None

    async def new_turn(self, turns: SessionTurns, new: NewTurn, signals: Signals) -> TurnState:
        environment = turns.environment
        store, stream = environment.store, environment.stream
        async with _place(store, new.due_at) as place:
            if new.key is None:
                await new.record()
            body = TurnRequested(new.message, new.due_at, new.priority)
            request = await store_request(environment, body, new.contents, new.key, place)
            signals.is_stored()
            await new.record_keyed(environment, request)
            followed = FollowedTurn(environment, signals, request=request)
            work = Work(store.namespace, stream, request)
            await queue_work(store, work, due_at=new.due_at, priority=new.priority)
        limits = cluster_of(store).limits
        is_due = new.due_at is None
        async with self._absent.noticed(limits, signals.begun) if is_due else nullcontext():
            return await _followed(environment, signals, followed)

    @asynccontextmanager
    async def room(self, store: SessionStore) -> AsyncGenerator[None]:
        async with cluster_of(store).limits.room() as key:
            token = _PLACES.set([key])
            try:
                yield
            finally:
                _PLACES.reset(token)

    async def lost_turn(
        self, turns: SessionTurns, signals: Signals, turn: int | None = None
    ) -> TurnState:
        environment = turns.environment
        store, stream = environment.store, environment.stream
        cluster_of(store)
        state = await store.state(stream)
        if state.open_turn is None:
            if turn is not None:
                return await FollowedTurn(environment, signals, turn=turn).ended()
            raise InvalidTransition("idle", "recover")
        followed = FollowedTurn(environment, signals, turn=state.open_turn)
        if not await queue_open_turn(store, stream):
            work = Work(store.namespace, stream, None, state.open_turn, state.epoch)
            await queue_work(store, work, priority="normal")
        return await _followed(environment, signals, followed)

    async def request_flow(
        self,
        store: SessionStore,
        flow: StreamId,
        wanted: FlowRequested,
        agents: Iterable[Agent],
        at: int,
    ) -> int | None:
        cluster_of(store)
        needed = (*wanted.agents, *map(needed_agent, agents))
        needed = tuple(sorted(needed, key=lambda each: each.agent))
        wanted = msgspec.structs.replace(wanted, agents=needed)
        request = await store_flow_request(store, flow, wanted, at)
        await queue_flow(store, flow, request, wanted, at)
        return request


def cluster_of(store: SessionStore) -> ClusterService:
    """Return the cluster service of `store`.

    Raises: ConfigError if the store has no cluster service.
    """
    if not isinstance(store, SharedStore):
        raise ConfigError(
            f"workers share a store on PostgreSQL, and {store.address} is none: open one"
        )
    return store.cluster


@asynccontextmanager
async def _place(store: SessionStore, due_at: int | None) -> AsyncGenerator[str | None]:
    """Yield the key with which the commit of a request takes a place in the queue.

    For a scheduled message the key is None, because the message needs no worker yet.
    """
    cluster = cluster_of(store)
    if due_at is not None:
        yield None
    elif places := _PLACES.get():
        yield places.pop()
    else:
        async with cluster.limits.room() as key:
            yield key


async def queue_work(
    store: SessionStore, work: Work, *, due_at: int | None = None, priority: Priority
) -> bool:
    """Queue `work` for the workers that can do it.

    Shape: the result is False if no worker has prepared the database yet; the work then waits in
    the log.
    """
    required = await requirement_for(store, StreamId(work.stream))
    queue = queue_name(work.namespace, required)
    order = Order(work, queue, required.encoded(), due_at, priority)
    return await cluster_of(store).enqueue(order)


async def unqueued_flows(store: SessionStore) -> list[Entry]:
    """Return the open requests of flows that are in no queue. Raises: StoreError."""
    requests = await store.open_of_all(FlowRequested.kind)
    if not requests:
        return []
    busy = await cluster_of(store).busy([each.stream for each in requests])
    return [each for each in requests if each.stream not in busy]


async def queue_flow(
    store: SessionStore, flow: StreamId, request: int, wanted: FlowRequested, at: int
) -> bool:
    """Queue a run of the flow requested at seq `request` for the workers that can do it.

    Does nothing if a run is queued or active: the worker of that run queues the flow again if
    necessary. Each run is separate work, identified by the time `at`, in Unix milliseconds.
    Shape: the result is False if no worker has prepared the database yet.
    """
    if await cluster_of(store).busy([flow]):
        return True
    required = flow_requirement(wanted)
    work = Work(store.namespace, flow, request, attempt=at)
    queue = queue_name(store.namespace, required)
    return await cluster_of(store).enqueue(Order(work, queue, required.encoded()))


async def queue_open_turn(store: SessionStore, stream: StreamId) -> bool:
    """Queue the open turn of `stream` if workers run it; return whether it was queued.

    Raises: SessionNotFound.
    """
    state = await store.state(stream)
    if state.open_turn is None:
        return False
    (begun,) = await store.entries(stream, after=state.open_turn - 1, limit=1)
    if begun.about is None:
        return False
    work = Work(store.namespace, stream, None, state.open_turn, state.epoch)
    await queue_work(store, work, priority=await priority_of(store, work))
    return True


async def priority_of(log: LogReader, work: Work) -> Priority:
    """Return the priority of the request of `work`.

    If `work` is an open turn, its request is the one that the turn answers.
    """
    seq = work.request
    if seq is None:
        assert work.turn is not None
        begun = await log.entries(work.stream, after=work.turn - 1, limit=1)
        if not begun or begun[0].about is None:
            return "normal"
        seq = entry_place(begun[0].about)[1]
    found = await log.entries(work.stream, after=seq - 1, limit=1)
    body = body_of(found[0]) if found and not found[0].is_erased else None
    return body.priority if isinstance(body, TurnRequested) else "normal"


async def _followed(
    environment: Environment, signals: Signals, followed: FollowedTurn
) -> TurnState:
    """Return the state of the ended turn; if this process requests a stop, tell the worker once."""
    if not signals.stopping.is_asked:
        state = await signals.stopping.uncut(followed.ended())
        if state is not None:
            return state
    await followed.stop()
    if followed.is_asking:  # perhaps no worker runs it
        await queue_open_turn(environment.store, environment.stream)
    return await followed.ended()
