"""Turns that wait for a person use no slot of a worker; they are queued again to continue.

The worker that stopped a waiting turn watches the turn's session. If the worker that watches a
session dies, the periodic scan of another worker (`recovery.py`) finds the turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec

from perdure.client.agents.delegation.questions import awaited_sessions
from perdure.client.cluster.runner import priority_of, queue_open_turn, queue_work
from perdure.errors import SessionNotFound, StoreError
from perdure.session.clock import Clock
from perdure.session.ids import StreamId
from perdure.stores.access.cancellation import cancel_all
from perdure.stores.cluster.protocol import Work
from perdure.stores.session_store import SessionStore

_log = logging.getLogger(__name__)


class ParkedTurns:
    """The parked turns of one namespace that this worker watches."""

    def __init__(self, store: SessionStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._watching: dict[tuple[StreamId, Work | None], asyncio.Task[None]] = {}

    def park(self, stream: StreamId, behind: Work | None) -> None:
        """Queue the open turn of `stream` when its questions are answered, withdrawn or expired.

        `behind` is the work of a later request of the session; this method queues it after the
        turn.
        """
        self._watch(stream, None)
        if behind is not None:
            self._watch(stream, behind)

    async def aclose(self) -> None:
        """Stop watching all parked turns."""
        await cancel_all(self._watching.values())

    def _watch(self, stream: StreamId, behind: Work | None) -> None:
        key = (stream, behind)
        if key not in self._watching:
            task = self._watching[key] = asyncio.ensure_future(self._queued_again(stream, behind))
            task.add_done_callback(lambda _: self._watching.pop(key, None))

    async def _queued_again(self, stream: StreamId, behind: Work | None) -> None:
        own = self._store.changes(stream)
        try:
            while asking := await self._waits_for(stream, behind):
                others = [self._store.changes(each) for each in asking - {stream}]
                if others and await self._waits_for(stream, behind) != asking:
                    continue
                await first_change([own, *others])
            if behind is None:
                await queue_open_turn(self._store, stream)
            else:
                again = msgspec.structs.replace(behind, attempt=behind.attempt + 1)
                priority = await priority_of(self._store, again)
                await queue_work(self._store, again, priority=priority)
        except SessionNotFound:
            pass
        except StoreError as error:  # the sweep finds the turn
            _log.info("session %s: %s", stream, error)

    async def _waits_for(self, stream: StreamId, behind: Work | None) -> set[StreamId]:
        """Return the sessions to watch for changes; none if the turn no longer waits."""
        if behind is None:
            return await awaited_sessions(self._store, stream, self._clock.now_ms())
        return set() if (await self._store.state(stream)).open_turn is None else {stream}


async def first_change(sources: list[AsyncIterator[None]]) -> None:
    """Wait until one of `sources` has changed or was closed."""
    waits = [asyncio.ensure_future(anext(each)) for each in sources]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(waits)
