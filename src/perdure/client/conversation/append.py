"""The writer of a session: each call is one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast

import msgspec

from perdure.bounds.limits import require_within
from perdure.client.clock import Outside
from perdure.client.conversation.call_order import CallOrder
from perdure.client.reads import EntryRef, SessionReader
from perdure.engine.hooks.registry import Hooks
from perdure.errors import (
    FlowRefusal,
    HeadConflict,
    InvalidEntry,
    InvalidParent,
    TurnOpen,
    Unsupported,
    WrongArgument,
)
from perdure.session.argument_checks import check_whole
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import LEAF, Entry, Here, NewEntry, ParentRef, Sibling
from perdure.session.ids import EntryId
from perdure.session.kinds import Custom, CustomMessage, TreeBody
from perdure.session.media_storage.handles import settled_data, settled_message
from perdure.session.messages import InFlightMessage, Message, decode_message
from perdure.session.notes import Note, SessionEnded, SideBody
from perdure.stores.access.lazy_modules import Later
from perdure.stores.protocol import Commit, StreamState, Write
from perdure.stores.session_store import SessionStore
from perdure.stores.validation import TIMES, check_contents, is_text

if TYPE_CHECKING:
    from perdure.client.conversation import role_sessions
    from perdure.engine import episodes
    from perdure.session.media_storage import embedded_base64
else:
    embedded_base64 = Later("perdure.session.media_storage.embedded_base64")
    episodes = Later("perdure.engine.episodes")
    role_sessions = Later("perdure.client.conversation.role_sessions")

Item = Message | InFlightMessage | TreeBody | Note
"""An item to append: a message, change of model, extension entry, note and so on."""

Durable = Message | TreeBody | Note
"""An `Item` in the form that a log stores."""

Parent = EntryRef | Here | None
"""The parent of a new entry: an entry, `LEAF`, or None for a new root."""

_OF_TOOLS = ("assistant", "tool")
"""Roles of messages that contain tool calls and tool results."""

ExpectedLeaf = EntryRef | msgspec.UnsetType | None
"""The leaf that the caller expects; None: before the root."""


class Appended(list[Entry]):
    """The entries that a call appended, in order.

    If `is_replay` is True, the idempotency key was used before, and the entries are those of the
    first call.
    """

    def __init__(self, entries: Iterable[Entry] = (), *, is_replay: bool = False) -> None:
        super().__init__(entries)
        self.is_replay = is_replay


class CommittedSessions(list[Appended]):
    """The entries appended to each session by `Store.commit`, in the given order.

    If `is_replay` is True, the idempotency key was used before, and the entries are those of the
    first call.
    """

    def __init__(self, sessions: Iterable[Appended] = (), *, is_replay: bool = False) -> None:
        super().__init__(sessions)
        self.is_replay = is_replay


class AppendOptions(TypedDict, total=False):
    """Options for one session in `Store.commit`; `Session.append_many` explains them."""

    parent: Parent
    expected_head: int | None
    expected_leaf: ExpectedLeaf
    contents: tuple[bytes, ...]
    aliases: Sequence[str | None]


class PreparedWrite(NamedTuple):
    """A write ready to commit, with its bodies and referenced contents."""

    write: Write
    bodies: Sequence[Durable] = ()
    contents: tuple[bytes, ...] = ()

    @property
    def is_quick(self) -> bool:
        """Whether every store can commit this write without a thread."""
        size = sum([len(new.body) for new in self.write.entries])
        return size < _QUICK_BYTES and not self.contents


_LIMIT = "message_bytes"
_MESSAGE = "the message"
_LARGE = 1_048_576
"""Messages with more bytes of text than this are encoded in a thread."""

_QUICK_BYTES = 65_536
"""Every store commits entries with fewer bytes than this without a thread."""


class SessionWriter:
    """Appends to one session, in the order of the calls."""

    def __init__(
        self, reader: SessionReader, outside: Outside, hooks: Hooks, order: CallOrder | None = None
    ) -> None:
        self.reader = reader
        self.outside = outside
        self.hooks = hooks
        self.order = order or CallOrder()

    @property
    def store(self) -> SessionStore:
        """The store of the session, or the store that a draft session will be written to."""
        return self.reader.backing.store

    async def append(
        self, items: Sequence[Item], options: AppendOptions, key: str | None = None
    ) -> Appended:
        """Append `items` under the idempotency key `key`.

        Raises: the errors of `Session.append_many`.
        """
        try:
            return await self._append(items, options, key)
        except InvalidParent:
            await self.check_parent(options)
            raise

    async def check_parent(self, options: AppendOptions) -> None:
        """Read the parent after a failed commit, to raise the exact error.

        Raises: EntryNotFound, InvalidEntry.
        """
        parent = options.get("parent", LEAF)
        if isinstance(parent, Entry):
            await self.reader.in_tree(parent)

    async def _append(
        self, items: Sequence[Item], options: AppendOptions, key: str | None
    ) -> Appended:
        prepared: PreparedWrite | None = None
        if _is_ready(items, options):
            prepared = await self.prepared(items, options)  # lets no other call run
            if self.order.is_free and prepared.is_quick:
                return await self.commit(prepared, key)
        async with self.order.place():
            prepared = prepared or await self.prepared(items, options)
            return await self.commit(prepared, key)

    async def add_note(self, note: Note, about: EntryRef | None) -> Entry:
        """Implement `Session.note`."""
        durable, contents = prepare_items([note])
        async with self.order.place():
            target = None if about is None else (await self.reader.entry(about)).id
            new = tuple(new_side(each, target) for each in durable if isinstance(each, Note))
            write = Write(stream=self.reader.id, entries=new)
            return (await self.commit(PreparedWrite(write, contents=contents)))[0]

    async def note(self, body: SideBody, about: EntryId | None = None) -> Entry:
        """Append the side entry `body`."""
        new = PreparedWrite(Write(stream=self.reader.id, entries=(new_side(body, about),)))
        if self.order.is_free:
            return (await self.commit(new))[0]
        async with self.order.place():
            return (await self.commit(new))[0]

    async def commit(self, prepared: PreparedWrite, key: str | None = None) -> Appended:
        """Append the write `prepared` under the idempotency key `key`."""
        self.require_session("appending")
        write, bodies, contents = prepared
        if contents:
            await asyncio.to_thread(check_contents, contents, write.entries)
        at = self.outside.clock.now_ms()
        commit = Commit(writes=(write,), at=at, blobs=contents, idempotency_key=key)
        committed = await self.reader.backing.commit(commit)
        appended = committed.entries[0]
        await self.reader.see(appended, bodies)
        return Appended(appended, is_replay=committed.is_replay)

    async def end(self, reason: str | None, summary: str | None) -> Entry | None:
        """Implement `Session.end`."""
        reader = self.reader
        async with self.order.place():
            while True:
                state = await reader.look()
                await self.require_no_role(state, "end")
                if state.open_turn is not None:
                    raise TurnOpen(reader.id, state.open_turn)
                if state.info.status == "ended":
                    return None
                at, head = self.outside.clock.now_ms(), state.head
                ended = (new_side(SessionEnded(reason=reason), at=at),)
                entries = await episodes.with_episode(
                    reader.log, reader.id, head, ended, at, info=state.info, summary=summary
                )
                expected = None if reader.backing.is_draft else head  # one would store the draft
                write = Write(stream=reader.id, entries=entries, expected_head=expected)
                with suppress(HeadConflict):
                    return (await self.commit(PreparedWrite(write)))[0]

    def require_session(self, what: str) -> None:
        """Reject the operation `what` if this stream is a flow. Raises: FlowRefusal."""
        header = self.reader.state.header
        if header.kind == "flow":
            told = f"it is a flow, and {what} is for sessions"
            raise FlowRefusal(header.id, f"{told}; Flows.state shows the flow and its roles")

    async def require_no_role(self, state: StreamState, action: role_sessions.Action) -> None:
        """Reject `action` for a flow and for the session of a role. Raises: FlowRefusal."""
        if state.header.origin == "role" or state.header.kind == "flow":
            clock = self.outside.clock
            await role_sessions.require_no_role(self.store, clock, state.header, action)

    async def prepared(self, items: Sequence[Item], options: AppendOptions) -> PreparedWrite:
        """Return the write that appends `items` to the session.

        Raises: the errors of `append_many`.
        """
        if not isinstance(items, Sequence) or isinstance(items, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a checker would have told
            kind = type(items).__name__
            raise WrongArgument(f"append_many takes a list of messages, not {kind}")
        if not items:
            raise WrongArgument("there is nothing to append: give at least one message")
        parent = options.get("parent", LEAF)
        if parent is not None and not isinstance(parent, Here):
            parent = await self._parent_id(parent)
        durable, taken = prepare_items(items)
        write = Write(
            stream=self.reader.id,
            entries=await new_entries(durable, parent, options.get("aliases", ())),
            expected_head=options.get("expected_head"),
            expected_leaf=await self.expected_leaf(options.get("expected_leaf", msgspec.UNSET)),
        )
        return PreparedWrite(write, durable, (*options.get("contents", ()), *taken))

    async def _parent_id(self, parent: EntryRef) -> EntryId:
        if isinstance(parent, Entry) and (parent.stream, parent.lane) == (self.reader.id, "tree"):
            return parent.id  # not read: the commit checks it
        return await self.reader.in_tree(parent)

    async def expected_leaf(self, leaf: ExpectedLeaf) -> EntryId | msgspec.UnsetType | None:
        """Return `leaf`, the leaf that the caller expects, as an entry id."""
        return leaf if leaf is None or leaf is msgspec.UNSET else await self.reader.resolve(leaf)


def _check_write(store: SessionStore, writer: SessionWriter, options: AppendOptions) -> None:
    """Reject a write that cannot be part of a commit to `store`. Raises: WrongArgument."""
    writer.require_session("appending")
    if writer.store is not store:
        reason = f"session {writer.reader.id} was opened in another store"
        raise WrongArgument(reason, argument="writes")
    if unknown := set(options) - AppendOptions.__annotations__.keys():
        known = ", ".join(AppendOptions.__annotations__)
        reason = f"unknown option {min(unknown)!r}: the options of a write are {known}"
        raise WrongArgument(reason, argument="writes")


async def commit_sessions(
    store: SessionStore,
    outside: Outside,
    writes: Sequence[tuple[SessionWriter, Sequence[Item], AppendOptions]],
    key: str | None,
) -> CommittedSessions:
    """Append to several sessions of `store` in one commit. Raises: the errors of `Store.commit`."""
    if not writes:
        raise WrongArgument("there is nothing to commit: give a session", argument="writes")
    if len(writes) > 1 and not store.capabilities.multi_stream_commit:
        raise Unsupported("multi_stream_commit", store.address.partition(":")[0])
    for writer, _, options in writes:
        _check_write(store, writer, options)
    prepared = [await writer.prepared(items, options) for writer, items, options in writes]
    for each in prepared:
        if each.contents:
            await asyncio.to_thread(check_contents, each.contents, each.write.entries)
    for writer, _, _ in writes:
        await writer.reader.backing.flush()
    blobs = tuple(dict.fromkeys(content for each in prepared for content in each.contents))
    commit = Commit(
        writes=tuple(each.write for each in prepared),
        at=outside.clock.now_ms(),
        idempotency_key=key,
        blobs=blobs,
    )
    try:
        committed = await store.commit(commit)
    except InvalidParent:
        for writer, _, options in writes:
            await writer.check_parent(options)
        raise
    for (writer, _, _), entries, each in zip(writes, committed.entries, prepared, strict=True):
        known = () if committed.is_replay else each.bodies
        await writer.reader.see(entries, known)
    return CommittedSessions(map(Appended, committed.entries), is_replay=committed.is_replay)


def prepare_input(
    said: str | Message | InFlightMessage,
) -> tuple[str | Message, tuple[bytes, ...]]:
    """Return user input in stored form, and the contents that are stored outside the log.

    Raises: ValueError for too many media in one message; LimitExceeded if the message is too large.
    """
    _require_small(said)
    return settled_message(said) if isinstance(said, InFlightMessage) else (said, ())


def prepare_items(items: Sequence[Item]) -> tuple[list[Durable], tuple[bytes, ...]]:
    """Return `items` in stored form, and the contents that are stored outside the log.

    Raises: WrongArgument for data that cannot be stored.
    """
    durable: list[Durable] = []
    contents: dict[bytes, None] = {}
    for item in items:
        kept, taken = _settled_item(item)
        durable.append(kept)
        contents.update(dict.fromkeys(taken))
    return durable, tuple(contents)


def _settled_item(item: Item) -> tuple[Durable, tuple[bytes, ...]]:
    _check_item(item)
    _require_small(item)
    match item:
        case Message():
            if isinstance(item.foreign, dict):  # other types are rejected when it is written
                settled_data(item.foreign, "foreign")
            return embedded_base64.stored_message(item) if item.role in _OF_TOOLS else (item, ())
        case InFlightMessage():
            settled_data(item.foreign, "foreign")
            return settled_message(item)
        case Custom() | Note():
            data = settled_data(item.data)
            if data.value is item.data:
                return item, data.contents
            return msgspec.structs.replace(item, data=data.value), data.contents
        case CustomMessage():
            data = settled_data(item.details, "details")
            return msgspec.structs.replace(item, details=data.value), data.contents
        case _:
            return item, ()


async def new_entries(
    items: Sequence[Durable], parent: ParentRef, aliases: Sequence[str | None] = ()
) -> tuple[NewEntry, ...]:
    """Return `items` as a chain of entries. Large items are encoded in a thread, one at a time.

    Raises: WrongArgument if `aliases` is not empty and its length differs from the number of items;
    the errors of `_new`.
    """
    _check_aliases(aliases, len(items))
    made: list[NewEntry] = []
    last: int | None = None  # the item that a note is about
    for number, item in enumerate(items):
        if isinstance(item, Note):
            made.append(new_side(item, None if last is None else Sibling(last)))
        else:
            after = parent if last is None else LEAF
            made.append(
                await asyncio.to_thread(_new, item, after) if _is_large(item) else _new(item, after)
            )
            last = number
    if not aliases:
        return tuple(made)
    named = zip(made, aliases, strict=True)
    return tuple(msgspec.structs.replace(new, alias=alias) for new, alias in named)


def _is_ready(items: Sequence[Item], options: AppendOptions) -> bool:
    """Whether `items` can be prepared without reading the store and without a thread."""
    if not isinstance(options.get("parent", LEAF), Here | None):
        return False
    if isinstance(options.get("expected_leaf"), Entry | str):
        return False
    return isinstance(items, Sequence) and not any(map(_is_large, items))  # pyright: ignore[reportUnnecessaryIsInstance] - a checker would have told


def _is_large(item: Item | Durable) -> bool:
    return isinstance(item, Message | InFlightMessage) and _text_bytes(item) > _LARGE


def _check_aliases(aliases: Sequence[str | None], items: int) -> None:
    if not aliases:
        return
    if len(aliases) != items:
        raise WrongArgument(
            f"aliases holds {len(aliases)} names for {items} items: give one for each, or None",
            argument="aliases",
        )
    given = [alias for alias in aliases if alias is not None]
    if any(not is_text(alias) for alias in given):
        raise WrongArgument("an alias is a text that is not empty", argument="aliases")
    if len(set(given)) < len(given):
        raise WrongArgument("two items have the same alias", argument="aliases")


def _new(item: Message | TreeBody, parent: ParentRef) -> NewEntry:
    """Return `item` as an entry.

    Raises: WrongArgument if a message cannot be decoded after encoding; LimitExceeded if the item
    is too large.
    """
    try:
        new = new_tree(item, parent)
    except InvalidEntry:
        check_whole(item, type(item).__name__)
        raise
    require_within(_LIMIT, len(new.body), _MESSAGE)
    if isinstance(item, Message) and item.said_at is not None and item.said_at not in TIMES:
        raise WrongArgument("said_at is a time in Unix milliseconds", argument="said_at")
    if isinstance(item, Message) and not _is_read_alike(item, new.body):
        check_whole(item, Message.__name__)
    return new


def _require_small(item: object) -> None:
    """Reject a message with too much text before any other work on the message.

    Raises: LimitExceeded.
    """
    require_within(_LIMIT, _text_bytes(item), _MESSAGE)


def _text_bytes(item: object) -> int:
    """Return the bytes of text in `item`.

    Parts of a wrong type count as 0 bytes; `_new` rejects them.
    """
    parts: Any = getattr(item, "parts", (item,))
    if not isinstance(parts, list | tuple):
        return 0
    total = 0
    for part in cast("Iterable[Any]", parts):  # a loop for speed: every append runs this
        text: Any = getattr(part, "text", part)
        if isinstance(text, str):
            total += _bytes_of(text)
    return total


def _bytes_of(text: str) -> int:
    """Return the size of `text` in UTF-8; invalid text is rejected in a later step."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _is_read_alike(message: Message, body: bytes) -> bool:
    """Return whether decoding `body` gives `message`; if not, a field has a wrong type.

    Decoding is ten times faster than checking each field.
    """
    try:
        is_alike = decode_message(body) == message
    except (ValueError, RecursionError):
        return False
    if is_alike and message.usage is not None:  # JSON allows greater numbers than a log
        check_whole(message.usage, type(message.usage).__name__)
    return is_alike


def _check_item(item: object) -> None:
    """Reject an item that is not an `Item`, or that cannot be decoded after encoding.

    Messages are checked in `_new`. Raises: WrongArgument.
    """
    # Common mistakes, for callers without a type checker.
    if isinstance(item, str):
        raise WrongArgument(f"append messages, not text: user({item[:40]!r})")
    if not isinstance(item, Message | InFlightMessage | TreeBody | Note):
        kind = type(item).__name__
        raise WrongArgument(f"append messages, such as user('...'), not {kind}")
    if not isinstance(item, Message):
        check_whole(item, type(item).__name__)
