"""One session of the ADK, stored as a session of the store: each event is an entry.

The marker of an ADK session contains the head of the stored session at the time of the read. The
commit of an event fails if another entry of the conversation was appended since the session was
read.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence

import msgspec
from google.adk.errors import StaleSessionError
from google.adk.events import Event
from google.adk.sessions import Session

import perdure
from perdure.adapters.google_adk.callers import Callers
from perdure.adapters.google_adk.events import (
    CUSTOM_TYPE,
    Entry,
    Fields,
    StoredEvent,
    checked,
    entry_of,
    event_of,
    event_with,
)
from perdure.adapters.google_adk.markers import mark, marker_at, marker_of
from perdure.adapters.google_adk.scoped_state import ScopedState, newest_snapshot
from perdure.adapters.google_adk.state import (
    CREATED_AT,
    SNAPSHOT,
    SNAPSHOT_AFTER,
    ScopedChanges,
    StateFold,
    WholeState,
    changes_of,
    created_at,
    initial_changes,
)
from perdure.adapters.stored_json import opaque_entry, read_json, stored_json
from perdure.errors import (
    HeadConflict,
    InvalidEntry,
    LimitExceeded,
    WrongArgument,
)

_ROUNDING_S = 0.001

_SAID_AT_S = 1.0
"""A message stores the event's time if it is this many seconds or more from the current time."""

_FEW = 64
"""Number of newest entries that are read first if the events after a given time are wanted."""

_BATCH = 500
"""Maximum number of copied events in one commit."""

_UNFIT = (InvalidEntry, LimitExceeded, OverflowError, WrongArgument, ValueError)
"""Errors raised for data that no message can store, such as an unpaired surrogate."""

_STALE = (
    "The session has been modified in storage since it was loaded. Please reload the session "
    "before appending more events."
)


