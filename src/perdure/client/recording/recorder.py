"""Append recorded calls to a session, which branches if a request changes an earlier message.

Each request repeats the conversation. Digests identify the messages that the session already
contains. Only new messages are appended, after the last known message.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from perdure.client.recording.calls import RecordedRequest, RecordedResponse, digest_of
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import InvalidEntry, LimitExceeded, WrongArgument
from perdure.session.ids import EntryId
from perdure.session.messages import Message
from perdure.session.notes import Note

FOREIGN: Final = "recorded"
"""Key in `Message.foreign` for the digest of a message and the provider's id of a response."""

FAILURE: Final = "recorded.failure"
"""`Note.note_type` of a note which states that a call failed.

The note refers to the last message of the call's request.
"""


class Recorder:
    """Appends calls to one session of `store`; runs on the event loop of the store."""

    def __init__(
        self, store: Store, session_id: str | None, title: str | None, subject: str | None
    ) -> None:
        self.session: Session | None = None
        self._store = store
        self._session_id = session_id
        self._title = title
        self._subject = subject
        self._lock = asyncio.Lock()
        self._known: dict[tuple[EntryId | None, str], EntryId] = {}
        self._responses: dict[str, EntryId] = {}

    async def begin(self, request: RecordedRequest) -> EntryId | None:
        """Append the new messages of `request`; return the id of the request's last message.

        Durable: all changes are stored when this returns.
        """
        async with self._lock:
            session = await self._opened()
            at = None if request.previous is None else self._responses.get(request.previous)
            messages = list(request.messages)
            while messages and (known := self._known.get((at, digest_of(messages[0])))) is not None:
                at = known
                del messages[0]
            if not messages:
                return at
            return await self._append(session, messages, at, request.contents)

    async def finish(
        self, after: EntryId | None, response: RecordedResponse, *, is_complete: bool
    ) -> None:
        """Append the answer `response` after the message `after`.

        Durable: all changes are stored when this returns.
        """
        message = response.message
        async with self._lock:
            session = await self._opened()
            if message is None:
                await self._note(session, after, "the response has no message")
                return
            if not is_complete:
                message = msgspec.structs.replace(message, stop_reason="aborted")
            entry = await self._append(session, [message], after, response.contents, response.id)
            if response.id is not None and entry is not None:
                self._responses[response.id] = entry

    async def fail(self, after: EntryId | None, reason: str) -> None:
        """Record that the model call that follows the message `after` failed.

        Durable: all changes are stored when this returns.
        """
        async with self._lock:
            await self._note(await self._opened(), after, reason)

    async def _note(self, session: Session, after: EntryId | None, reason: str) -> None:
        await session.note(Note(FAILURE, {"reason": reason[:2_000]}), about=after)

    async def _opened(self) -> Session:
        if self.session is not None:
            return self.session
        store, id, title, subject = self._store, self._session_id, self._title, self._subject
        told = {"recorded": True}
        if id is None:
            self.session = await store.create(title=title, subject=subject, metadata=told)
            return self.session
        session = await store.open_or_create(id, title=title, subject=subject, metadata=told)
        if subject is not None and session.subject != subject:
            raise WrongArgument(
                f"session {session.id} has another subject; record into a session of its own",
                argument="subject",
            )
        await self._learn(session)
        self.session = session
        return session

    async def _learn(self, session: Session) -> None:
        """Read the entries that earlier recordings appended to `session`."""
        for entry in await session.tree_entries():
            message = entry.message
            kept = None if message is None or message.foreign is None else message.foreign
            told = None if kept is None else kept.get(FOREIGN)
            if isinstance(told, dict):
                facts = msgspec.convert(told, dict[str, str])
                self._known[entry.parent_id, facts["digest"]] = entry.id
                if "response" in facts:
                    self._responses[facts["response"]] = entry.id

    async def _append(
        self,
        session: Session,
        messages: list[Message],
        after: EntryId | None,
        contents: tuple[bytes, ...],
        response: str | None = None,
    ) -> EntryId | None:
        digests = [digest_of(message) for message in messages]
        answered = {} if response is None else {"response": response}
        items = [
            msgspec.structs.replace(message, foreign={FOREIGN: {"digest": digest, **answered}})
            for message, digest in zip(messages, digests, strict=True)
        ]
        try:
            entries = await session.append_many(items, parent=after, contents=contents)
        except (InvalidEntry, LimitExceeded) as error:
            await self._note(session, after, f"a message could not be stored: {error}")
            return after
        for entry, digest in zip(entries, digests, strict=True):
            self._known[after, digest] = entry.id
            after = entry.id
        return after
