"""A session of the OpenAI Agents SDK, stored as a session of perdure."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

import msgspec

import perdure
import perdure.types
from perdure.adapters.open_sessions import create_newest, open_newest
from perdure.adapters.openai_agents import approvals
from perdure.adapters.openai_agents.items import (
    Entry,
    Item,
    ItemParts,
    entry_of,
    filled,
    items_of,
    opaque_item,
)
from perdure.adapters.session_ids import session_ids_of
from perdure.adapters.store_loop import StoreLoop
from perdure.adapters.stored_json import is_plain
from perdure.errors import (
    EntryNotFound,
    Erased,
    InvalidEntry,
    LeafConflict,
    LimitExceeded,
    SessionNotFound,
    WrongArgument,
)

if TYPE_CHECKING:  # importing the framework takes seconds, and the program has done it
    from agents import Agent, RunState
    from agents.items import TResponseInputItem
    from agents.memory.session_settings import SessionSettings

PREFIX: Final = "oa"
"""The stored id of an SDK session begins with this prefix and a colon."""

RUN_STATE: Final = "openai.run_state"
"""`Note.note_type` of a note with a paused run's state; the note's alias begins with this type."""

_TAIL = 8
"""Number of entries that `pop_item` reads first; the last one nearly always contains an item."""

T = TypeVar("T")


class _StoredState(msgspec.Struct, frozen=True):
    """The state of a paused run as JSON, and the answers to its questions, by question digest."""

    text: str
    answers: dict[str, perdure.types.Answer]


class PerdureSession:
    """A conversation of the OpenAI Agents SDK in a store of perdure.

    `store` is a `perdure.Store`, which works only on the event loop that opened it, or a
    `perdure.blocking.Store`, which works on any event loop and thread. The first item creates the
    session; `subject` is the person that the session concerns.

    Popped and cleared items leave the conversation, but stay in the session, on an abandoned
    branch. With ``clear="erase"``, clearing erases the session permanently.
    """

    def __init__(
        self,
        session_id: str,
        store: perdure.Store | perdure.blocking.Store,
        *,
        clear: Literal["branch", "erase"] = "branch",
        subject: str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        _require_id(session_id)
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        if clear not in ("branch", "erase"):
            raise WrongArgument(f"clear is branch or erase, not {clear!r}", argument="clear")
        self._is_erasing = clear == "erase"
        self._subject = subject
        self._loop = StoreLoop(store)
        self._store = self._loop.store
        self._session: perdure.Session | None = None

    @property
    def stored_id(self) -> str:
        """The id of the session in the store."""
        return next(self._ids()) if self._session is None else self._session.id

    def _ids(self) -> Iterator[str]:
        """Yield the first id of the session, then the ids that the session gets after erasures.

        The id of an erased session cannot be used again while a fork shows entries of that session.
        """
        return session_ids_of(PREFIX, self.session_id)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest `limit` items, oldest first; earlier items are not read.

        If `limit` is None, the limit in `session_settings` applies. A negative limit means all.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit < 0:
            limit = None
        return await self._loop.call(self._items(limit))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add `items`, all in one commit. Durable: the change is stored when this call returns."""
        if items:
            await self._loop.finish(self._add(_plain(items), None))

    async def add_items_once(
        self, items: list[TResponseInputItem], key: str, *, said_at: datetime | None = None
    ) -> bool:
        """Add `items` unless an earlier call with this `key` added them; return True if added.

        `said_at` is the time of the items; the default is now. Durable: the items are stored when
        this call returns. Raises: IdempotencyMismatch if `key` was used with other items.
        """
        id = next(self._ids())
        return await self._loop.finish(self._add(_plain(items), f"{len(id)}:{id}:{key}", said_at))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it. Concurrent callers get different items."""
        return await self._loop.finish(self._pop())

    async def clear_session(self) -> None:
        """Remove all items, and the state that `save_state` stored."""
        await self._loop.finish(self._erase() if self._is_erasing else self._clear())

    async def save_state(self, state: RunState[Any, Any] | None, **options: Any) -> None:
        """Store the state of a paused run with the session; None removes the stored state.

        Each call that waits for approval becomes a question. Earlier questions about other calls
        are withdrawn. `options` go to `RunState.to_string`. Durable: the state is stored on return.
        """
        wanted = approvals.undecided(state)
        text = None if state is None else state.to_string(**options)
        await self._loop.finish(self._save_state(text, wanted))

    async def load_state(self, agent: Agent[Any], **options: Any) -> RunState[Any, Any] | None:
        """Return the newest stored state, for a run that `agent` began; None if no state is stored.

        Calls that people allowed or denied in the inbox are approved or rejected in the state. If a
        person denied a call with a note, the note becomes the rejection message. `options` are
        passed to `RunState.from_string`. Resume a stored state in only one process.

        A state from an import or an untrusted store is loaded without its decisions, so the resumed
        run asks again. The context of an untrusted state is loaded; if your tools trust the
        context, pass `context_override`.
        """
        stored = await self._loop.call(self._state())
        if stored is None:
            return None
        states: type[RunState[Any, Any]] = importlib.import_module("agents").RunState
        state = await states.from_string(agent, stored.text, **options)
        approvals.decide(state, stored.answers)
        return state

    # ------------------------------------------------------------ on the loop of the store

    async def _save_state(
        self, text: str | None, wanted: Sequence[approvals.WantedApproval]
    ) -> None:
        if text is not None or await self._state() is not None:
            await self._in_session(lambda session: _append_state(session, text, wanted))

    async def _state(self) -> _StoredState | None:
        session = await self._open()
        found = None if session is None else await _state_in(session)
        if session is None or found is None:
            return None
        entry, data = found
        text = (await self._store.content(data["content"]["handle"])).decode()
        if not await session.is_in_force(entry):
            text = approvals.without_decisions(text)
        asked = await approvals.asked_about(session, entry, data)
        return _StoredState(text, await approvals.answers_to(session, asked))

    async def _items(self, limit: int | None) -> list[TResponseInputItem]:
        if limit == 0:
            return []
        last = limit
        while True:
            entries = await self._newest_entries(last)
            found = [item for entry in entries for item in items_of(entry)]
            if limit is None or len(found) >= limit or last is None or len(entries) < last:
                break
            last *= 2
        chosen = found if limit is None else found[-limit:]
        return [
            await self._whole(parts) if parts.wanted else cast("TResponseInputItem", parts.item)
            for parts in chosen
        ]

    async def _newest_entries(self, last: int | None) -> list[perdure.Entry]:
        """Return the newest `last` entries of the current session."""
        if (session := self._session) is not None:
            try:
                return await session.path(last=last)
            except (Erased, SessionNotFound):
                pass
        session = await self._open()
        return [] if session is None else await session.path(last=last)

    async def _whole(self, parts: ItemParts) -> TResponseInputItem:
        handles = {handle for handle, _, _ in parts.wanted}
        contents = {each: await self._store.content(each) for each in handles}
        return cast("TResponseInputItem", filled(parts, contents))

    async def _add(
        self, items: Sequence[Item], key: str | None, said_at: datetime | None = None
    ) -> bool:
        entries = [_at(entry_of(item), said_at) for item in items]
        try:
            return await self._append(entries, key)
        except (InvalidEntry, LimitExceeded, OverflowError, ValueError):
            # No message can hold some characters and numbers, such as half of a character pair.
            pairs = zip(items, entries, strict=True)
            kept = [entry if is_plain(item) else opaque_item(item) for item, entry in pairs]
            if kept == entries:
                raise
        return await self._append(kept, key)

    async def _append(self, entries: Sequence[perdure.types.Item], key: str | None) -> bool:
        async def append(session: perdure.Session) -> bool:
            return (await session.append_many(entries, idempotency_key=key)).is_replay

        return not await self._in_session(append)

    async def _in_session(self, work: Callable[[perdure.Session], Awaitable[T]]) -> T:
        """Run `work` on the session; create the session if it does not exist."""
        while True:
            try:
                return await work(self._session or await self._create())
            except (Erased, SessionNotFound):  # cleared by another process
                self._session = None

    async def _pop(self) -> TResponseInputItem | None:
        while (session := await self._open()) is not None:
            newest = await _newest(session)
            if newest is None:
                return None
            entry, items, leaf = newest
            whole = await self._whole(items[-1])
            try:
                await _leave(session, entry, items[:-1], leaf)
            except LeafConflict:
                continue
            return whole
        return None

    async def _clear(self) -> None:
        while (session := await self._open()) is not None:
            try:
                if await _state_in(session) is not None:  # first: no state outlives its items
                    await _append_state(session, None, ())
                leaf = (await session.path(last=1))[-1:]
                await session.branch(None, expected_leaf=leaf[0] if leaf else None)
            except LeafConflict:
                continue
            except (Erased, SessionNotFound):  # erased by another process
                self._session = None
            return

    async def _erase(self) -> None:
        session = await self._open()
        self._session = None
        if session is not None:
            with suppress(Erased, SessionNotFound):
                await session.erase(forks="keep", by="perdure.adapters.openai_agents")

    async def _open(self) -> perdure.Session | None:
        """Return the current session, even if another process erased it and created a new one."""
        known, self._session = (() if self._session is None else (self._session.id,)), None
        ids = chain(known, self._ids())  # nearly always the first
        self._session, _ = await open_newest(self._store, ids)
        return self._session

    async def _create(self) -> perdure.Session:
        metadata = {"framework": "openai-agents", "session_id": self.session_id}
        while (session := await self._open()) is None:
            await create_newest(
                self._store, self._ids(), metadata, subject=self._subject, reuse_erased=True
            )
        return session


async def _append_state(
    session: perdure.Session, text: str | None, wanted: Sequence[approvals.WantedApproval]
) -> None:
    """Store `text` as the newest state, and ask the questions of `wanted`.

    If `text` is None, the stored state is removed.
    """
    before = await _state_in(session)
    asked = {} if before is None else await approvals.asked_about(session, *before)
    waiting = {each.id for each in await session.questions()} if asked else set[str]()
    digests = {each.digest for each in wanted}
    carried: dict[str, list[perdure.Entry]] = {}
    for digest, entries in asked.items():
        unanswered = [entry.id for entry in entries if entry.id in waiting]
        if digest not in digests:
            for id in unanswered:
                await session.withdraw(id)
            continue
        carried[digest] = [
            entry
            for entry in entries
            if entry.id in unanswered or await approvals.is_answer_unused(session, entry)
        ]
    data: dict[str, object] = {}
    if text is not None:  # beside the log: it is long, and no search shows it
        data["content"] = perdure.content(text.encode(), "application/json")
        data["calls"] = sorted(digests)
        data["questions"] = [entry.id for entries in carried.values() for entry in entries]
    note = perdure.Note(RUN_STATE, data)
    await session.append_many([note], aliases=[f"{RUN_STATE}:{session.id}"])
    await approvals.ask(session, [each for each in wanted if not carried.get(each.digest)])


async def _state_in(session: perdure.Session) -> tuple[perdure.Entry, dict[str, Any]] | None:
    """Return the note that stores the newest state, and the data of the note."""
    try:
        entry = await session.entry(f"{RUN_STATE}:{session.id}")
    except EntryNotFound:
        return None
    note = perdure.body_of(entry)
    if not isinstance(note, perdure.Note) or "content" not in note.data:
        return None
    return entry, cast("dict[str, Any]", note.data)


def _at(entry: Entry, moment: datetime | None) -> Entry:
    """Return `entry`; if it is a message, set its time to `moment`."""
    if moment is None or isinstance(entry, perdure.Custom):
        return entry
    return msgspec.structs.replace(entry, said_at=round(moment.timestamp() * 1000))


def _settings(given: SessionSettings | dict[str, Any] | None) -> SessionSettings | None:
    """Return the settings `given` as an object of the SDK.

    Raises: the SDK's error for unknown fields of a dict.
    """
    if not isinstance(given, dict):
        return given
    settings: type[SessionSettings] = importlib.import_module("agents.memory").SessionSettings
    return settings().resolve(given)


def _plain(items: Sequence[TResponseInputItem]) -> list[Item]:
    return [cast("Item", item) for item in items]


async def _newest(
    session: perdure.Session,
) -> tuple[perdure.Entry, list[ItemParts], perdure.Entry] | None:
    """Return the newest entry that contains items, the items in this entry, and the leaf."""
    last = _TAIL
    while True:
        entries = await session.path(last=last)
        for entry in reversed(entries):
            if items := items_of(entry):
                return entry, items, entries[-1]
        if len(entries) < last:
            return None
        last *= 2


async def _leave(
    session: perdure.Session,
    entry: perdure.Entry,
    kept: Sequence[ItemParts],
    leaf: perdure.Entry,
) -> None:
    """Move the leaf to the parent of `entry`, and append `kept` again. Raises: LeafConflict."""
    if not kept:
        await session.branch(entry.parent_id, expected_leaf=leaf)
        return
    items = [entry_of(parts.item) for parts in kept]
    await session.append_many(items, parent=entry.parent_id, expected_leaf=leaf)


def _require_id(session_id: object) -> None:
    if not isinstance(session_id, str) or not session_id:
        raise WrongArgument(
            f"session_id is {session_id!r}: give a text that is not empty", argument="session_id"
        )
