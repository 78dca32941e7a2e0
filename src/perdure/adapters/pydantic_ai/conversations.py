"""The conversations of a store: finds, writes, forks and erases the session of each conversation.

Each conversation of Pydantic AI is stored as one session. A note stores the record of the
conversation, and an alias names the note. Each entry of the conversation is an entry of the
session; the conversation entry's id is the session entry's alias.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final, cast

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
)

import perdure
from perdure.adapters.open_sessions import open_newest, open_session
from perdure.adapters.pydantic_ai.messages import (
    FoundMessage,
    Item,
    entry_with,
    found_in,
    items_of,
    opaque_item,
)
from perdure.adapters.session_ids import session_id_of, session_ids_of
from perdure.adapters.stored_json import json_data
from perdure.errors import (
    AmbiguousId,
    EntryNotFound,
    Erased,
    HeadConflict,
    InvalidEntry,
    LimitExceeded,
    SessionExists,
    SessionNotFound,
    TurnOpen,
)

PREFIX: Final = "pai"
"""The session id of a conversation begins with this prefix, a number if needed, and a colon."""

RECORD: Final = "pydantic_ai.record"
"""`Note.note_type` of the note with a conversation's record; its alias begins with this type."""

_BY: Final = "perdure.adapters.pydantic_ai"

_record: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)

_HOMES: Final = 10_000
"""Maximum number of entries whose session is cached."""