class StoredSession:
    """A session in the store; its methods run on the event loop of the store."""

    def __init__(self, store: perdure.Store, session: perdure.Session) -> None:
        self.session = session
        self._store = store
        self._lock = asyncio.Lock()
        self._fold: StateFold | None = None
        self._initial: ScopedChanges | None = None

    @property
    def initial(self) -> ScopedChanges:
        """The state at the creation of the session, separated by scope."""
        if self._initial is None:
            self._initial = initial_changes(self.session.metadata)
        return self._initial

    @property
    def created_at(self) -> float:
        """When the session was created. Units: Unix seconds."""
        return created_at(self.session.metadata)

    def is_of(self, info: perdure.SessionInfo) -> bool:
        """Return whether `info` describes this session, not an earlier session with the same id."""
        return (info.metadata or {}).get(CREATED_AT) == self.session.metadata.get(CREATED_AT)

    def reopen(self, session: perdure.Session) -> None:
        """Use the newer handle `session`; clear the cache if the handle is of another session."""
        if session.metadata.get(CREATED_AT) != self.session.metadata.get(CREATED_AT):
            self._fold = self._initial = None
        self.session = session

    # ------------------------------------------------------------ reading

    async def fold(self, head: int) -> StateFold:
        """Return the session's own state, computed up to entry `head` or a newer entry."""
        async with self._lock:
            return await self._current(head)

    async def events(
        self, fold: StateFold, limit: int | None, after: float | None
    ) -> list[Event] | None:
        """Return the newest `limit` events at or after the time `after`, oldest first.

        Returns None if the session has entries that the state `fold` does not include.
        """
        if limit == 0:
            return []
        last = None if limit is None and after is None else limit or _FEW
        while True:
            entries, head = await self._newest(last)
            if head != fold.head:
                return None
            # One event at a time: many half-read ones would keep the garbage collector busy.
            callers = Callers()
            read = [await self.event(entry, callers) for entry in entries]
            events = [event for event in read if event is not None]
            chosen = events if limit is None else events[-limit:]
            if after is not None:
                chosen = [event for event in chosen if event.timestamp >= after]
            if last is None or len(entries) < last:
                return chosen
            is_enough = limit is not None and len(events) >= limit
            if after is not None and events and events[0].timestamp < after:
                is_enough = True
            if is_enough and callers.has_calls_of(chosen):
                return chosen
            last *= 2

    async def _newest(self, last: int | None) -> tuple[list[perdure.Entry], int]:
        """Return the newest `last` entries (None: all), oldest first, and the session's head."""
        if last is not None:
            newest = self.session.entries(newest_first=True, limit=last)
            entries = [entry async for entry in newest]
            if len(entries) == last:
                return entries[::-1], entries[0].seq
        entries = await self.session.tree_entries()  # a fork also shows those of its origin
        return entries, self.session.head

    async def event(self, entry: perdure.Entry, callers: Callers | None = None) -> Event | None:
        """Return the event of `entry` and add it to `callers`; None if `entry` is not an event.

        Raises: FormatError if the ADK rejects the event.
        """
        stored = event_of(entry)
        if stored is None:
            return None
        handles = {handle for handle, _ in stored.media} | ({stored.whole} - {""})
        contents = {each: await self._store.content(each) for each in handles}
        event = event_with(contents, stored, entry)
        if callers is not None:
            callers.add(event, is_said=stored.is_said, is_unsigned=stored.is_unsigned)
        return event

    async def _delta(self, entry: perdure.Entry, stored: StoredEvent) -> Fields:
        if not stored.whole:
            return stored.delta
        fields = json.loads(await self._store.content(stored.whole))
        return StoredEvent(checked(entry, fields)).delta

    async def _current(self, head: int | None = None) -> StateFold:
        if head is None:
            self.reopen(await self._store.open(self.session.id))
            head = self.session.head
        if self._fold is None:
            self._fold = await self._snapshot(head)
        fold = self._fold
        if head == fold.head:
            return fold
        values, updated_at, since, head = dict(fold.values), fold.updated_at, fold.since, fold.head
        async for entry in self.session.entries(head):
            head = entry.seq
            if (stored := event_of(entry)) is not None:
                values.update(changes_of(await self._delta(entry, stored)).session)
                updated_at = stored.fields.get("timestamp", entry.at / 1000)
                since += 1
            elif _is_snapshot(entry) and (whole := await read_json(self._store, entry, WholeState)):
                values, updated_at, since = whole.state, whole.updated_at, 0
        self._fold = StateFold(head, values, updated_at, since)
        return self._fold

    async def _snapshot(self, head: int) -> StateFold:
        newest = await newest_snapshot(self.session) if head >= 0 else None
        if newest is not None and (whole := await read_json(self._store, newest, WholeState)):
            return StateFold(newest.seq, whole.state, whole.updated_at)
        return StateFold(-1, self.initial.session, self.created_at)

    # ------------------------------------------------------------ appending

    async def append(
        self, session: Session, fields: Fields, user: ScopedState, app: ScopedState
    ) -> None:
        """Append the event with the JSON data `fields`, and update the marker of `session`.

        The same commit changes the state of the user and the app.
        Durable: the change is stored when this call returns.
        Raises: StaleSessionError if the session got other events, or was deleted, after `session`
        was read. If `session` has no marker, its last update time shows whether it is stale.
        """
        async with self._lock:  # parallel agents of one run share `session`
            marker = marker_of(session)
            fold = await self._current()  # another process may have created it anew
            expected = self._expected(fold, marker, session.last_update_time)
            made = _at(entry_of(fields), fields["timestamp"])
            while True:
                try:
                    head = await self._commit(made, expected, fields, user, app)
                    break
                except HeadConflict as conflict:
                    expected = await self._moved(expected, conflict)
                except _UNFIT:
                    if isinstance(made, perdure.Custom):
                        raise
                    made = opaque_entry(CUSTOM_TYPE, fields)
            mark(session, marker_at(self.created_at, head))
            session.last_update_time = fields["timestamp"]

    async def append_copies(
        self, events: Sequence[Fields], state: Fields, updated_at: float
    ) -> None:
        """Append events copied from another store, then a note with their resulting `state`."""
        async with self._lock:
            for batch in _batches(events):
                made = [_at(entry_of(fields), fields["timestamp"]) for fields in batch]
                parent = await self._above_rewind(batch[0])
                try:
                    await self.session.append_many(made, parent=parent)
                except _UNFIT:
                    for fields in batch:
                        await self.session.append_many(
                            [opaque_entry(CUSTOM_TYPE, fields)], parent=parent
                        )
                        parent = perdure.LEAF
            fold = StateFold(-1, state, updated_at)
            await self.session.append_many([snapshot_note(fold)], aliases=[SNAPSHOT])
            self._fold = None

    def _expected(self, fold: StateFold, marker: str | None, seen_at: float) -> int:
        if marker is None:
            if fold.updated_at > seen_at + _ROUNDING_S:
                raise StaleSessionError(_STALE)
            return fold.head
        created, _, head = marker.rpartition("/")
        if created != str(self.created_at):  # deleted, and created again
            raise StaleSessionError(_STALE)
        return int(head)

    async def _commit(
        self, made: Entry, expected: int, fields: Fields, user: ScopedState, app: ScopedState
    ) -> int:
        changes = changes_of(StoredEvent(fields).delta)
        items: list[perdure.types.Item] = [made]
        fold = self._fold if self._fold is not None and self._fold.head == expected else None
        after = None
        if fold is not None:
            values = {**fold.values, **changes.session}
            after = StateFold(expected, values, fields["timestamp"], fold.since + 1)
            if after.since >= SNAPSHOT_AFTER:
                items.append(snapshot_note(after))
                after.since = 0
        options: perdure.AppendOptions = {
            "expected_head": expected,
            "aliases": [None, SNAPSHOT][: len(items)],
        }
        if (above := await self._above_rewind(fields)) is not perdure.LEAF:
            options["parent"] = above
        writes = [(self.session, items, options)]
        scoped = [
            (each, change) for each, change in ((user, changes.user), (app, changes.app)) if change
        ]
        writes += [await each.write(change) for each, change in scoped]
        committed = await self._store.commit(writes)
        head = committed[0][-1].seq
        if after is not None:
            after.head = head
        self._fold = after
        for each, _ in scoped:
            await each.snapshot()
        return head

    async def _above_rewind(self, fields: Fields) -> perdure.types.Parent:
        """Return the parent for an event.

        The parent of a rewind is the parent of the first event that the rewind removes.
        """
        actions: Fields = fields.get("actions", {})
        invocation = actions.get("rewind_before_invocation_id")
        if invocation:
            for entry in await self.session.tree_entries():
                stored = event_of(entry)
                if stored is not None and stored.fields.get("invocation_id") == invocation:
                    return entry.parent_id
        return perdure.LEAF

    async def _moved(self, expected: int, conflict: HeadConflict) -> int:
        """Return the new head if only notes were appended after `expected`.

        Raises: StaleSessionError if other entries were appended, or the session was deleted.
        """
        before, head = self.created_at, expected
        await self._current()
        if self.created_at != before or conflict.actual < expected:  # deleted meanwhile
            raise StaleSessionError(_STALE) from conflict
        async for entry in self.session.entries(expected):
            if entry.lane == "tree" or entry.kind == "leaf":
                raise StaleSessionError(_STALE) from conflict
            head = entry.seq
        return head


