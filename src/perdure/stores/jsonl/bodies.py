"""Convert a body to records and back; extra fields contain what the records cannot express.

Usually the record alone gives the body byte for byte, and perdure stores nothing else. If a record
cannot express the whole body, perdure also stores the missing fields, or the whole body. Invariant:
`restore_body` of the lines made by `entry_lines` returns the body, for any bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.codecs.fields import Fields, text_in
from perdure.codecs.ids import written_id
from perdure.codecs.media import Media
from perdure.codecs.protocol import Codec, Said, WriteContext, carried_body, stands_as_json
from perdure.codecs.shared_keys import OURS, with_meta
from perdure.errors import PerdureError
from perdure.session.codec import BODIES, encode, readable
from perdure.session.entries import Entry
from perdure.session.kinds import OPAQUE, TreeBody
from perdure.session.messages import MESSAGE, MESSAGE_VERSION, Message
from perdure.session.notes import SideBody
from perdure.stores.jsonl.lines import (
    Ours,
    fields_of,
    line_of,
)

_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])

Known = Message | TreeBody | SideBody
Parent = str | None


class EntryLines(msgspec.Struct, frozen=True):
    """The lines of an entry. `line` makes the last line again, with the end of a commit."""

    lines: tuple[bytes, ...]
    last: Fields
    ours: Ours
    last_id: str

    def line(self, ours: Ours, codec: Codec) -> bytes:
        """Return the last line, with `ours` as perdure's own fields."""
        return line_of(self.last, ours, codec)


def entry_lines(
    entry: Entry, ours: Ours, parent: Parent, writing: WriteContext, codec: Codec
) -> EntryLines:
    """Return the records of `entry`; the first record has the parent `parent`.

    `ours` contains the fields of the entry that records cannot express.
    """
    records = codec.records(entry, readable(entry), writing)
    patch = _patch(entry, records, codec)
    kept = ours if patch is None else msgspec.structs.replace(ours, set=patch[0], drop=patch[1])
    made = _lines(entry, records, kept, parent, codec)
    if all(made.lines) and restore_body(made.lines, made.ours, codec) == entry.body:
        return made
    return _lines(entry, records, _whole(ours, entry.body, codec), parent, codec)


def _lines(
    entry: Entry, records: Sequence[Fields], ours: Ours, parent: Parent, codec: Codec
) -> EntryLines:
    lines: list[bytes] = []
    own, placed, mine = "", {}, ours
    for ordinal, record in enumerate(records):
        own = written_id(entry.id, ordinal)
        placed = codec.placed(record, own, parent, entry.at)
        parent = own
        is_last = ordinal == len(records) - 1
        mine = ours if is_last else Ours(of=ours.of, seq=ours.seq, more=True)
        if is_last and codec.time_of(placed["timestamp"]) != entry.at:
            mine = msgspec.structs.replace(mine, at=entry.at)
        lines.append(_line_or_empty(placed, mine, codec))
    return EntryLines(tuple(lines), placed, mine, own)


def _line_or_empty(placed: Fields, ours: Ours, codec: Codec) -> bytes:
    try:
        return line_of(placed, ours, codec)
    except (TypeError, ValueError, RecursionError):
        return b""  # a body that cannot be written is stored whole


def _whole(ours: Ours, body: bytes, codec: Codec) -> Ours:
    if ours.kind != OPAQUE and stands_as_json(body, is_escaped=codec.is_escaped):
        return msgspec.structs.replace(ours, body=msgspec.Raw(body))
    try:
        return msgspec.structs.replace(ours, text=body.decode())
    except UnicodeDecodeError:
        return msgspec.structs.replace(ours, raw=body)


# ---------------------------------------------------------------- bodies without a record

Patch = tuple[dict[str, msgspec.Raw] | None, tuple[str, ...]]


def _patch(entry: Entry, records: Sequence[Fields], codec: Codec) -> Patch | None:
    """Return the fields to set and the fields to drop, so that `records` give the body.

    Return None if no such fields can be computed; the body must then be stored whole.
    """
    try:
        plain = _plain(_join_records([codec.said(record, Media()) for record in records]))
        if plain == entry.body:
            return None, ()
        ours, theirs = _raw_fields.decode(entry.body), _raw_fields.decode(plain)
    except (ValueError, TypeError, RecursionError, PerdureError):
        return None
    changed = {
        name: raw
        for name, raw in ours.items()
        if name not in theirs or bytes(theirs[name]) != bytes(raw)
    }
    return changed or None, tuple(name for name in theirs if name not in ours)


def _join_records(said: Sequence[Said]) -> Said:
    """Join the contents of one entry's records, such as the results of a tool message."""
    first = said[0].body
    if len(said) == 1 or not isinstance(first, Message):
        return said[-1]  # Operator writes retained messages before their compaction
    parts = (part for each in said if isinstance(each.body, Message) for part in each.body.parts)
    return msgspec.structs.replace(said[0], body=msgspec.structs.replace(first, parts=tuple(parts)))


def _plain(said: Said) -> bytes:
    return with_meta(encode(said.body), said.meta)


def restore_body(lines: Sequence[bytes], ours: Ours, codec: Codec) -> bytes | None:
    """Return the body stored in `lines`; None if they are damaged."""
    if bytes(ours.body):
        return bytes(ours.body)
    if ours.text is not None:
        return ours.text.encode()
    if ours.raw is not None:
        return ours.raw
    found = [fields_of(line) for line in lines]
    fields = [each for each in found if each is not None]
    if not fields or len(fields) < len(found):
        return None
    if _is_carrier(fields[0], ours):
        return carried_body(lines[0]) or None
    try:
        return _patched_body(_join_records([codec.said(each, Media()) for each in fields]), ours)
    except (ValueError, TypeError, RecursionError, PerdureError):
        return None


def _is_carrier(fields: Fields, ours: Ours) -> bool:
    name = text_in(fields, "custom_type") or text_in(fields, "customType")
    return fields.get("type") == "custom" and name == OURS + ours.kind


def _patched_body(said: Said, ours: Ours) -> bytes | None:
    known = Message if ours.kind == MESSAGE else BODIES.get(ours.kind)
    if known is None or not isinstance(said.body, known):
        return None
    if ours.v != (MESSAGE_VERSION if ours.kind == MESSAGE else BODIES[ours.kind].version):
        return None
    plain = _plain(said)
    if ours.set is None and not ours.drop:
        return plain
    fields = {k: raw for k, raw in _raw_fields.decode(plain).items() if k not in ours.drop}
    fields |= ours.set or {}
    body = encode(msgspec.json.decode(msgspec.json.encode(fields), type=known))
    further = {name: raw for name, raw in fields.items() if name not in known.__struct_fields__}
    return _with_further(body, further)


def _with_further(body: bytes, further: dict[str, msgspec.Raw]) -> bytes:
    """Return `body` with the additional fields that its class does not define."""
    if not further:
        return body
    added = msgspec.json.encode(further)[1:]
    return body[:-1] + (b"" if body == b"{}" else b",") + added
