"""The memory of a user of an app: which sessions and events were added to it.

If a session of the same store is added, its events are not copied: a note records the newest entry
that was added. Events of other stores, and memories that a program wrote, become messages in a
separate session, which belongs to the memory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry

import perdure
from perdure.adapters.google_adk import stored_ids
from perdure.adapters.google_adk.events import CUSTOM_TYPE, Fields, entry_of, fields_of
from perdure.adapters.google_adk.stored_session import StoredSession
from perdure.adapters.open_sessions import open_or_create, open_session
from perdure.adapters.stored_json import opaque_entry
from perdure.errors import EntryNotFound, Erased, SessionHasForks, SessionNotFound, WrongArgument

_logger = logging.getLogger(__name__)

ADDED: Final = "adk.memory.session"
"""`Note.note_type` of a note that records up to which entry a session was added."""
DELETED: Final = "adk.memory.deleted"
"""`Note.note_type` of a note that hides an event from searches."""
RESTORED: Final = "adk.memory.restored"
"""`Note.note_type` of a note that records that a deleted event was added again."""

BY: Final = "perdure.adapters.google_adk"

FOUND: Final = 10
"""Maximum number of memories that a search returns, the same as in the ADK's own services."""

_MORE = 4
"""A search requests this many hits per result, because some hits are events that were not added."""


class _Scope(msgspec.Struct):
    """The scope of a search: the last added entry of each session, and the deleted events.

    `restored` counts how often an event was added again after a deletion.
    """

    until: dict[str, int]
    deleted: set[str]
    restored: dict[str, int]


class StoredMemory:
    """The memory of one user of an app; its methods run on the event loop of `store`."""

    def __init__(self, store: perdure.Store, app_name: str, user_id: str) -> None:
        self._store = store
        self._names = (app_name, user_id)
        self._id = stored_ids.stored_id(stored_ids.MEMORY, app_name, user_id)
        self._subject = stored_ids.subject_of(app_name, user_id)

    async def add_session(self, session_id: str, events: Sequence[Event]) -> None:
        """Add a session of the store, or copies of `events` if the session is not in the store."""
        id = stored_ids.stored_id(stored_ids.SESSION, *self._names, session_id)
        try:
            head = (await self._store.open(id)).head
        except (Erased, SessionNotFound):
            await self.add_events(session_id, events, is_restoring=False)
            return
        note = perdure.Note(ADDED, {"session": id, "until": head})
        await (await self._create()).append_many([note], aliases=[f"session/{id}"])

    async def add_events(
        self, session_id: str, events: Sequence[Event], *, is_restoring: bool = True
    ) -> None:
        """Add copies of new `events`; also add deleted events again if `is_restoring` is True."""
        session = await self._create()
        scope = await self._scope(session)
        for event in events:
            if event.content is None or not event.content.parts:
                continue
            is_deleted = event.id in scope.deleted
            if is_deleted and not is_restoring:
                continue
            times = scope.restored.get(event.id, 0) + is_deleted
            alias = f"event/{event.id}/{session_id}" + (f"/{times}" if times else "")
            if is_deleted:
                scope.deleted.discard(event.id)
                scope.restored[event.id] = times
                await session.append_many([perdure.Note(RESTORED, {"id": event.id})])
            try:
                await session.entry(alias)
            except EntryNotFound:
                await _append_copy(session, event, alias)

    async def search(self, query: str) -> list[MemoryEntry]:
        """Return the memories that match `query`, best first."""
        session = await open_session(self._store, self._id)
        if session is None:
            return []
        scope = await self._scope(session)
        try:
            hits = await self._store.memory.recall(
                query,
                subject=self._subject,
                sessions=list(scope.until),
                limit=FOUND * _MORE,
                kinds=("text",),
            )
        except WrongArgument as error:
            if error.argument == "question":  # without a word to look for
                return []
            raise
        found: dict[str, MemoryEntry] = {}
        for hit in hits:
            entry = await self._store.entry(hit.entry_id)
            until = scope.until.get(hit.session_id)
            if until is None or entry.seq > until or len(found) == FOUND:
                continue
            event = await StoredSession(self._store, session).event(entry)
            if event is not None and event.id not in scope.deleted and event.content is not None:
                found.setdefault(event.id, _memory(event))
        return list(found.values())

    async def delete(self, memory_id: str) -> None:
        """Erase the copies of an event, and exclude the event from later searches."""
        session = await open_session(self._store, self._id)
        if session is None:
            return
        await session.append_many([perdure.Note(DELETED, {"id": memory_id})])
        copies = [
            entry
            for entry in await session.tree_entries()
            if (event := await StoredSession(self._store, session).event(entry)) is not None
            and event.id == memory_id
        ]
        if copies:
            try:
                await session.erase_entries(copies, forks="keep", by=BY)
            except SessionHasForks as error:
                _logger.warning(
                    "memory %s is not found any more, but its content stays: forks (%s) of session "
                    '%s share it; erase it there with forks="erase"',
                    memory_id,
                    ", ".join(error.forks),
                    session.id,
                )

    async def _scope(self, session: perdure.Session) -> _Scope:
        await session.info()
        scope = _Scope({session.id: session.head}, set(), {})
        async for entry in session.notes():
            note = perdure.body_of(entry)
            if not isinstance(note, perdure.Note):
                continue
            if note.note_type == ADDED:
                until = note.data["until"]
                scope.until[str(note.data["session"])] = until if isinstance(until, int) else -1
            elif note.note_type == DELETED:
                scope.deleted.add(str(note.data["id"]))
            elif note.note_type == RESTORED:
                id = str(note.data["id"])
                scope.deleted.discard(id)
                scope.restored[id] = scope.restored.get(id, 0) + 1
        return scope

    async def _create(self) -> perdure.Session:
        app_name, user_id = self._names
        metadata = {"framework": "google-adk", "app_name": app_name, "user_id": user_id}
        return await open_or_create(self._store, self._id, metadata, subject=self._subject)


async def _append_copy(session: perdure.Session, event: Event, alias: str) -> None:
    fields = fields_of(event)
    made = entry_of(fields)
    if not isinstance(made, perdure.Custom):
        made = msgspec.structs.replace(made, said_at=round(event.timestamp * 1000))
    try:
        await session.append_many([made], aliases=[alias])
    except ValueError:  # no message can hold it
        await session.append_many([opaque_entry(CUSTOM_TYPE, fields)], aliases=[alias])


def event_from(memory: MemoryEntry) -> Event:
    """Return an event that contains `memory`, which a program wrote."""
    fields: Fields = {
        "id": memory.id or "",
        "author": memory.author or "user",
        "content": memory.content,
    }
    if memory.custom_metadata:
        fields["custom_metadata"] = memory.custom_metadata
    event = Event.model_validate(fields)
    if memory.timestamp is not None:
        try:
            event.timestamp = datetime.fromisoformat(memory.timestamp).timestamp()
        except ValueError:
            event.custom_metadata = {**memory.custom_metadata, "timestamp": memory.timestamp}
    return event


def _memory(event: Event) -> MemoryEntry:
    assert event.content is not None
    return MemoryEntry(
        id=event.id,
        content=event.content,
        author=event.author,
        timestamp=datetime.fromtimestamp(event.timestamp, UTC).isoformat(),
        custom_metadata=event.custom_metadata or {},
    )
