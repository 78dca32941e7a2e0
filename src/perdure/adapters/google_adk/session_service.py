"""The ADK session service, implemented with a perdure store."""

from __future__ import annotations

from typing import Any

from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

import perdure
from perdure.adapters.google_adk.events import fields_of
from perdure.adapters.google_adk.stored_sessions import StoredSessions
from perdure.adapters.store_loop import StoreLoop


class PerdureSessionService(BaseSessionService):
    """Stores the sessions of the ADK in a store of perdure.

    `store` is a `perdure.Store`, which works only on the event loop that opened it, or a
    `perdure.blocking.Store`, which works on any event loop and thread. Each ADK session is a
    session of the store, with an entry for each event; the user of the app is the subject of the
    session.

    An event can be appended only to a session that is up to date. If any process has appended to
    the session since it was read, ``StaleSessionError`` is raised. A rewind moves the removed
    events to an abandoned branch.
    """

    def __init__(self, store: perdure.Store | perdure.blocking.Store) -> None:
        self._loop = StoreLoop(store)
        self._sessions = StoredSessions(self._loop.store)

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session.

        Durable: the session is stored with all of its state when this call returns.
        """
        return await self._loop.finish(
            self._sessions.create(app_name, user_id, state or {}, session_id)
        )

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with the events that `config` selects, or None."""
        return await self._loop.call(self._sessions.get(app_name, user_id, session_id, config))

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """List the sessions of a user, or of all users, without their events."""
        found = await self._loop.call(self._sessions.list(app_name, user_id))
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Erase a session permanently. The id of the erased session can be used again."""
        await self._loop.finish(self._sessions.delete(app_name, user_id, session_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user; the keys do not have the prefix ``user:``."""
        state = self._sessions.user_state(app_name, user_id)
        return dict(await self._loop.call(state.values()))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event, and store its state changes in the same commit.

        Durable: the change is stored when this call returns. Raises: StaleSessionError;
        SessionNotFoundError.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        await self._loop.finish(self._sessions.append(session, fields_of(event)))
        return self._commit_event_to_session(session, event)

    async def add_copy(self, session: Session) -> int:
        """Copy a session of another service, with its state; return the number of new events.

        Events whose ids the session already has are not added again.
        Durable: the change is stored when this call returns.
        """
        return await self._loop.finish(self._sessions.add_copy(session))
