"""Queue requests and turns that are in the log and can continue, but are in no queue.

If work waits for a version of perdure that no worker runs, the work is reassigned to the version of
this worker.

Each worker repeats the queueing and the reassignment every few seconds. Queueing work twice is
harmless, because the log shows which work is finished.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from perdure.client.agents.delegation.questions import awaited_sessions
from perdure.client.agents.runtime_services import Host
from perdure.client.cluster.runner import cluster_of, queue_open_turn, queue_work
from perdure.client.reads import open_questions
from perdure.engine.turns.requests import closing_entry, refuse_request
from perdure.errors import LeaseHeld, LeaseLost, SessionNotFound
from perdure.session.codec import body_of
from perdure.session.ids import StreamId
from perdure.session.ledger import Priority, TurnRequested
from perdure.session.notes import Question
from perdure.stores.cluster.protocol import ACTIVE, Work

MAX_ATTEMPTS = 5
"""If a request's work ended this number of times without an answer, it is not queued again."""

_TRIED = (
    f"workers tried {MAX_ATTEMPTS} times to begin this turn, and each time the work ended without "
    "an answer; look at the logs of the workers, then send the message again"
)

GIVEN_UP = ("work_failed", _TRIED)
"""The error code and text for a request whose attempts all ended without an answer."""


class Recovery:
    """Queues the work of one namespace that is in no queue."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._store = host.store.backend
        self._cluster = cluster_of(self._store)

    async def run(self) -> None:
        """Queue all work that is in no queue. Raises: StoreError."""
        await self._cluster.adopt()
        await self._requests()
        await self._open_turns()

    async def _requests(self) -> None:
        """Queue requests whose program died before it queued them, or whose work failed."""
        requests = await self._store.open_of_all(TurnRequested.kind)
        works = {Work(self._store.namespace, each.stream, each.seq): each for each in requests}
        states = await self._cluster.states_of(list(works))
        for work, entry in works.items():
            state = states.get(work.id)
            with suppress(SessionNotFound):
                body = body_of(entry)
                if not isinstance(body, TurnRequested):
                    continue
                if state is None:
                    due_at, priority = body.due_at, body.priority
                    await queue_work(self._store, work, due_at=due_at, priority=priority)
                elif state not in ACTIVE:
                    await self._again(work, body.priority)

    async def _again(self, work: Work, priority: Priority) -> None:
        """Queue the next attempt, unless the session has an open turn that comes first."""
        if (await self._store.state(work.stream)).open_turn is not None:
            return
        assert work.request is not None
        if await closing_entry(self._store, work.stream, work.request) is not None:
            return
        attempts = [msgspec.structs.replace(work, attempt=number) for number in range(MAX_ATTEMPTS)]
        states = await self._cluster.states_of(attempts)
        if not ACTIVE.isdisjoint(states.values()):
            return
        following = next((each for each in attempts if each.id not in states), None)
        if following is not None:
            await queue_work(self._store, following, priority=priority)
        else:
            with suppress(LeaseHeld, LeaseLost):  # the next sweep tries again
                await refuse_request(self._host.claim(work.stream), work.request, *GIVEN_UP)

    async def _open_turns(self) -> None:
        """Queue each worker turn that no process runs and that does not wait for a person."""
        now = self._host.store.outside.clock.now_ms()
        waiting = {
            entry.stream
            for entry in await self._store.open_of_all(Question.kind)
            if open_questions((entry,), now)
        }
        found = [
            turn.info.id
            for turn in await self._store.open_turns()
            if turn.holder is None and turn.info.id not in waiting
        ]
        busy = await self._cluster.busy(found) if found else set[StreamId]()
        for stream in found:
            with suppress(SessionNotFound):
                if stream not in busy and not await awaited_sessions(self._store, stream, now):
                    await queue_open_turn(self._store, stream)
