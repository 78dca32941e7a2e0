"""Store the items of a source while it is read: complete items, or only their outline.

A small source is read once, and its items stay in memory completely (`Whole`). A source that is too
large to stay in memory is read twice: the first pass builds the `Outline` of the source. For each
item, the outline uses about sixty bytes plus the item's id, regardless of the length of the item's
line. The second pass returns the items one by one, with their bodies (`PassingItems`). Later lines
can change earlier items (their usage, the session's title); in the second pass, the outline already
contains these changes.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import Protocol, overload

import msgspec

from perdure.errors import FormatError
from perdure.interop.formats.items import Item, ItemBody
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import Message, Usage
from perdure.session.notes import ImportedRecord, Label, LeafMoved, SessionInfoChanged

_BARE: tuple[ItemBody, ...] = (
    Message("user", ()),
    b"",
    Compaction(""),
    BranchSummary(""),
    ModelChange(""),
    ThinkingChange(""),
    Custom("", None),
    CustomMessage("", ()),
    LeafMoved(None),
    Label(None),
    SessionInfoChanged(),
    ImportedRecord("", ""),
)
"""Empty bodies, one per kind, that replace the bodies that an outline does not store."""

_KINDS: dict[type, int] = {type(body): number for number, body in enumerate(_BARE)}
_NONE = -1
_NO_TIME = -(2**63)
_CHANGED = "it changed while it was read; import it again"


class Items(Protocol):
    """Receives the items of a source."""

    def add(self, item: Item, otherwise: ItemBody | None = None) -> int:
        """Add the next item; return its position.

        `otherwise` is an alternative body. The item gets the alternative body if `choose` is called
        for the item later.
        """
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> Item: ...

    def set_usage(self, position: int, usage: Usage | None) -> None:
        """Set the `usage` of the message at `position`."""
        ...

    def choose(self, position: int) -> None:
        """Replace the body of the item at `position` by the alternative body given to `add`.

        The alternative body describes the session (for example its title), not the conversation.
        """
        ...


class Whole:
    """All items of a source, with their bodies."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._otherwise: dict[int, ItemBody] = {}

    def add(self, item: Item, otherwise: ItemBody | None = None) -> int:
        """Add the next item."""
        items = self.items
        if otherwise is not None:
            self._otherwise[len(items)] = otherwise
        items.append(item)
        return len(items) - 1

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: int, /) -> Item:
        return self.items[position]

    def set_usage(self, position: int, usage: Usage | None) -> None:
        """Set the `usage` of the message at `position`."""
        self.items[position] = with_usage(self.items[position], usage)

    def choose(self, position: int) -> None:
        """Replace the body of the item at `position` by the alternative body given to `add`."""
        self.items[position] = _outline_item(self.items[position], self._otherwise[position])


