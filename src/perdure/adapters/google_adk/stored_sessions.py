"""The sessions of the ADK in a store: creates, opens, lists and deletes them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.platform import time as adk_time
from google.adk.platform import uuid as adk_uuid
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import GetSessionConfig

import perdure
from perdure.adapters.google_adk import stored_ids
from perdure.adapters.google_adk.events import Fields, fields_of
from perdure.adapters.google_adk.markers import mark, marker_at
from perdure.adapters.google_adk.scoped_state import ScopedState
from perdure.adapters.google_adk.state import (
    CREATED_AT,
    INITIAL_STATE,
    Metadata,
    StateFold,
    changes_of,
    created_at,
    initial_changes,
    jsonable,
    merged,
)
from perdure.adapters.google_adk.stored_session import StoredSession
from perdure.adapters.stored_json import json_text
from perdure.errors import Erased, HeadConflict, SessionExists, SessionNotFound, WrongArgument

CREATED: Final = "adk.created"
"""`Note.note_type` of a note that records the commit of a new session's user and app state."""

BY: Final = "perdure.adapters.google_adk"

_CACHED: Final = 256
"""Maximum number of cached sessions, and of cached states of users and apps."""


class StoredSessions:
    """The methods of a session service, which run on the event loop of `store`."""

    def __init__(self, store: perdure.Store) -> None:
        self.store = store
        self._sessions: dict[str, StoredSession] = {}
        self._scoped: dict[str, ScopedState] = {}

    async def create(
        self, app_name: str, user_id: str, state: Fields, session_id: str | None
    ) -> Session:
        """Create a session. Raises: AlreadyExistsError."""
        named = (session_id or "").strip() or adk_uuid.new_uuid()
        metadata: dict[str, object] = {
            "framework": "google-adk",
            "app_name": app_name,
            "user_id": user_id,
            "session_id": named,
            CREATED_AT: adk_time.get_time(),
        }
        if given := jsonable(state):
            metadata[INITIAL_STATE] = json_text(given)
        id = stored_ids.stored_id(stored_ids.SESSION, app_name, user_id, named)
        try:
            session = await self.store.create(
                id=id,
                metadata=metadata,
                subject=stored_ids.subject_of(app_name, user_id),
                reuse_erased=True,
            )
        except SessionExists as error:
            reason = "was deleted, and a fork shows its events" if error.is_erased else "exists"
            raise AlreadyExistsError(f"Session with id {named} already {reason}.") from error
        stored = StoredSession(self.store, session)
        self._keep(self._sessions, id, stored)
        await self._settle(stored)
        return await self._session(stored, await stored.fold(stored.session.head))

    async def get(
        self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None
    ) -> Session | None:
        """Return a session with its events, or None."""
        config = config or GetSessionConfig()
        while True:
            stored = await self.current(app_name, user_id, session_id.strip())
            if stored is None:
                return None
            await self._settle(stored)
            fold = await stored.fold(stored.session.head)
            events = await stored.events(fold, config.num_recent_events, config.after_timestamp)
            if events is not None:  # else another process appended meanwhile
                session = await self._session(stored, fold)
                session.events = events
                return session

    async def list(self, app_name: str, user_id: str | None) -> list[Session]:
        """Return the sessions of a user, or of all users, without their events."""
        names = (app_name,) if user_id is None else (app_name, user_id)
        prefix = stored_ids.id_prefix(stored_ids.SESSION, *names)
        read = [
            (_described(info.id, info.metadata or {}), fold)
            for info in await self.store.recent(None, scope="all", id_prefix=prefix)
            if info.status != "erased" and (fold := await self._listed(info)) is not None
        ]
        owners = dict.fromkeys(_names(metadata)[:2] for metadata, _ in read)
        shared = {owner: await self._shared(*owner) for owner in owners}  # after all are settled
        found = [_made(each, fold, *shared[_names(each)[:2]]) for each, fold in read]
        found.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return found

    async def _listed(self, info: perdure.SessionInfo) -> StateFold | None:
        """Return the state of the session `info`; None if the session was deleted meanwhile.

        If a session has no entries and was created without user and app state, it is not opened,
        because its header contains its whole state.
        """
        metadata = info.metadata or {}
        if not info.entries:
            initial = initial_changes(metadata)
            if not (initial.user or initial.app):
                return StateFold(-1, initial.session, created_at(metadata))
        stored, head = self._sessions.get(info.id), info.entries - 1
        try:
            if stored is None or not stored.is_of(info):
                stored = await self._open(info.id)
                head = stored.session.head
            if head < 0:
                await self._settle(stored)
                head = stored.session.head
        except (Erased, SessionNotFound):
            return None
        return await stored.fold(head)

    async def delete(self, app_name: str, user_id: str, session_id: str) -> None:
        """Erase a session; forks of the session do not change."""
        stored = await self.current(app_name, user_id, session_id.strip())
        if stored is None:
            return
        del self._sessions[stored.session.id]
        with suppress(Erased, SessionNotFound):
            await stored.session.erase(forks="keep", by=BY)

    async def append(self, session: Session, fields: Fields) -> None:
        """Append an event to `session`. Raises: SessionNotFoundError; StaleSessionError."""
        app_name, user_id = session.app_name, session.user_id
        id = stored_ids.stored_id(stored_ids.SESSION, app_name, user_id, session.id)
        user, app = self.user_state(app_name, user_id), self.app_state(app_name)
        try:
            stored = self._sessions.get(id) or await self._open(id)
            await stored.append(session, fields, user, app)
        except (Erased, SessionNotFound) as error:
            self._sessions.pop(id, None)
            raise SessionNotFoundError(f"Session {session.id} not found.") from error

    async def add_copy(self, theirs: Session) -> int:
        """Copy the session `theirs` of another service; return the number of new events."""
        names = (theirs.app_name, theirs.user_id, theirs.id)
        stored = await self.current(*names)
        is_new = stored is None
        if stored is None:
            await self.create(*names[:2], {}, theirs.id)
            stored = self._sessions[stored_ids.stored_id(stored_ids.SESSION, *names)]
        ours = await self.get(*names, None)
        known = {event.id for event in ours.events} if ours is not None else set[str]()
        new = [fields_of(event) for event in theirs.events if event.id not in known]
        if not new and not is_new:
            return 0
        changes = changes_of(jsonable(theirs.state))
        await stored.append_copies(new, changes.session, theirs.last_update_time)
        user, app = self.user_state(*names[:2]), self.app_state(names[0])
        for state, wanted in ((user, changes.user), (app, changes.app)):
            values = await state.values()
            changed = {k: v for k, v in wanted.items() if k not in values or values[k] != v}
            if changed:
                await self.store.commit([await state.write(changed)])
        return len(new)

    def user_state(self, app_name: str, user_id: str) -> ScopedState:
        """Return the state of a user."""
        id = stored_ids.stored_id(stored_ids.USER_STATE, app_name, user_id)
        subject = stored_ids.subject_of(app_name, user_id)
        return self._state(id, {"app_name": app_name, "user_id": user_id}, subject)

    def app_state(self, app_name: str) -> ScopedState:
        """Return the state of an app."""
        id = stored_ids.stored_id(stored_ids.APP_STATE, app_name)
        return self._state(id, {"app_name": app_name}, None)

    async def current(self, app_name: str, user_id: str, session_id: str) -> StoredSession | None:
        """Return a session, updated from the store; None if it is deleted or does not exist."""
        try:
            return await self._open(
                stored_ids.stored_id(stored_ids.SESSION, app_name, user_id, session_id)
            )
        except (Erased, SessionNotFound):
            return None

    async def _open(self, id: str) -> StoredSession:
        """Return a session, updated from the store. Raises: Erased; SessionNotFound."""
        try:
            session = await self.store.open(id)
        except (Erased, SessionNotFound):
            self._sessions.pop(id, None)
            raise
        _described(id, session.metadata)
        if (stored := self._sessions.get(id)) is None:
            stored = StoredSession(self.store, session)
            self._keep(self._sessions, id, stored)
        stored.reopen(session)
        return stored

    async def _settle(self, stored: StoredSession) -> None:
        """Commit the user and app state that was given when a session was created.

        The metadata of the session contains the state, so if the process is killed before the
        commit, a later call commits the state from the metadata.
        """
        changes = stored.initial
        if stored.session.head >= 0 or not (changes.user or changes.app):
            return
        app_name, user_id, _ = _names(stored.session.metadata)
        user, app = self.user_state(app_name, user_id), self.app_state(app_name)
        scoped = [(user, changes.user), (app, changes.app)]
        writes = [await each.write(change) for each, change in scoped if change]
        options: perdure.AppendOptions = {"expected_head": -1}
        try:
            await self.store.commit([(stored.session, [perdure.Note(CREATED)], options), *writes])
        except HeadConflict:  # another process did it
            await self._open(stored.session.id)

    async def _session(self, stored: StoredSession, fold: StateFold) -> Session:
        metadata = stored.session.metadata
        app_name, user_id, _ = _names(metadata)
        return _made(metadata, fold, *await self._shared(app_name, user_id))

    async def _shared(self, app_name: str, user_id: str) -> tuple[Fields, Fields]:
        """Return the state of a user and of the app."""
        user, app = self.user_state(app_name, user_id), self.app_state(app_name)
        return await user.values(), await app.values()

    def _state(self, id: str, metadata: dict[str, object], subject: str | None) -> ScopedState:
        state = self._scoped.get(id)
        if state is None:
            described = {"framework": "google-adk", **metadata}
            state = ScopedState(self.store, id, described, subject)
            self._keep(self._scoped, id, state)
        return state

    @staticmethod
    def _keep(cached: dict[str, Any], id: str, made: object) -> None:
        cached[id] = made
        while len(cached) > _CACHED:
            del cached[next(iter(cached))]


def _made(metadata: Metadata, fold: StateFold, user: Fields, app: Fields) -> Session:
    app_name, user_id, session_id = _names(metadata)
    session = Session(
        id=session_id,
        app_name=app_name,
        user_id=user_id,
        state=merged(fold.values, user, app),
        last_update_time=fold.updated_at,
    )
    mark(session, marker_at(created_at(metadata), fold.head))
    return session


def _described(id: str, metadata: Metadata) -> Metadata:
    """Return `metadata`, the metadata of the session `id`, after checking it.

    Raises: WrongArgument if the session was not created for the ADK.
    """
    if not {"app_name", "user_id", "session_id"} <= metadata.keys():
        raise WrongArgument(
            f"session {id} is no session of the ADK: use another session_id",
            argument="session_id",
        )
    return metadata


def _names(metadata: Metadata) -> tuple[str, str, str]:
    """Return the app, the user and the id of an ADK session."""
    return str(metadata["app_name"]), str(metadata["user_id"]), str(metadata["session_id"])
