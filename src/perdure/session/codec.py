"""Encode and decode bodies, and entries as single JSON lines.

The log stores the original bytes of a body. Bodies are decoded when they are read and never
re-encoded, so unknown kinds and unknown fields are preserved everywhere. Decoding is lenient where
a log must stay readable: an unknown kind becomes an `Unknown`, and an unknown part of a message
becomes an `UnknownPart`. Decoding is strict where a wrong guess could do harm: a newer version of a
known kind raises an error.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.errors import CorruptLog, InvalidEntry, UnsupportedVersion
from perdure.errors.arguments import wrong
from perdure.session import kinds, ledger, notes
from perdure.session.entries import LEAF, Entry, Lane, NewEntry, ParentRef, Ref
from perdure.session.flows import kinds as flow_kinds
from perdure.session.ids import EntryId, entry_place
from perdure.session.kinds import OPAQUE, TreeBody
from perdure.session.media_storage.handles import inline_in, values_in
from perdure.session.memory import kinds as memory_kinds
from perdure.session.messages import MESSAGE, MESSAGE_VERSION, Message, with_unknown_parts
from perdure.session.notes import SideBody
from perdure.session.upgrade import upgrade_body


class Unknown(ShortRepr, frozen=True):
    """The unchanged body of a kind that this version does not know, or a body that is not JSON."""

    kind: str
    v: int
    raw: bytes


Body = Message | TreeBody | SideBody | Unknown

KIND_MODULES = (kinds, notes, ledger, flow_kinds, memory_kinds)
"""The modules that define kinds, one class per kind.