class Outline(Sequence[Item]):
    """The offsets and kinds of all items of a source, without their bodies.

    Shape: `opaque` has the digests of opaque bytes.
    """

    def __init__(self) -> None:
        self.usages: dict[int, Usage | None] = {}
        self.chosen: set[int] = set()
        self.opaque: dict[int, bytes] = {}
        self._kinds = array("B")
        self._ordinals = array("B")
        self._numbers = array("q")
        self._offsets = array("q")
        self._lengths = array("q")
        self._links = array("q")  # the parent of a tree item, the subject of a note
        self._times = array("q")
        self._aliases: list[str | None] = []
        self._references: dict[int, dict[str, int]] = {}
        self._groups: dict[int, str] = {}

    def add(self, item: Item, otherwise: ItemBody | None = None) -> int:
        """Add the next item without its body."""
        del otherwise
        position = len(self._kinds)
        if isinstance(item.body, bytes):
            self.opaque[position] = digest_of_opaque(item.body)
        if item.references:
            self._references[position] = item.references
        if item.group is not None:
            self._groups[position] = item.group
        link = item.parent if item.about is None else item.about
        self._kinds.append(_KINDS[type(item.body)])
        self._ordinals.append(item.ordinal)
        self._numbers.append(item.number)
        self._offsets.append(item.offset)
        self._lengths.append(item.length)
        self._links.append(_NONE if link is None else link)
        self._times.append(_NO_TIME if item.at is None else item.at)
        self._aliases.append(item.alias)
        return position

    def __len__(self) -> int:
        return len(self._kinds)

    @overload
    def __getitem__(self, position: int, /) -> Item: ...

    @overload
    def __getitem__(self, position: slice, /) -> list[Item]: ...

    def __getitem__(self, position: int | slice, /) -> Item | list[Item]:
        if isinstance(position, slice):
            return [self._item(each) for each in range(*position.indices(len(self)))]
        return self._item(position)

    def _item(self, position: int) -> Item:
        body = _BARE[self._kinds[position]]
        link = None if self._links[position] == _NONE else self._links[position]
        item = Item(
            body=body,
            number=self._numbers[position],
            offset=self._offsets[position],
            length=self._lengths[position],
            ordinal=self._ordinals[position],
            at=None if self._times[position] == _NO_TIME else self._times[position],
            alias=self._aliases[position],
            references=self._references.get(position),
            group=self._groups.get(position),
        )
        if item.lane == "tree":
            item.parent = link
        else:
            item.about = link
        return _outline_item(item, SessionInfoChanged()) if position in self.chosen else item

    def set_usage(self, position: int, usage: Usage | None) -> None:
        """Set the `usage` of the message at `position`."""
        self.usages[position] = usage

    def choose(self, position: int) -> None:
        """Record that the item at `position` gets the alternative body given to `add`."""
        self.chosen.add(position)

    def place(self, position: int) -> tuple[int, int]:
        """Return the byte offset of the item's line, and the item's number within this line."""
        return self._offsets[position], self._ordinals[position]


class PassingItems:
    """Receives the items of `outline` again in a second pass, and returns them with bodies."""

    def __init__(self, outline: Outline, name: str) -> None:
        self.waiting_bytes = 0
        self._waiting: list[Item] = []
        self._outline = outline
        self._name = name
        self._count = 0

    def add(self, item: Item, otherwise: ItemBody | None = None) -> int:
        """Add the next item.

        Raises: FormatError if the item differs from the item in the first pass.
        """
        position, outline = self._count, self._outline
        self._count += 1
        if position >= len(outline) or outline.place(position) != (item.offset, item.ordinal):
            raise FormatError(self._name, _CHANGED)
        if position in outline.usages:
            item = with_usage(item, outline.usages[position])
        if position in outline.chosen and otherwise is not None:
            item = _outline_item(item, otherwise)
        self._waiting.append(item)
        self.waiting_bytes += item.length
        return position

    def take(self) -> list[Item]:
        """Return the items added since the last call."""
        taken, self._waiting, self.waiting_bytes = self._waiting, [], 0
        return taken

    def check_complete(self) -> None:
        """Raise FormatError if the source had more items in the first pass."""
        if self._count != len(self._outline):
            raise FormatError(self._name, _CHANGED)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: int, /) -> Item:
        return self._outline[position]

    def set_usage(self, position: int, usage: Usage | None) -> None:
        """Do nothing, because the outline already contains this change from the first pass."""

    def choose(self, position: int) -> None:
        """Do nothing, because the outline already contains this change from the first pass."""


def with_usage(item: Item, usage: Usage | None) -> Item:
    """Return `item` with `usage` if it is a message; otherwise return it unchanged."""
    if not isinstance(item.body, Message):
        return item
    body = msgspec.structs.replace(item.body, usage=usage)
    return msgspec.structs.replace(item, body=body)


def _outline_item(item: Item, body: ItemBody) -> Item:
    return msgspec.structs.replace(item, body=body, about=None)


def digest_of_opaque(body: bytes) -> bytes:
    """Return the digest that identifies the bytes of an opaque entry."""
    return hashlib.sha256(body).digest()
