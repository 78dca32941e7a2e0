"""The lines of a session's file: records of a tool's format, with what is ours under one more key.

A line that we wrote is a record the tool reads, and ends with the key ``perdure``: an
`Ours`. The last line of what was written at once carries a `Batch`; lines of ours that none covers
were never committed. Lines without the key, or whose key names another session, are the tool's.

Only LF ends a line. Nothing here touches a file or knows a codec.
"""

from __future__ import annotations

import msgspec

from perdure.codecs.fields import Fields, name_in, number_in, text_in
from perdure.codecs.fields import fields_of as object_of
from perdure.codecs.lines import read_line
from perdure.codecs.protocol import Codec
from perdure.session.info import SessionInfo, Status, StreamHeader, with_description

FORMAT = 1
KEY = b'"perdure":'
HEADER_TYPE = "perdure.session"
"""Type of the ``custom`` record, the second of a file that we began, with the stream's header."""

_NO_JSON = msgspec.Raw()


class Batch(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was written at once, and where it left the stream.

    Units: `size` is the bytes of the batch's lines before this one, `torn` those of what was left
    before the batch by a write that never finished; `payload` the bytes of all bodies so far.
    Shape: entries `first` to `first + count - 1`; `hash` is the chain after them, `foreign` the
    chain before them where lines of the tool's came since the batch before (hexadecimal both).
    `leaf` and `turn` are seqs.
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
    """What the record does not say of the entry `seq`, of the session `of`.

    `header` and `copies`, how many entries were copied from the origin of a fork, stand in the
    second line: the first has the tool's own keys only. `more` says that the entry's next record
    follows. `parent` is a seq. `at` is there where the record's time is not exactly it. The body is
    `body`, `text` or `raw` where it is kept whole; else it is what the record says, with the fields
    of `set` and without those of `drop`.
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
    """Where a record stands, in either tool's spelling; None where a tool wrote it otherwise."""

    type: str
    id: str | None = None
    timestamp: float | str | None = None
    parent_id: str | None = None
    pi_parent: str | None = msgspec.field(name="parentId", default=None)
    ours: Ours | None = msgspec.field(name="perdure", default=None)

    @property
    def parent(self) -> str | None:
        """The record it follows."""
        return self.parent_id or self.pi_parent


_envelope = msgspec.json.Decoder(Envelope)


def envelope_of(line: bytes) -> Envelope | None:
    """Where the record `line` stands; None when it is no record, or one of ours that is damaged."""
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
    """The JSON object in `line`, mended where only lenient readers can read it; None for others."""
    return object_of(read_line(line).value)


# ---------------------------------------------------------------- writing


def line_of(fields: Fields, ours: Ours | None, codec: Codec) -> bytes:
    """The record `fields`, with `ours`, as a line without its end."""
    return codec.line(fields if ours is None else {**fields, "perdure": ours})


def batch_info(header: StreamHeader, batch: Batch) -> SessionInfo:
    """The info of the stream `header` after `batch`."""
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
