"""The ADK memory service, implemented with a perdure store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.adk.events import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session

import perdure
from perdure.adapters.google_adk.stored_memory import StoredMemory, event_from
from perdure.adapters.store_loop import StoreLoop

_PROGRAM = "__program__"
"""Session id for memories that a program wrote, and for events without a session."""


class PerdureMemoryService(BaseMemoryService):
    """The memory of a user's sessions, searched with `Store.memory`.

    `store` is a `perdure.Store`, which works only on the event loop that opened it, or a
    `perdure.blocking.Store`, which works on any event loop and thread. A search finds the events
    that were added, and needs no model. If `PerdureSessionService` stores a session in the same
    store, adding the session does not copy its events.
    """

    def __init__(self, store: perdure.Store | perdure.blocking.Store) -> None:
        self._loop = StoreLoop(store)

    async def add_session_to_memory(self, session: Session) -> None:
        """Add the events of a session, up to the newest event, to the memory.

        Durable: the change is stored when this call returns.
        """
        memory = self._memory(session.app_name, session.user_id)
        await self._loop.finish(memory.add_session(session.id, session.events))

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add a copy of each event that is not in the memory yet; add deleted events again.

        Durable: the change is stored when this call returns.
        """
        del custom_metadata  # a hint for services that ask a model
        memory = self._memory(app_name, user_id)
        await self._loop.finish(memory.add_events(session_id or _PROGRAM, events))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add memories that a program wrote.

        Durable: the change is stored when this call returns.
        """
        del custom_metadata
        events = [event_from(memory) for memory in memories]
        memory = self._memory(app_name, user_id)
        await self._loop.finish(memory.add_events(_PROGRAM, events))

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """Return at most ten memories about `query`, best first."""
        found = await self._loop.call(self._memory(app_name, user_id).search(query))
        return SearchMemoryResponse(memories=found)

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Delete a memory by the id that a search returned.

        `add_session_to_memory` does not restore a deleted memory. `add_events_to_memory` restores
        the memory if it gets the deleted event.
        """
        if memory_id:
            await self._loop.finish(self._memory(app_name, user_id).delete(memory_id))

    def _memory(self, app_name: str, user_id: str) -> StoredMemory:
        return StoredMemory(self._loop.store, app_name, user_id)
