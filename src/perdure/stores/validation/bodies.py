"""Whether the body of a new entry can be read again by everybody: checked before it needs a place.

What is found out here is that a body is JSON, that of a known kind what its kind holds, and that no
message holds media as bytes. Where the entry goes is not asked.
"""

from __future__ import annotations

from typing import cast

import msgspec

from perdure.errors import CorruptLog, InvalidEntry, UnsupportedVersion
from perdure.session.codec import Body, Unknown, body_of
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId
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
    """The body of an entry of a known kind and version; None for what nobody here can read.

    What reads a body as its kind's class reads all of it, so that only the others are read as
    JSON; it skips over text in unknown fields, which is why that is looked at on its own.
    Raises: InvalidEntry for what nobody could read again, and for media as bytes.
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
    """The message in `new`, if it is one as most are; None if it has to be looked at closely."""
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
    """What no log holds in a message that can be read; None when that is not its fault."""
    try:
        message = entry.message
    except CorruptLog:
        return None
    return None if message is None else inline_in(message.parts)


def _may_hold_media(body: bytes) -> bool:
    """Whether it is worth to look into the parts of `body`."""
    return b"media" in body or b"base64" in body


def _check_json(body: bytes) -> None:
    try:
        _json.decode(body)
        body.decode()
    except (ValueError, RecursionError) as error:
        raise InvalidEntry(
            f"its body is not JSON ({error}); kind opaque keeps any bytes"
        ) from error
