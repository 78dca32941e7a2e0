"""The entry: one immutable record of a log, and the form it has before it is appended.

Two lanes share one dense ``seq``. *Tree* entries are the conversation: each has a parent (None at
a root) and moves the leaf. *Side* entries speak about it (``about`` names an entry, or nothing)
and are nobody's parent; of them only ``leaf`` moves the leaf. Order is always ``seq``, never time.
What the kinds mean is in ``kinds`` (tree), ``notes`` and ``ledger`` (side).
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

import msgspec

from perdure.errors import CorruptLog
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.messages import MESSAGE, Message, decode_message

Lane = Literal["tree", "side"]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One record as the log holds it.

    Units: `at` is Unix milliseconds, of the event it records (an import keeps the source's times).
    Shape: `body` is the JSON it was written with, byte for byte, unknown fields included; `v` is
    the version of its kind. A side entry's `about` and a tree entry's `parent_id` may lie in
    another stream, from which this one was forked.
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
        """``<stream>/<seq>``."""
        return entry_id(self.stream, self.seq)

    @property
    def is_erased(self) -> bool:
        """Its body was erased: what is left is its place. Every body that was appended says more.

        An opaque entry may have been empty from the beginning, and then is not told apart.
        """
        return not self.body

    @property
    def message(self) -> Message | None:
        """The message of a ``message`` entry, decoded anew at each use; None for other kinds.

        Raises: UnsupportedVersion when a newer perdure wrote it; CorruptLog when it is no message.
        """
        if self.kind != MESSAGE:
            return None
        try:
            return decode_message(self.body, self.v)
        except (ValueError, RecursionError) as error:
            raise CorruptLog(self.stream, self.seq, "its message body is not valid") from error


class Positioned(msgspec.Struct, frozen=True):
    """An entry with its place in the order of all entries of the namespace."""

    position: int
    entry: Entry


class Here(Enum):
    """The parent that is only known inside the commit."""

    LEAF = "leaf"


LEAF = Here.LEAF


class Sibling(msgspec.Struct, frozen=True):
    """The entry at `index` (from 0) of the same write; it must come earlier in it."""

    index: int


Ref = EntryId | Sibling
ParentRef = EntryId | Sibling | Here | None


class NewEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry before the store gave it its place.

    `parent` (tree lane) is `LEAF`, None for a new root, an entry's id or a sibling. `at` None means
    the commit's time. `alias` is the id another program knows the entry by.
    """

    kind: str
    body: bytes
    v: int = 1
    lane: Lane = "tree"
    parent: ParentRef = LEAF
    about: Ref | None = None
    at: int | None = None
    alias: str | None = None
