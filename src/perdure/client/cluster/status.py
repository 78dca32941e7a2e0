"""The state of the cluster: the queued work, and the requests that are only in the log so far."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from perdure.client.cluster.requirements import (
    FlowRequirement,
    Requirement,
    flow_requirement,
    queue_name,
    requirement_for,
)
from perdure.client.cluster.runner import cluster_of, unqueued_flows
from perdure.client.flows.waits import is_ready
from perdure.engine.flows.journal import Journal
from perdure.errors import Erased, SessionNotFound
from perdure.session.clock import Clock
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.flows.kinds import FlowRequested
from perdure.session.ids import StreamId
from perdure.session.ledger import TurnRequested
from perdure.stores.cluster.protocol import ClusterStatus, QueueInfo, Work, WorkerInfo
from perdure.stores.session_store import SessionStore


async def cluster_status(store: SessionStore, clock: Clock) -> ClusterStatus:
    """Return the workers of the database of `store`, and the queues of its namespace.

    Requests that are in no queue yet are counted as waiting, or as scheduled if they are not due.
    Requested flows that can continue are counted in the same way as requests.
    Raises: ConfigError if several machines cannot share the store.
    """
    cluster = cluster_of(store)
    requests = await store.open_of_all(TurnRequested.kind)
    by_work = {Work(store.namespace, each.stream, each.seq): each for each in requests}
    queued = await cluster.states_of(list(by_work))
    found = await cluster.status()
    only_in_log = [entry for work, entry in by_work.items() if work.id not in queued]
    queues = {each.queue: each for each in found.queues}
    required: dict[StreamId, Requirement] = {}
    waiting: list[tuple[Entry, Requirement | FlowRequirement]] = []
    for entry in only_in_log:
        with suppress(SessionNotFound):  # erased meanwhile
            if entry.stream not in required:
                required[entry.stream] = await requirement_for(store, entry.stream)
            waiting.append((entry, required[entry.stream]))
    waiting += await _flows_only_in_log(store, clock)
    for entry, wanted in waiting:
        queue = queue_name(store.namespace, wanted)
        info = queues.get(queue) or _empty(queue, wanted.agent, found.workers)
        queues[queue] = _with(info, entry, clock.now_ms())
    return msgspec.structs.replace(found, queues=tuple(queues.values()))


async def _flows_only_in_log(
    store: SessionStore, clock: Clock
) -> list[tuple[Entry, FlowRequirement]]:
    """Return the requested flows that can continue and are in no queue, with their requirements."""
    found: list[tuple[Entry, FlowRequirement]] = []
    for entry in await unqueued_flows(store):
        body = body_of(entry)
        if not isinstance(body, FlowRequested):
            continue
        with suppress(SessionNotFound, Erased):
            state = await Journal(store, entry.stream, clock).state()
            if await is_ready(store, state, clock.now_ms()):
                found.append((entry, flow_requirement(body)))
    return found


def _with(info: QueueInfo, request: Entry, now: int) -> QueueInfo:
    body = body_of(request)
    due_at = body.due_at if isinstance(body, TurnRequested) else None
    if due_at is not None and due_at > now:
        return msgspec.structs.replace(info, scheduled=info.scheduled + 1)
    waited_s = max(0, now - (due_at or request.at)) / 1000
    oldest_s = max(waited_s, info.oldest_s or 0.0)
    return msgspec.structs.replace(info, waiting=info.waiting + 1, oldest_s=oldest_s)


def _empty(queue: str, agent: str, workers: Iterable[WorkerInfo]) -> QueueInfo:
    return QueueInfo(
        queue=queue,
        agent=agent,
        waiting=0,
        scheduled=0,
        running=0,
        oldest_s=None,
        served_by=tuple(
            each.id for each in workers if each.state == "alive" and queue in each.queues
        ),
    )