class Conversations:
    """The methods of a conversation store, which run on the event loop of `store`."""

    def __init__(self, store: perdure.Store) -> None:
        self._store = store
        self._homes: dict[str, str] = {}

    async def _open(self, conversation_id: str) -> tuple[perdure.Session | None, str]:
        """Return a conversation's session and its id, or None and an id for a new session.

        If the conversation's session was erased, the id for the new session contains a number,
        because the new session can be a fork, and a fork cannot have the id of an erased session.
        """
        return await open_newest(self._store, session_ids_of(PREFIX, conversation_id, second=2))

    async def read(self, conversation_id: str) -> ConversationRecord | None:
        session, _ = await self._open(conversation_id)
        return None if session is None else await self._record_of(session)

    async def _record_of(self, session: perdure.Session) -> ConversationRecord | None:
        """Return the newest record in `session`; None if the session has no record of its own."""
        try:
            entry = await session.entry(_alias(session))
        except (EntryNotFound, Erased, SessionNotFound):
            return None
        note = perdure.body_of(entry)
        if not isinstance(note, perdure.Note) or entry.is_erased:
            return None
        text = note.data.get("json")
        if text is None:
            stored = cast("dict[str, str]", note.data["content"])
            text = await self._store.content(stored["handle"])
        record = _record.validate_json(cast("str | bytes", text))
        self._remember(session, [record.head_id, *record.branches])
        return record

    def _remember(self, session: perdure.Session, tips: Sequence[str | None]) -> None:
        if len(self._homes) > _HOMES:
            self._homes.clear()
        self._homes.update({tip: session.id for tip in tips if tip is not None})

    async def records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        infos = await self._store.recent(None, scope="all", subject=scope or None, id_prefix=PREFIX)
        records: list[ConversationRecord] = []
        for info in infos:
            session = await open_session(self._store, info.id)
            record = None if session is None else await self._record_of(session)
            if record is not None and scope in (None, record.scope):
                records.append(record)
        records.sort(key=lambda record: record.updated_at, reverse=True)
        return records[:limit]

    async def write(
        self,
        record: ConversationRecord,
        new: Sequence[ConversationEntry],
        expected: str | None,
    ) -> None:
        while True:
            session, free_id = await self._open(record.conversation_id)
            current = None if session is None else await self._record_of(session)
            if (None if current is None else current.revision) != expected:
                raise ConversationConflict(record.conversation_id)
            try:
                if session is None:
                    session = await self._create(free_id, record, new)
                await self._append(session, record, new)
            except (Erased, HeadConflict, SessionExists, SessionNotFound):
                continue  # another writer was faster: look again
            except EntryNotFound:
                if session is None or current is not None:
                    raise ConversationConflict(record.conversation_id) from None
                # Its writer was killed before the record: nothing of it was ever shown.
                await self._erase(session)
                continue
            return

    async def _create(
        self, free_id: str, record: ConversationRecord, new: Sequence[ConversationEntry]
    ) -> perdure.Session:
        """Create the session of `record`, as a fork if the history begins in another session.

        `new` are the first entries to append.
        Raises: ConversationConflict if no session contains the entry that precedes `new`.
        """
        metadata = {"framework": "pydantic-ai", "conversation_id": record.conversation_id}
        before = new[0].parent_id if new else record.head_id
        subject = record.scope or None
        if before is None:
            first_id = session_id_of(PREFIX, record.conversation_id)
            try:
                return await self._store.create(
                    id=first_id, metadata=metadata, subject=subject, reuse_erased=True
                )
            except SessionExists as error:
                if not error.is_erased:
                    raise
            # A fork still shows entries of the erased session.
            return await self._store.create(id=free_id, metadata=metadata, subject=subject)
        place = await self._place(before)
        if place is None:
            raise ConversationConflict(record.conversation_id)
        origin, entry = place
        return await origin.fork(entry, id=free_id, metadata=metadata, subject=subject)

    async def _append(
        self, session: perdure.Session, record: ConversationRecord, new: Sequence[ConversationEntry]
    ) -> None:
        head = session.head
        before = new[0].parent_id if new else record.head_id
        parent = None if before is None else await self._at(session, before)
        text = _record.dump_json(record, ensure_ascii=True).decode("ascii")
        note = perdure.Note(RECORD, json_data(text))
        alias = _alias(session)
        if new:
            try:
                made = [(entry, items_of(entry)) for entry in new]
                await self._commit(session, made, note, parent=parent, head=head)
            except (InvalidEntry, LimitExceeded, OverflowError, ValueError):
                # No message can hold some characters and numbers: their JSON can be stored.
                opaque = [(entry, [opaque_item(entry)]) for entry in new]
                await self._commit(session, opaque, note, parent=parent, head=head)
        else:
            await session.append_many([note], expected_head=head, aliases=[alias])
            if session.leaf != (None if parent is None else parent.id):
                await self._move(session, parent)
        self._remember(session, [record.head_id])

    async def _move(self, session: perdure.Session, leaf: perdure.Entry | None) -> None:
        """Move the leaf of `session` to `leaf`, unless a turn is open.

        If a turn is open, the old leaf is harmless, because the record names the last entry of the
        conversation.
        """
        with suppress(TurnOpen):
            await session.branch(leaf)

    async def _commit(
        self,
        session: perdure.Session,
        new: Sequence[tuple[ConversationEntry, Sequence[Item]]],
        note: perdure.Note,
        *,
        parent: perdure.Entry | None,
        head: int,
    ) -> None:
        items: list[perdure.types.Item] = []
        aliases: list[str | None] = []
        for entry, made in new:
            items += made
            aliases += [*[None] * (len(made) - 1), entry.id]
        await session.append_many(
            [*items, note],
            parent=parent,
            expected_head=head,
            aliases=[*aliases, _alias(session)],
        )

    async def delete(self, conversation_id: str, expected: str) -> None:
        session, _ = await self._open(conversation_id)
        record = None if session is None else await self._record_of(session)
        if session is None or record is None or record.revision != expected:
            raise ConversationConflict(conversation_id)
        if not await self._erase(session):
            raise ConversationConflict(conversation_id)

    async def _erase(self, session: perdure.Session) -> bool:
        """Erase `session` unless another writer changed it since it was opened."""
        try:
            await session.erase(forks="keep", by=_BY, expected_head=session.head)
        except (Erased, HeadConflict, SessionNotFound):
            return False
        return True

    # ------------------------------------------------------------ histories

    async def _place(self, entry_id: str) -> tuple[perdure.Session, perdure.Entry] | None:
        """Return a session that shows the Pydantic AI entry `entry_id`, and the entry in it."""
        async for session in self._sessions_with(entry_id):
            with suppress(EntryNotFound):
                return session, await self._at(session, entry_id)
        return None

    async def _sessions_with(self, entry_id: str) -> AsyncIterator[perdure.Session]:
        """Yield sessions that might show the conversation entry `entry_id`.

        First comes the session in the cache, then the session that stores the entry, then every
        session.
        """
        home = self._homes.get(entry_id)
        session = None if home is None else await open_session(self._store, home)
        if session is not None:
            yield session
        try:
            entry = await self._store.entry(entry_id)
            session = await open_session(self._store, entry.stream)
            if session is not None:
                yield session
        except (AmbiguousId, EntryNotFound):
            pass
        for info in await self._store.recent(None, scope="all", id_prefix=PREFIX):
            session = await open_session(self._store, info.id)
            if session is not None:
                yield session

    async def _at(self, session: perdure.Session, entry_id: str) -> perdure.Entry:
        """Return the entry of `session` that contains `entry_id`. Raises: EntryNotFound."""
        entry = await session.entry(entry_id)
        found = found_in(entry)
        if found is None:
            raise EntryNotFound(entry_id, session.id)
        return entry

    async def history(self, head_id: str, limit: int | None) -> list[ConversationEntry]:
        place = await self._place(head_id)
        if place is None:
            raise LookupError(f"no entry {head_id!r} is stored")
        session, leaf = place
        last = limit
        while True:
            entries = await session.path(leaf, last=last)
            found = [each for entry in entries if (each := found_in(entry)) is not None]
            if limit is None or len(found) >= limit or last is None or len(entries) < last:
                break
            last *= 2
        chosen = found if limit is None else found[-limit:]
        return [await self._whole(each) for each in chosen]

    async def _whole(self, found: FoundMessage) -> ConversationEntry:
        handles = {handle for handle, _ in found.wanted}
        return entry_with(found, {each: await self._store.content(each) for each in handles})


def _alias(session: perdure.Session) -> str:
    """Return the alias of the newest conversation record in `session`."""
    return f"{RECORD}:{session.id}"
