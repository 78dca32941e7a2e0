"""The half of a session's handle by which everything gets into its log.

Each call is one commit. What is built on it says what is appended; nothing here decides that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, cast, overload

import msgspec

from perdure.bounds.limits import require_within
from perdure.client.conversation.contexts import ContextReader
from perdure.client.reading import EntryRef
from perdure.errors import InvalidEntry, WrongArgument
from perdure.session.codec import new_side, new_tree
from perdure.session.declared.arguments import check_whole, takes_all_declared_but
from perdure.session.durable.embedded import stored_message
from perdure.session.durable.settling import settled_data, settled_message
from perdure.session.entries import LEAF, Entry, Here, NewEntry, ParentRef
from perdure.session.ids import EntryId
from perdure.session.kinds import Custom, CustomMessage, TreeBody
from perdure.session.messages import InFlightMessage, Message, decode_message
from perdure.session.notes import SideBody
from perdure.stores.entering.contents import check_contents
from perdure.stores.protocol import Commit, Write

Item = Message | InFlightMessage | TreeBody
"""What a conversation is made of: messages, changes of model, extension entries and so on."""

Parent = EntryRef | Here | None
"""Where an entry is appended: an entry, `LEAF`, or None for a new root."""

_OF_TOOLS = ("assistant", "tool")
"""Roles of messages that hold calls of tools, and their results."""

ExpectedLeaf = EntryRef | msgspec.UnsetType | None
"""Where the caller expects the conversation to stand; None: before the root."""


_LIMIT = "message_bytes"
_MESSAGE = "the message"
_LARGE = 1_048_576
"""Characters of text from which on a message is made an entry in a thread."""


@takes_all_declared_but("items")
class Appender(ContextReader):
    """What a `Session` appends with."""

    @overload
    async def append(self, item: Item, /, *, parent: Parent = LEAF) -> Entry: ...
    @overload
    async def append(
        self, item: Item, second: Item, /, *more: Item, parent: Parent = LEAF
    ) -> list[Entry]: ...
    async def append(self, *items: Item, parent: Parent = LEAF) -> Entry | list[Entry]:
        """Append `items` as one unit, after `parent` and then one after the other.

        Media given as bytes are kept beside the log, and named in it.
        Durable: all or none, when this returns; a draft's not before its first assistant message.
        Shape: one item gives its entry, several give a list in the same order.
        Raises: EntryNotFound; InvalidEntry; WrongArgument; LimitExceeded for a message over
        `InputLimits.message_bytes`.
        """
        entries = await self.append_many(items, parent=parent)
        return entries[0] if len(entries) == 1 else entries

    async def append_many(
        self,
        items: Sequence[Item],
        *,
        parent: Parent = LEAF,
        expected_head: int | None = None,
        expected_leaf: ExpectedLeaf = msgspec.UNSET,
        idempotency_key: str | None = None,
        contents: tuple[bytes, ...] = (),
    ) -> list[Entry]:
        """Append `items` as one unit if the session stands where the caller believes.

        `contents` are bytes that handles in `items` name, kept beside the log. Contents that no
        item names are refused.
        Durable: all or none, when this returns. With `idempotency_key`, a repeated call appends
        nothing and gives the first call's entries.
        Raises: HeadConflict, LeafConflict, IdempotencyMismatch; and as `append`.
        """
        if not isinstance(items, Sequence) or isinstance(items, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a checker would have told
            kind = type(items).__name__
            raise WrongArgument(f"append_many takes a list of messages, not {kind}")
        if not items:
            raise WrongArgument("there is nothing to append: give at least one message")
        if parent is not None and not isinstance(parent, Here):
            parent = await self._in_tree(parent)
        durable, taken = _settled(items)
        return await self._commit(
            await _all_new(durable, parent),
            bodies=durable,
            expected_head=expected_head,
            expected_leaf=await self._expected(expected_leaf),
            key=idempotency_key,
            contents=(*contents, *taken),
        )

    async def flush(self) -> None:
        """Store the session now if it is a draft.

        Raises: SessionExists when its id was taken in the meantime; it then stays a draft.
        """
        await self._backing.flush()

    # ------------------------------------------------------------ inside

    async def _note(self, body: SideBody, about: EntryId | None = None) -> Entry:
        return (await self._commit((new_side(body, about),)))[0]

    async def _commit(
        self,
        entries: tuple[NewEntry, ...],
        *,
        bodies: Sequence[Message | TreeBody] = (),
        expected_head: int | None = None,
        expected_leaf: EntryId | msgspec.UnsetType | None = msgspec.UNSET,
        key: str | None = None,
        contents: tuple[bytes, ...] = (),
    ) -> list[Entry]:
        write = Write(
            stream=self.id,
            entries=entries,
            expected_head=expected_head,
            expected_leaf=expected_leaf,
        )
        if contents:
            await asyncio.to_thread(check_contents, contents, entries)
        at = self._outside.clock.now_ms()
        commit = Commit(writes=(write,), at=at, blobs=contents, idempotency_key=key)
        appended = (await self._backing.commit(commit)).entries[0]
        await self._see(appended, bodies)
        return list(appended)

    async def _expected(self, leaf: ExpectedLeaf) -> EntryId | msgspec.UnsetType | None:
        return leaf if leaf is None or leaf is msgspec.UNSET else await self._resolve(leaf)

    async def _in_tree(self, reference: EntryRef) -> EntryId:
        """The entry, if it is part of the conversation."""
        found = await self._backing.log.entry(self.id, await self._resolve(reference))
        if found.lane != "tree":
            reason = f"{found.id} is a note ({found.kind}), not part of the conversation"
            raise InvalidEntry(reason, told=reason)
        return found.id


def settled(
    said: str | Message | InFlightMessage,
) -> tuple[str | Message, tuple[bytes, ...]]:
    """What a person says as a log can hold it, and what is kept beside it.

    Raises: ValueError for more media than a message can hold; LimitExceeded.
    """
    _require_small(said)
    return settled_message(said) if isinstance(said, InFlightMessage) else (said, ())


def _settled(items: Sequence[Item]) -> tuple[list[Message | TreeBody], tuple[bytes, ...]]:
    """`items` as a log can hold them, and what is kept beside it.

    Raises: ValueError for bytes that cannot be kept.
    """
    durable: list[Message | TreeBody] = []
    contents: dict[bytes, None] = {}
    for item in items:
        kept, taken = _settled_item(item)
        durable.append(kept)
        contents.update(dict.fromkeys(taken))
    return durable, tuple(contents)


def _settled_item(item: Item) -> tuple[Message | TreeBody, tuple[bytes, ...]]:
    _check_item(item)
    _require_small(item)
    match item:
        case Message():
            return stored_message(item) if item.role in _OF_TOOLS else (item, ())
        case InFlightMessage():
            return settled_message(item)
        case Custom():
            data = settled_data(item.data)
            return msgspec.structs.replace(item, data=data.value), data.contents
        case CustomMessage():
            data = settled_data(item.details)
            return msgspec.structs.replace(item, details=data.value), data.contents
        case _:
            return item, ()


async def _all_new(items: Sequence[Message | TreeBody], parent: ParentRef) -> tuple[NewEntry, ...]:
    """`items` as entries, one after the other. Large ones are made in a thread, one at a time."""
    made: list[NewEntry] = []
    for number, item in enumerate(items):
        after = LEAF if number else parent
        if isinstance(item, Message) and _text_bytes(item) > _LARGE:
            made.append(await asyncio.to_thread(_new, item, after))
        else:
            made.append(_new(item, after))
    return tuple(made)


def _new(item: Message | TreeBody, parent: ParentRef) -> NewEntry:
    """`item` as an entry.

    Raises: WrongArgument for a message that would be stored and never be read again; LimitExceeded.
    """
    try:
        new = new_tree(item, parent)
    except InvalidEntry:
        check_whole(item, type(item).__name__)
        raise
    require_within(_LIMIT, len(new.body), _MESSAGE)
    if isinstance(item, Message) and not _is_read_alike(item, new.body):
        check_whole(item, Message.__name__)
    return new


def _require_small(item: object) -> None:
    """Refuse a message of too much text before anything is done with it. Raises: LimitExceeded."""
    require_within(_LIMIT, _text_bytes(item), _MESSAGE)


def _text_bytes(item: object) -> int:
    """Bytes of the text in `item`. Parts of a wrong type count 0; `_new` refuses them."""
    parts: Any = getattr(item, "parts", (item,))
    if not isinstance(parts, list | tuple):
        return 0
    held: Iterable[Any] = cast("Iterable[Any]", parts)
    texts: list[Any] = [getattr(part, "text", part) for part in held]
    return sum(_bytes_of(text) for text in texts if isinstance(text, str))


def _bytes_of(text: str) -> int:
    """Bytes of `text` in UTF-8; text that cannot be written is refused later."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _is_read_alike(message: Message, body: bytes) -> bool:
    """Whether `body` is read as `message`, so that no field holds anything undeclared.

    Reading it takes a tenth of the time that looking at each field takes.
    """
    try:
        is_alike = decode_message(body) == message
    except (ValueError, RecursionError):
        return False
    if is_alike and message.usage is not None:  # JSON has greater numbers than a log
        check_whole(message.usage, type(message.usage).__name__)
    return is_alike


def _check_item(item: object) -> None:
    """Refuse what is no part of a conversation, or would be stored and never be read again.

    A message is looked at when it is written (`_new`). Raises: WrongArgument.
    """
    # The mistakes everybody makes first; a checker would have told.
    if isinstance(item, str):
        raise WrongArgument(f"append messages, not text: user({item[:40]!r})")
    if not isinstance(item, Message | InFlightMessage | TreeBody):
        kind = type(item).__name__
        raise WrongArgument(f"append messages, such as user('...'), not {kind}")
    if not isinstance(item, Message):
        check_whole(item, type(item).__name__)