def snapshot_note(fold: StateFold) -> perdure.Note:
    """Return a note that stores the whole state; its alias must be `SNAPSHOT`."""
    return perdure.Note(
        SNAPSHOT, stored_json({"state": fold.values, "updated_at": fold.updated_at})
    )


def _batches(events: Sequence[Fields]) -> Iterator[list[Fields]]:
    """Return `events` in batches of at most `_BATCH`; a rewind starts a new batch.

    The events of a batch are appended as a chain, and the parent of a rewind is not the event
    before it.
    """
    batch: list[Fields] = []
    for fields in events:
        is_rewind = "rewind_before_invocation_id" in fields.get("actions", {})
        if batch and (is_rewind or len(batch) == _BATCH):
            yield batch
            batch = []
        batch.append(fields)
    if batch:
        yield batch


def _is_snapshot(entry: perdure.Entry) -> bool:
    if entry.is_erased or entry.kind != perdure.Note.kind:
        return False
    note = perdure.body_of(entry)
    return isinstance(note, perdure.Note) and note.note_type == SNAPSHOT


def _at(entry: Entry, timestamp: float) -> Entry:
    """Return `entry`; a message gets the time `timestamp`, unless that is the current time."""
    if isinstance(entry, perdure.Custom) or abs(time.time() - timestamp) < _SAID_AT_S:
        return entry
    return msgspec.structs.replace(entry, said_at=round(timestamp * 1000))
