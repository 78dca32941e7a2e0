"""The rows of the index of a session file: the header, the locations of entries, the keys."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from perdure.codecs.fields import Fields, name_in
from perdure.codecs.protocol import Codec
from perdure.session.entries import Lane
from perdure.session.ids import EntryId, StreamId, stream_id
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE, Compaction, ModelChange, ThinkingChange
from perdure.session.messages import MESSAGE
from perdure.stores.chain import HASH_BYTES
from perdure.stores.jsonl.lines import Batch, Envelope, Ours

HEADERS = ("session", "session_header")
"""Types of a header record: the type that tools write, and the type in Operator's documentation."""


class Row(msgspec.Struct, gc=False):
    """The location of an entry.

    If a later record names the record of this entry as its parent, `anchor` is the parent of the
    later record's entry.
    Units: bytes; `size` is 0 if the line is lost. Shape: a field that refers to another entry
    contains its sequence number (seq). `part` is the number of the entry among the entries of its
    record. `depth` is the number of entries before this entry on its branch. `messages` is the
    number of messages up to and including this entry. `compaction`, `model` and `thinking` are the
    newest compaction, model and thinking entries on the branch.
    """

    offset: int
    size: int
    kind: str
    v: int
    lane: Lane
    at: int
    is_ours: bool
    part: int = 0
    parent: int | None = None
    about: EntryId | None = None
    anchor: int | None = None
    record: str | None = None
    depth: int = -1
    messages: int = 0
    compaction: int | None = None
    model: int | None = None
    thinking: int | None = None


class Key(NamedTuple):
    """The use of an idempotency key at time `at` for the entries from `first` to before `end`."""

    asked: bytes
    first: int
    end: int
    at: int


_ABOVE_ROOT = Row(0, 0, "", 1, "tree", 0, is_ours=False)


def lost_row(anchor: int | None) -> Row:
    """Return the row of an entry whose line cannot be read."""
    return Row(0, 0, OPAQUE, 1, "side", 0, is_ours=True, anchor=anchor)


def place(row: Row, rows: list[Row], parent: int | None) -> None:
    """Add `row` to `rows`; `parent` is the parent of a tree entry or the anchor of a side entry."""
    seq = len(rows)
    rows.append(row)
    if row.lane == "side":
        row.anchor = parent
        return
    row.parent, row.anchor = parent, seq
    above = rows[parent] if parent is not None else _ABOVE_ROOT
    row.depth = above.depth + 1
    row.messages = above.messages + (row.kind == MESSAGE)
    row.compaction = seq if row.kind == Compaction.kind else above.compaction
    row.model = seq if row.kind == ModelChange.kind else above.model
    row.thinking = seq if row.kind == ThinkingChange.kind else above.thinking


def is_sound(batch: Batch, lines: int) -> bool:
    """Return whether a batch of at most `lines` lines is consistent."""
    end = batch.first + batch.count
    try:
        chains = [bytes.fromhex(chain) for chain in (batch.hash, batch.foreign or batch.hash)]
    except ValueError:
        return False
    places = (batch.leaf or 0, batch.turn or 0)
    return (
        0 <= batch.first <= end
        and batch.count <= lines
        and all(0 <= place < max(end, 1) for place in places)
        and all(len(chain) == HASH_BYTES for chain in chains)
    )


def header_of(envelope: Envelope, fields: Fields, codec: Codec) -> StreamHeader | None:
    """Return the stream header from a file's first record; None if the record is not a header.

    If another program created the session, only that program's header is known, and the session's
    origin is ``user``.
    """
    if envelope.type not in HEADERS or envelope.id is None:
        return None
    at = codec.time_of(envelope.timestamp)
    return StreamHeader(
        id=usable_id(envelope.id), created_at=at or 0, cwd=name_in(fields, "cwd") or None
    )


def own_header_of(ours: Ours | None, stream: StreamId) -> StreamHeader | None:
    """Return the header of `stream`, if `ours` is from line two of a file that perdure created."""
    header = None if ours is None or ours.of != stream else ours.header
    return header if header is not None and header.id == stream else None


def usable_id(name: str) -> StreamId:
    """Return `name` as a stream id, or an id made of its hash if it is invalid."""
    try:
        return stream_id(name)
    except ValueError:
        return StreamId("x" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:31])
