"""Entries: the immutable records of a log, and the form of an entry before it is appended.

The entries of both lanes share one numbering, ``seq``, which has no gaps. *Tree* entries are the
conversation: each has a parent (None at a root) and becomes the leaf, from which the conversation
continues. *Side* entries describe the conversation, or the entry that ``about`` names, and are
never parents. Of the side entries, only those of kind ``leaf`` move the leaf. Entries are always
ordered by ``seq``, never by time. The module ``kinds`` defines the tree kinds;
the modules ``notes`` and ``ledger`` define the side kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Literal

import msgspec

from perdure.errors import CorruptLog
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.messages import MESSAGE, Message, decode_message

Lane = Literal["tree", "side"]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One stored record of a log.

    Units: `at` is Unix milliseconds, the time of the event (imports keep the source's times).
    Shape: `body` is the original JSON, byte for byte, unknown fields included; `v` is the version
    of the entry's kind. A side entry's `about` and a tree entry's `parent_id` can refer to an entry
    of another stream, from which this stream was forked.
    """

    stream: StreamId
    seq: int
    lane: Lane
    parent_id: EntryId | None
    about: EntryId | None
    at: int
    kind: str
    v: int
    body: bytes

    def __repr__(self) -> str:
        what = "erased" if self.is_erased else f"{len(self.body)} bytes"
        return f"<Entry {self.id!r} {self.kind} {what}>"

    @property
    def id(self) -> EntryId:
        """Return the id of the entry in the form ``<stream>/<seq>``."""
        return entry_id(self.stream, self.seq)

    @property
    def is_erased(self) -> bool:
        """Return True if the body was erased; the body of an erased entry is empty.

        Exception: an opaque entry that was empty from the start looks like an erased entry.
        """
        return not self.body

    @property
    def message(self) -> Message | None:
        """Return the message of a ``message`` entry, decoded at each access.

        Shape: the result is None for an entry of another kind, and for an erased message.
        Raises: UnsupportedVersion if a newer perdure wrote the message; CorruptLog if the body is
        not a message.
        """
        if self.kind != MESSAGE or self.is_erased:
            return None
        try:
            return decode_message(self.body, self.v)
        except (ValueError, RecursionError) as error:
            raise CorruptLog(self.stream, self.seq, "its message body is not valid") from error

    @property
    def text(self) -> str:
        """Return the text of the message; "" if there is none. Raises: the errors of `message`."""
        message = self.message
        return "" if message is None else message.text


class Positioned(msgspec.Struct, frozen=True):
    """An entry with its position in the order of all entries of the namespace."""

    position: int
    entry: Entry


class Here(Enum):
    """A parent that is known only at commit time, for example the leaf."""

    LEAF = "leaf"


LEAF = Here.LEAF


class Sibling(msgspec.Struct, frozen=True):
    """Refers to an earlier entry of the same write by its `index` (from 0)."""

    index: int


Ref = EntryId | Sibling
ParentRef = EntryId | Sibling | Here | None


class NewEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry to append, before the store assigns its position.

    In the tree lane, `parent` is `LEAF`, an entry's id, a sibling, or None for a new root. If `at`
    is None, the entry gets the time of the commit. `alias` is the id of the entry in another
    program.
    """

    kind: str
    body: bytes
    v: int = 1
    lane: Lane = "tree"
    parent: ParentRef = LEAF
    about: Ref | None = None
    at: int | None = None
    alias: str | None = None


def copied(entry: Entry, alias: str | None = None) -> NewEntry:
    """Return `entry` as a new entry, with the same references."""
    parent, about, at = entry.parent_id, entry.about, entry.at
    return NewEntry(entry.kind, entry.body, entry.v, entry.lane, parent, about, at, alias)


def with_references(new: NewEntry, refer: Callable[[Ref], Ref]) -> NewEntry:
    """Return `new` with each of its references replaced by the result of `refer`."""
    parent = new.parent if isinstance(new.parent, Here | None) else refer(new.parent)
    about = None if new.about is None else refer(new.about)
    return msgspec.structs.replace(new, parent=parent, about=about)
