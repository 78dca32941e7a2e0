"""The lines of a session's file: records in another program's format, with a key of perdure.

A line written by perdure is a valid record of the other program's format, and ends with the key
``perdure``, whose value is an `Ours`. The last line of each write also has a `Batch`. Lines of
perdure that no `Batch` follows were never committed. A line without the key ``perdure``, or with a
key that names another session, counts as a line of another program. Only LF ends a line. This
module accesses no file and depends on no codec.
"""

from __future__ import annotations

import msgspec

from perdure.codecs.fields import Fields, name_in, number_in, text_in
from perdure.codecs.fields import fields_of as object_of
from perdure.codecs.lines import read_line
from perdure.codecs.protocol import Codec
from perdure.session.info import SessionInfo, Status, StreamHeader, with_description

BACKEND = "jsonl"

FORMAT = 1
KEY = b'"perdure":'
HEADER_TYPE = "perdure.session"
"""Type of the ``custom`` record with the stream's header, in line two of perdure's own files."""

_NO_JSON = msgspec.Raw()


class Batch(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Describes one write of perdure, and the state of the stream after it.

    Units: bytes. `size` is the length of the batch's lines without the line that contains this
    `Batch`. `torn` is the length of an unfinished write before the batch. `payload` is the length
    of all bodies so far.
    Shape: the batch has the entries from `first` to `first + count - 1`. `hash` is the hash of the
    chain after the batch. `foreign` is the hash of the chain before the batch, set only if another
    program wrote lines since the previous batch. `hash` and `foreign` are hexadecimal. `leaf` and
    `turn` are seqs.
    """

    first: int
    count: int
    size: int
    at: int
    hash: str
    payload: int
    updated_at: int
    epoch: int = 0
    leaf: int | None = None
    turn: int | None = None
    messages: int = 0
    turns: int = 0
    status: Status = "active"
    title: str | None = None
    first_text: str | None = None
    cwd: str | None = None
    key: str | None = None
    asked: bytes | None = None
    foreign: str | None = None
    torn: int = 0


class Ours(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The fields of an entry that its record cannot express.

    `of` is the session of the entry, and `seq` is its seq. `header` and `copies` (the number of
    entries copied by a fork) are in the file's second line, because the first line has only keys of
    the file's own format. `more` means that the next record belongs to the same entry. `parent` is
    a seq. `at` is set if the record's time is not exact. If the whole body is stored, it is in
    `body`, `text` or `raw`. If the body is not stored whole, the body is the content of the record
    with the fields of `set` and without the fields of `drop`.
    """

    of: str
    seq: int = -1
    format: int = FORMAT
    header: StreamHeader | None = None
    copies: int = 0
    more: bool = False
    kind: str = "message"
    v: int = 1
    side: bool = False
    parent: int | None = None
    about: str | None = None
    at: int | None = None
    alias: str | None = None
    body: msgspec.Raw = _NO_JSON
    text: str | None = None
    raw: bytes | None = None
    set: dict[str, msgspec.Raw] | None = None
    drop: tuple[str, ...] = ()
    salt: bytes = b""
    digest: bytes = b""
    batch: Batch | None = None


class Envelope(msgspec.Struct, frozen=True):
    """The id, time and parent of a record. Operator sets `parent_id`, pi sets `pi_parent`."""

    type: str
    id: str | None = None
    timestamp: float | str | None = None
    parent_id: str | None = None
    pi_parent: str | None = msgspec.field(name="parentId", default=None)
    ours: Ours | None = msgspec.field(name="perdure", default=None)

    @property
    def parent(self) -> str | None:
        """The id of the parent record."""
        return self.parent_id or self.pi_parent


_envelope = msgspec.json.Decoder(Envelope)


def envelope_of(line: bytes) -> Envelope | None:
    """Return the envelope of `line`; None if `line` is no record or a damaged own record."""
    try:
        found = _envelope.decode(line)
        if not line.isascii():
            line.decode()  # skipped parts are not checked otherwise
    except (ValueError, RecursionError):
        return None if KEY in line else _foreign_envelope(fields_of(line))
    return found


def _foreign_envelope(fields: Fields | None) -> Envelope | None:
    kind = None if fields is None else name_in(fields, "type")
    if fields is None or kind is None:
        return None
    return Envelope(
        type=kind,
        id=name_in(fields, "id"),
        timestamp=text_in(fields, "timestamp") or number_in(fields, "timestamp"),
        parent_id=name_in(fields, "parent_id"),
        pi_parent=name_in(fields, "parentId"),
    )


def fields_of(line: bytes) -> Fields | None:
    """Return the JSON object in `line`, repaired if needed; None if `line` contains no object."""
    return object_of(read_line(line).value)


# ---------------------------------------------------------------- writing


def line_of(fields: Fields, ours: Ours | None, codec: Codec) -> bytes:
    """Encode the record `fields`, and `ours` in it, as one line without a line break."""
    return codec.line(fields if ours is None else {**fields, "perdure": ours})


def batch_info(header: StreamHeader, batch: Batch) -> SessionInfo:
    """Return the info of the stream `header` after `batch`."""
    info = SessionInfo(
        id=header.id,
        kind=header.kind,
        origin=header.origin,
        created_at=header.created_at,
        updated_at=batch.updated_at,
        title=batch.title,
        first_text=batch.first_text,
        cwd=batch.cwd,
        parent=header.parent,
        messages=batch.messages,
        entries=batch.first + batch.count,
        turns=batch.turns,
        status=batch.status,
        open_turn=batch.turn,
    )
    return with_description(info, header)
