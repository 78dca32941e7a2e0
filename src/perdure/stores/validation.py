"""Validate new entries without regard to their position: form, body and contents.

A body must be JSON that matches its kind, and must not contain media as bytes. Each content of a
commit must be referenced by an entry of the same commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from perdure.errors import CorruptLog, InvalidEntry, UnsupportedVersion
from perdure.errors.arguments import is_utf8
from perdure.session.codec import BODIES, Body, Unknown, body_of
from perdure.session.entries import LEAF, Entry, Lane, NewEntry
from perdure.session.ids import StreamId, blob_hash
from perdure.session.kinds import OPAQUE, CustomMessage
from perdure.session.media_storage.handles import inline_in
from perdure.session.messages import (
    MESSAGE,
    MESSAGE_VERSION,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    decode_message,
)

_NOWHERE = StreamId("")

_json = msgspec.json.Decoder(msgspec.Raw)


def checked_body(new: NewEntry) -> Body | None:
    """Return the decoded body; None if this version of perdure cannot decode the body.

    Decoding a body with the class of its kind checks all of the body. Only a body that this version
    cannot decode, or that is not ASCII, is also parsed as JSON. Decoding skips the text in unknown
    fields, so a separate check validates that text.
    Raises: InvalidEntry if the body is not valid JSON, does not match its kind, has an invalid
    version, or contains media as bytes.
    """
    if new.kind == OPAQUE:
        return None
    plain = _plain_message(new)
    if plain is not None:
        return plain
    entry = Entry(_NOWHERE, 0, new.lane, None, None, 0, new.kind, new.v, new.body)
    try:
        body = body_of(entry)
    except UnsupportedVersion as error:
        if error.version <= error.supported:
            raise InvalidEntry(str(error)) from error
        body = None
    except CorruptLog as error:
        _check_json(new.body)
        raise InvalidEntry(
            _held_inline(entry) or f"its body is not that of a {new.kind}"
        ) from error
    if body is None or isinstance(body, Unknown) or not new.body.isascii():
        _check_json(new.body)
    if isinstance(body, Message | CustomMessage) and _may_hold_media(new.body):
        reason = inline_in(body.parts)
        if reason is not None:
            raise InvalidEntry(reason)
    return body


def _plain_message(new: NewEntry) -> Message | None:
    """Fast path: return the message in `new` if it is ordinary; None if it needs full checks."""
    if new.kind != MESSAGE or new.v != MESSAGE_VERSION or not new.body.isascii():
        return None
    try:
        message = decode_message(new.body)
    except (ValueError, RecursionError):
        return None
    return message if all(map(_has_no_media, message.parts)) else None


def _has_no_media(part: Part) -> bool:
    kind = type(part)
    if kind is ToolResultPart:
        return not cast("ToolResultPart", part).media
    return kind is TextPart or kind is ToolCallPart


def _held_inline(entry: Entry) -> str | None:
    """Return the error text if a readable message contains inline media; otherwise None."""
    try:
        message = entry.message
    except CorruptLog:
        return None
    return None if message is None else inline_in(message.parts)


def _may_hold_media(body: bytes) -> bool:
    """Return True if the parts of `body` may contain media."""
    return b"media" in body or b"base64" in body


def _check_json(body: bytes) -> None:
    try:
        _json.decode(body)
        body.decode()
    except (ValueError, RecursionError) as error:
        raise InvalidEntry(
            f"its body is not JSON ({error}); kind opaque keeps any bytes"
        ) from error


_NAME = re.compile(rb"sha256-[0-9a-f]{64}")


def check_contents(contents: Sequence[bytes], entries: Sequence[NewEntry]) -> None:
    """Reject contents that none of `entries` references.

    Raises: InvalidEntry.
    """
    unnamed = set(contents).difference(named_contents(contents, entries))
    if unnamed:
        digests = ", ".join(sorted(map(blob_hash, unnamed)))
        reason = f"no entry of the commit names the content {digests}"
        raise InvalidEntry(reason, told=f"{reason}: append the entry that refers to it with it")


def named_contents(contents: Sequence[bytes], entries: Sequence[NewEntry]) -> tuple[bytes, ...]:
    """Return the `contents` that one of `entries` references."""
    if not contents:
        return ()
    named = names_in(entry.body for entry in entries)
    return tuple(content for content in contents if blob_hash(content) in named)


def names_in(texts: Iterable[bytes]) -> set[str]:
    """Return all names of contents in `texts`. Text that only looks like a name is included."""
    return {name.decode() for text in texts for name in _NAME.findall(text)}


_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
TIMES = range(-(2**53), 2**53)
"""Valid times: integers that every JSON reader represents exactly."""

_VERSIONS = range(1, 2**31)

_LANES: dict[str, Lane] = {kind: body.lane for kind, body in BODIES.items()}
_LANES[MESSAGE] = "tree"

_WELL_FORMED = frozenset(
    [(MESSAGE, "tree", MESSAGE_VERSION)]
    + [(kind, body.lane, body.version) for kind, body in BODIES.items()]
)
"""The usual combinations of kind, lane and version, which need no further check."""


def check_form(new: NewEntry) -> None:
    """Validate the fields of an entry, except its body.

    Raises: InvalidEntry.
    """
    if new.at is not None and new.at not in TIMES:
        raise InvalidEntry(f"its time {new.at} is out of range")
    if new.alias is not None and not is_text(new.alias):
        raise InvalidEntry(f"{new.alias!r} cannot be a foreign id")
    if new.lane == "tree" and new.about is not None:
        raise InvalidEntry("an entry of the tree has a parent and is about nothing")
    if new.lane == "side" and new.parent is not LEAF and new.parent is not None:
        raise InvalidEntry("a side entry has no parent")
    if (new.kind, new.lane, new.v) not in _WELL_FORMED:
        _check_kind(new)


def _check_kind(new: NewEntry) -> None:
    if not _KIND.fullmatch(new.kind):
        raise InvalidEntry(f"{new.kind!r} cannot be a kind: use a-z, 0-9 and _, at most 64")
    if new.v not in _VERSIONS:
        raise InvalidEntry(f"{new.v} cannot be the version of a kind")
    if new.lane not in ("tree", "side"):
        raise InvalidEntry(f"there is no lane {new.lane!r}")
    known = _LANES.get(new.kind, new.lane)
    if new.lane != known:
        raise InvalidEntry(f"a {new.kind} entry is of the {known} lane, not of the {new.lane} lane")


def is_text(text: object) -> bool:
    """Return True if `text` can be a stored name: a non-empty, encodable string."""
    return isinstance(text, str) and text != "" and is_utf8(text)