`BODIES` is complete when all these modules are imported.
"""

BODIES: dict[str, type[TreeBody] | type[SideBody]] = {
    body.kind: body for body in (*TreeBody.__subclasses__(), *SideBody.__subclasses__())
}
"""Kind -> class of its body, for every kind except ``message`` and ``opaque``."""

ENTRY_NOTES = tuple([body.kind for body in SideBody.__subclasses__() if body.follows_entry])
"""Kinds of the side entries that accompany their tree entry into forks, bundles and copies."""

_encoder = msgspec.json.Encoder()
_object = msgspec.json.Decoder(dict[str, Any])


class _RoleOnly(msgspec.Struct):
    role: str = ""


_role_only = msgspec.json.Decoder(_RoleOnly)


def encode(value: object) -> bytes:
    """Return `value` (a body, a message, plain data) as compact JSON.

    Raises: InvalidEntry if JSON cannot represent `value` (a lone surrogate, NaN, an infinity).
    """
    try:
        body = _encoder.encode(value)
    except UnicodeEncodeError as error:
        reason = "its body cannot be written as JSON (a text holds half of a surrogate pair)"
        raise InvalidEntry(reason) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEntry(f"its body cannot be written as JSON ({error})") from error
    # The encoder writes NaN as null, so only bodies with a null need the check.
    if b"null" in body and not _is_finite(value):
        raise InvalidEntry("its body cannot be written as JSON (it holds NaN or an infinity)")
    return body


def _is_finite(value: object) -> bool:
    """Return True if every float in `value` is finite."""
    plain: object = msgspec.to_builtins(value, enc_hook=lambda _: None)
    return all(math.isfinite(each) for each in values_in(plain) if isinstance(each, float))


def role_of(entry: Entry) -> str:
    """Return the role of a ``message`` entry, without decoding the rest; "" for any other entry."""
    return role_in(entry.body) if entry.kind == MESSAGE else ""


def role_in(body: bytes | msgspec.Raw) -> str:
    """Return the role in the body of a ``message`` entry; "" if the body has no role."""
    try:
        return _role_only.decode(body).role
    except (ValueError, RecursionError):
        return ""


def body_of(entry: Entry) -> Body:
    """Return the decoded body of `entry`; an `Unknown` if the kind of the entry is unknown.

    Raises: UnsupportedVersion for a newer version of a known kind. Raises CorruptLog if a body of a
    known kind is unreadable, or is a message with inline media, which no store accepts. Raises
    WrongArgument if `entry` is not an entry.
    """
    if not isinstance(entry, Entry):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise wrong("body_of", "entry", "Entry (Session.path gives entries)", entry)
    if entry.is_erased and entry.kind != OPAQUE:
        raise CorruptLog(entry.stream, entry.seq, "it was erased")
    if (message := entry.message) is not None:
        if b"base64" in entry.body and inline_in(message.parts) is not None:
            raise CorruptLog(entry.stream, entry.seq, "it holds media as bytes")
        return message
    known = BODIES.get(entry.kind)
    if known is None:
        return Unknown(entry.kind, entry.v, entry.body)
    try:
        return _decode(known, _current(entry, known.version))
    except (ValueError, RecursionError) as error:
        raise CorruptLog(entry.stream, entry.seq, f"its {entry.kind} body is not valid") from error


def readable(entry: Entry) -> Body:
    """Return the body of `entry`; an `Unknown` if it is damaged, unknown or of a newer version."""
    try:
        return body_of(entry)
    except (CorruptLog, UnsupportedVersion):
        return Unknown(entry.kind, entry.v, entry.body)


def _current(entry: Entry, version: int) -> bytes:
    if entry.v == version:
        return entry.body
    return _encoder.encode(upgrade_body(entry.kind, entry.v, version, _object.decode(entry.body)))


def _decode(known: type[TreeBody] | type[SideBody], body: bytes) -> TreeBody | SideBody:
    try:
        return msgspec.json.decode(body, type=known)
    except msgspec.ValidationError:
        return msgspec.json.decode(with_unknown_parts(body), type=known)


def new_tree(
    body: Message | TreeBody,
    parent: ParentRef = LEAF,
    *,
    at: int | None = None,
    alias: str | None = None,
) -> NewEntry:
    """Return `body` as an entry of the tree, to be appended after `parent`."""
    kind, version = (MESSAGE, MESSAGE_VERSION) if isinstance(body, Message) else _kind(body)
    return NewEntry(kind, encode(body), version, "tree", parent, None, at, alias)


def new_side(body: SideBody, about: Ref | None = None, *, at: int | None = None) -> NewEntry:
    """Return `body` as a side entry that describes the entry `about`."""
    kind, version = _kind(body)
    return NewEntry(kind, encode(body), version, "side", None, about, at)


def _kind(body: TreeBody | SideBody) -> tuple[str, int]:
    return type(body).kind, type(body).version


_NO_BODY = msgspec.Raw()


class _Line(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    seq: int
    id: str
    lane: Lane
    at: int
    kind: str
    v: int
    parent_id: str | None = None
    about: str | None = None
    body: msgspec.Raw = _NO_BODY
    body_base64: bytes | None = None


_line = msgspec.json.Decoder(_Line)
_raw = msgspec.json.Decoder(msgspec.Raw)


def line_of(entry: Entry) -> bytes:
    """Return `entry` as one line of JSON, without the line end.

    Shape: the header fields come first, then ``body``, which is the stored JSON itself. A body that
    cannot be embedded byte for byte is stored as ``body_base64``. A body cannot be embedded if its
    kind is ``opaque``, if it is not JSON, or if it has a line feed or surrounding space. The line
    never contains LF, but it can contain U+2028 and U+0085.
    """
    header = _Line(
        entry.seq, entry.id, entry.lane, entry.at, entry.kind, entry.v, entry.parent_id, entry.about
    )
    if entry.kind != OPAQUE and stands_in_a_line(entry.body):
        header.body = msgspec.Raw(entry.body)
    else:
        header.body_base64 = entry.body
    return _encoder.encode(header)


def stands_in_a_line(body: bytes) -> bool:
    """Return True if `body` can be part of a line as JSON and be read back unchanged."""
    if b"\n" in body:
        return False
    try:
        body.decode()  # json.Raw does not validate UTF-8
        return bytes(_raw.decode(body)) == body
    except (ValueError, RecursionError):
        return False


def entry_of_line(line: bytes) -> Entry:
    """Return the entry in `line`, which `line_of` wrote.

    Raises: ValueError if `line` is not an entry, or has fields that this version does not know.
    """
    try:
        fields = _line.decode(line)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    stream, seq = entry_place(fields.id)
    if seq != fields.seq:
        raise ValueError(f"{fields.id!r} is not the id of entry {fields.seq}")
    if (fields.about if fields.lane == "tree" else fields.parent_id) is not None:
        raise ValueError(f"entry {fields.id} has a field of the other lane")
    if bool(bytes(fields.body)) == (fields.body_base64 is not None):
        raise ValueError(f"entry {fields.id} has two bodies, or none")
    body = bytes(fields.body) if fields.body_base64 is None else fields.body_base64
    parent = None if fields.parent_id is None else EntryId(fields.parent_id)
    about = None if fields.about is None else EntryId(fields.about)
    return Entry(stream, seq, fields.lane, parent, about, fields.at, fields.kind, fields.v, body)
