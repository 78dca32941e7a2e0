"""Convert rows to values of ``session`` and ``stores``.

``migrations/0013_log.sql`` documents the columns. This module does not communicate with a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from struct import pack
from typing import Any, LiteralString, NamedTuple, TypeVar

import msgspec
from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrBinaryDumper

from perdure.errors import CorruptLog
from perdure.errors.arguments import is_utf8
from perdure.session import ids
from perdure.session.entries import Entry
from perdure.session.ids import MOST_SEQ, EntryId, StreamId, entry_id
from perdure.session.info import SessionInfo, StreamHeader, with_description
from perdure.stores.protocol import EMPTY, StreamState

Row = tuple[Any, ...]
S = TypeVar("S", bound=msgspec.Struct)

ENTRY_COLUMNS: LiteralString = "e.stream, e.seq, e.run, e.ref, e.far, e.at, e.kind, e.v, e.body"
"""The columns of ``entry AS e`` that `entry_of` reads."""

NODE_COLUMNS: LiteralString = "e.stream, e.seq, e.run, e.depth, e.messages, e.state, e.state_far"
"""The columns of ``entry AS e`` that `node_of` reads."""

SETTLE: LiteralString = "SELECT perdure.settle(0)"
"""Sets the horizon, the position up to which no new entry can appear, without waiting."""

HORIZON: LiteralString = "SELECT current_setting('perdure.horizon')::bigint"
"""Returns the horizon that `SETTLE` set in the transaction."""

_info = msgspec.json.Decoder(SessionInfo)
_header = msgspec.json.Decoder(StreamHeader)


class Numbers(list[int]):
    """Numbers that are sent as ``bigint[]``."""


class Texts(list[str]):
    """Texts that are sent as ``text[]``."""


class Contents(list[bytes]):
    """Contents that are sent as ``bytea[]``."""


class Salts(list["bytes | None"]):
    """Salts of entries, sent as ``bytea[]``; the value None (an erased entry) is sent as NULL."""


class Node(NamedTuple):
    """The place of a tree entry on its branch. `state` refers to a row of the table ``state``."""

    stream: StreamId
    seq: int
    run: int
    depth: int
    messages: int
    state: EntryId | None


class State(NamedTuple):
    """The state that a branch inherits: its newest compaction, model and thinking entries.

    `before` is the state that applies if the newest compaction is undone.
    """

    compaction: EntryId | None = None
    model: EntryId | None = None
    thinking: EntryId | None = None
    before: EntryId | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """The current state of a stream. `tip` is the seq of the stream's own newest tree entry."""

    state: StreamState
    leaf: Node | None
    tip: int | None
    owner: str | None
    until: int

    def with_lease(self, epoch: int, owner: str | None, until: int) -> Stream:
        """Return a copy with the given lease."""
        state = msgspec.structs.replace(self.state, epoch=epoch)
        return replace(self, state=state, owner=owner, until=until)


def struct_of(kind: type[S], row: Sequence[object]) -> S:
    """Return a `kind` whose fields have the values in `row`, in this order."""
    return msgspec.convert(dict(zip(kind.__struct_fields__, row, strict=True)), kind)


def entry_of(row: Row) -> Entry:
    """Return the entry in a row of `ENTRY_COLUMNS`."""
    stream, seq, run, ref, far, at, kind, v, body = row
    target = far if ref is None else entry_id(stream, ref)
    if run is None:
        return Entry(stream, seq, "side", None, target, at, kind, v, body)
    return Entry(stream, seq, "tree", target, None, at, kind, v, body)


def node_of(row: Row) -> Node:
    """Return the node in a row of `NODE_COLUMNS`."""
    stream, seq, run, depth, messages, state, state_far = row
    named = state_far if state is None else entry_id(stream, state)
    return Node(stream, seq, run, depth, messages, named)


def info_of_row(stream: str, info: bytes) -> SessionInfo:
    """Return the info that is stored with a stream."""
    try:
        return _info.decode(info)
    except msgspec.MsgspecError as error:
        raise CorruptLog(stream, EMPTY, "its stored state is damaged") from error


