"""The contents and aliases of the entries in a thread's session."""

from __future__ import annotations

import logging
from typing import Any, Final, TypeVar

import msgspec

import perdure
from perdure.adapters.langgraph.values import Record

CHECKPOINT: Final = "langgraph.checkpoint"
NEWEST: Final = "langgraph.newest"
WRITES: Final = "langgraph.writes"
DELETED: Final = "langgraph.deleted"

Key = tuple[str, str]
"""Namespace and id of a checkpoint."""

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class CheckpointBody(msgspec.Struct, frozen=True, gc=False):
    """The data of an entry that stores a checkpoint.

    Shape: `values` maps each channel to the record of its value (`values.py`). Reading the values
    needs the last `window` checkpoints on the path to this entry. `said` is the number of messages
    that were appended directly before this entry for people to read. `shown` is the number of
    messages in the checkpoint's state; the next checkpoint appends only later messages for people
    to read. In the namespace of a subgraph, `said` and `shown` are 0.
    """

    ns: str
    id: str
    parent: str | None
    state: dict[str, Any]
    values: dict[str, dict[str, Any]]
    window: int
    shown: int
    said: int


class WritesBody(msgspec.Struct, frozen=True, gc=False):
    """The data of a note that stores pending writes; `before` is the id of the previous note."""

    ns: str
    checkpoint: str
    before: str | None
    writes: list[tuple[str, str, int, str, str, dict[str, Any]]]


class NewestBody(msgspec.Struct, frozen=True, gc=False):
    """The data of a note that names the newest checkpoint of a namespace.

    `checkpoint` is None if the namespace has no checkpoint.
    """

    ns: str
    checkpoint: str | None


class DeletedBody(msgspec.Struct, frozen=True, gc=False):
    """The data of a note that records a deleted checkpoint, and hides it in forks."""

    ns: str
    checkpoint: str


class Place(msgspec.Struct, frozen=True, gc=False):
    """The namespace and the id of a checkpoint.

    `is_again` is True if the checkpoint was stored again because other checkpoints were deleted.
    """

    ns: str
    id: str
    is_again: bool = False

    @property
    def key(self) -> Key:
        """The namespace and the id, as a tuple."""
        return self.ns, self.id


class _Body(msgspec.Struct, gc=False):
    custom_type: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


_body = msgspec.json.Decoder(_Body)
_place = msgspec.json.Decoder(Place)
_checkpoint = msgspec.json.Decoder(CheckpointBody)


def checkpoint_in(entry: perdure.Entry) -> CheckpointBody | None:
    """Return the checkpoint data in `entry`; None if `entry` is erased or not a checkpoint."""
    return _decoded(entry, _checkpoint)


def place_in(entry: perdure.Entry) -> Place | None:
    """Return the namespace and id of the checkpoint in `entry`, or None; does not decode values."""
    return _decoded(entry, _place)


def _decoded(entry: perdure.Entry, decoder: msgspec.json.Decoder[T]) -> T | None:
    if entry.kind != "custom" or entry.is_erased:
        return None
    try:
        body = _body.decode(entry.body)
        return decoder.decode(body.data) if body.custom_type == CHECKPOINT else None
    except msgspec.MsgspecError:
        _logger.warning("entry %s is not counted: this adapter did not write it", entry.id)
        return None


def note_in(entry: perdure.Entry, shape: type[T]) -> T | None:
    """Return the data of a note as type `shape`; warn and return None if the data does not fit."""
    note = perdure.body_of(entry)
    try:
        return msgspec.convert(note.data if isinstance(note, perdure.Note) else None, shape)
    except msgspec.ValidationError:
        _logger.warning("note %s is not counted: this adapter did not write it", entry.id)
        return None


def newest_note(ns: str, id: str | None) -> perdure.Note:
    """Return a note which records that `id` is the newest checkpoint of `ns`."""
    return perdure.Note(NEWEST, {"ns": ns, "checkpoint": id})


def writes_note(ns: str, id: str, before: str | None, writes: list[list[object]]) -> perdure.Note:
    """Return a note that stores pending writes of the checkpoint `id`."""
    data: Record = {"ns": ns, "checkpoint": id, "before": before, "writes": writes}
    return perdure.Note(WRITES, data)


def checkpoint_alias(ns: str, id: str) -> str:
    """Return the alias of a checkpoint."""
    return f"langgraph/{ns}/{id}"


def newest_alias(ns: str) -> str:
    """Return the alias of the note that names the newest checkpoint of `ns`."""
    return f"langgraph-newest/{ns}/"


def writes_alias(ns: str, id: str) -> str:
    """Return the alias of the notes that store pending writes of a checkpoint."""
    return f"langgraph-writes/{ns}/{id}"
