"""The state of an app or of a user of an app, stored as changes in a separate session."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import perdure
from perdure.adapters.google_adk.state import (
    CHANGE,
    CREATED_AT,
    SNAPSHOT,
    SNAPSHOT_AFTER,
    StateFold,
)
from perdure.adapters.open_sessions import open_or_create, open_session
from perdure.adapters.stored_json import read_json, stored_json
from perdure.errors import EntryNotFound, HeadConflict

_Fields = dict[str, Any]

ScopedWrite = tuple[perdure.Session, list[perdure.types.Item], perdure.AppendOptions]
"""One write to pass to `Store.commit`; it stores a change of the state."""


class ScopedState:
    """The state stored in the session `id`; the first change creates this session."""

    def __init__(
        self, store: perdure.Store, id: str, metadata: Mapping[str, object], subject: str | None
    ) -> None:
        self._store = store
        self._id = id
        self._metadata = metadata
        self._subject = subject
        self._fold = StateFold(-1, {})
        self._created_at: object = None

    async def values(self) -> _Fields:
        """Return the current state."""
        session = await self._current()
        if session is None:
            return {}
        if session.head != self._fold.head:
            await self._refold(session)
        return self._fold.values

    async def write(self, change: _Fields) -> ScopedWrite:
        """Return a write that stores `change`, for a call of `Store.commit`."""
        session = await self._create()
        return session, [perdure.Note(CHANGE, stored_json(change))], {}

    async def snapshot(self) -> None:
        """Store the whole state if many changes were appended since the last snapshot."""
        session = await self._current()
        if session is None:
            return
        await self._refold(session)
        if self._fold.since < SNAPSHOT_AFTER:
            return
        note = perdure.Note(SNAPSHOT, stored_json(self._fold.values))
        try:
            await session.append_many([note], aliases=[SNAPSHOT], expected_head=self._fold.head)
        except HeadConflict:  # the next change tries again
            return
        self._fold.since = 0

    async def _refold(self, session: perdure.Session) -> None:
        fold = self._fold
        if fold.head < 0 and (newest := await newest_snapshot(session)) is not None:
            whole = await read_json(self._store, newest, _Fields)
            fold = fold if whole is None else StateFold(newest.seq, whole)
        values = dict(fold.values)
        head, since = fold.head, fold.since
        async for entry in session.entries(head):
            head = entry.seq
            if entry.is_erased or entry.kind != perdure.Note.kind:
                continue
            note = perdure.body_of(entry)
            if not isinstance(note, perdure.Note) or note.note_type not in (CHANGE, SNAPSHOT):
                continue
            if (read := await read_json(self._store, entry, _Fields)) is None:
                continue
            if note.note_type == CHANGE:
                values.update(read)
                since += 1
            else:
                values, since = read, 0
        self._fold = StateFold(head, values, since=since)

    async def _current(self) -> perdure.Session | None:
        """Return the session, updated from the store; None if it is erased or not yet created."""
        session = await open_session(self._store, self._id)
        if session is None:
            self._fold = StateFold(-1, {})
            return None
        created_at = session.metadata.get(CREATED_AT)
        if created_at != self._created_at:  # erased, and created again
            self._fold, self._created_at = StateFold(-1, {}), created_at
        return session

    async def _create(self) -> perdure.Session:
        while (session := await self._current()) is None:
            metadata = {**self._metadata, CREATED_AT: time.time()}
            await open_or_create(self._store, self._id, metadata, subject=self._subject)
        return session


async def newest_snapshot(session: perdure.Session) -> perdure.Entry | None:
    """Return the newest note with the whole state; None if it is not in the session's own log."""
    try:
        entry = await session.entry(SNAPSHOT)
    except EntryNotFound:
        return None
    return None if entry.is_erased or entry.stream != session.id else entry