def header_of_row(stream: str, header: bytes) -> StreamHeader:
    """Return the header that is stored with a stream."""
    try:
        return _header.decode(header)
    except msgspec.MsgspecError as error:
        raise CorruptLog(stream, EMPTY, "its header is damaged") from error


def stream_of(row: Row) -> Stream:
    """Return the stream in a row of ``reads.STREAM``."""
    name, head, leaf, tip, chain, epoch, owner, until, open_turn, info, header = row[:11]
    born = header_of_row(name, header)
    listed = with_description(info_of_row(name, info), born)
    state = StreamState(born, head, leaf, chain, epoch, open_turn, listed)
    return Stream(state, None if row[11] is None else node_of(row[11:]), tip, owner, until)


def place_of(reference: str) -> tuple[StreamId, int] | None:
    """Return the stream and seq of an entry id; None if the database cannot contain this id."""
    place = ids.place_of(reference)
    return None if place is None or place[1] > MOST_SEQ else place


def is_text(text: str) -> bool:
    """Return whether PostgreSQL can store `text`: it has no NUL and no lone surrogate."""
    return is_utf8(text) and "\0" not in text


def key_of(namespace: str) -> str:
    """Return the stored form of `namespace`.

    The stored form is never empty, because an empty setting means that no namespace is set.
    """
    return "\1" + namespace if namespace[:1] in ("", "\1") else namespace


class _ArrayDumper(Dumper):
    """Dumps arrays of one type in binary form, in a fifth of the time that the driver needs."""

    format = Format.BINARY
    element_oid = 0

    def dump(self, obj: Any) -> bytes:
        if not obj:
            return pack(">iiI", 0, 0, self.element_oid)
        head = pack(">iiIii", 1, 0, self.element_oid, len(obj), 1)
        return b"".join([head, *self.elements(obj)])

    def elements(self, obj: Any) -> list[bytes]:
        """Return the length and the bytes of each element separately, because they may be large."""
        return [part for each in obj for part in (pack(">i", len(each)), each)]


_AT_ONCE = 100
"""At most this many numbers are packed by one call, in a format that Python caches."""


class _NumbersDumper(_ArrayDumper):
    oid, element_oid = 1016, 20

    def elements(self, obj: Numbers) -> list[bytes]:
        if len(obj) > _AT_ONCE:
            return [pack(">iq", 8, number) for number in obj]
        sized = [8] * (2 * len(obj))
        sized[1::2] = obj
        return [pack(">" + "iq" * len(obj), *sized)]


class _TextsDumper(_ArrayDumper):
    oid, element_oid = 1009, 25

    def elements(self, obj: Texts) -> list[bytes]:
        return super().elements([text.encode() for text in obj])


class _ContentsDumper(_ArrayDumper):
    oid, element_oid = 1001, 17


class _SaltsDumper(_ArrayDumper):
    oid, element_oid = 1001, 17

    def dump(self, obj: Salts) -> bytes:
        if None not in obj:
            return super().dump(obj)
        head = pack(">iiIii", 1, 1, self.element_oid, len(obj), 1)
        null = pack(">i", -1)
        return head + b"".join(
            null if salt is None else pack(">i", len(salt)) + salt for salt in obj
        )


def set_types(db: AdaptContext) -> None:
    """Send numbers as bigint and strings as text.

    By default, psycopg chooses the type of a number by its value, so the same statement would be
    prepared once for each type.
    """
    db.adapters.register_dumper(int, Int8BinaryDumper)
    db.adapters.register_dumper(str, StrBinaryDumper)
    db.adapters.register_dumper(list, ListBinaryDumper)
    db.adapters.register_dumper(Numbers, _NumbersDumper)
    db.adapters.register_dumper(Texts, _TextsDumper)
    db.adapters.register_dumper(Contents, _ContentsDumper)
    db.adapters.register_dumper(Salts, _SaltsDumper)
