"""Bytes on their way into a log: a picture as a program has it, before it is a handle.

Nothing here can be written to a log as it stands; ``durable.settling`` takes the bytes out.
"""

from __future__ import annotations

import re

import msgspec

from perdure.errors.usage import WrongArgument
from perdure.session.argument_checks import takes_declared
from perdure.session.ids import blob_hash

SCHEME = "media://"
"""What a handle begins with; ``sha256-`` and 64 hexadecimal digits follow."""

HANDLE = re.compile(r"media://sha256-[0-9a-f]{64}")

MIME_TYPE = re.compile(r"(?:image|audio|video)/[\w.+-]{1,200}|application/pdf|text/plain")
"""Media that a message can hold: pictures, sound, film, documents."""

_ANY_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,200}(?:; ?[\w.+=\"-]{1,100})?", re.ASCII)

MAX_CONTENT_BYTES = 100 * 1024 * 1024
"""Of one content."""

MAX_PART_BYTES = 20 * 1024 * 1024
MAX_MESSAGE_BYTES = 40 * 1024 * 1024
MAX_PARTS = 16
"""Media of one message, and how large each and all of them may be. Units: bytes."""

MAX_NAME_CHARACTERS = 255

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


class InlineMedia(msgspec.Struct, frozen=True):
    """Media in flight. Made by `media`."""

    mime_type: str
    content: bytes
    name: str | None = None

    @property
    def handle(self) -> str:
        """What names the content in a log: ``media://sha256-`` and 64 hexadecimal digits."""
        return SCHEME + blob_hash(self.content)

    def __repr__(self) -> str:
        return f"InlineMedia({self.mime_type!r}, {len(self.content)} bytes)"


@takes_declared
def media(
    content: bytes | bytearray | memoryview, mime_type: str | None = None, name: str | None = None
) -> InlineMedia:
    """`content` as a part of a message: a picture, a sound, a film, a PDF.

    `mime_type` is found out for common formats where it is not given.
    Raises: WrongArgument for what no message can hold: another type, too large, too long a name.
    """
    held = bytes(content)
    kind = mime_type or type_of(held)
    if kind is None or not MIME_TYPE.fullmatch(kind):
        told = "say which with mime_type=" if kind is None else f"not {kind!r}"
        raise WrongArgument(f"media are images, audio, video or PDF; {told}")
    if len(held) > MAX_PART_BYTES:
        raise WrongArgument(f"media of {len(held)} bytes are too large; at most {MAX_PART_BYTES}")
    if name is not None and len(name) > MAX_NAME_CHARACTERS:
        raise WrongArgument(f"the name of media has at most {MAX_NAME_CHARACTERS} characters")
    return InlineMedia(kind, held, name)


@takes_declared
def content(
    data: bytes | bytearray | memoryview,
    media_type: str = "application/octet-stream",
    name: str | None = None,
) -> InlineMedia:
    """Return `data` as a content of any type, to be stored beside the log.

    A `Custom`, a `Note` or a `CustomMessage` holds it in its data, where the log gets its `handle`;
    `Store.content` reads it again. For messages use `media`.
    Raises: WrongArgument for a `media_type` that is none, and for too much data.
    """
    if not _ANY_TYPE.fullmatch(media_type):
        raise WrongArgument(
            f"media_type takes a type such as 'application/zip', not {media_type!r:.40}",
            argument="media_type",
        )
    if len(data) > MAX_CONTENT_BYTES:
        raise WrongArgument(
            f"content of {len(data)} bytes is too large: at most {MAX_CONTENT_BYTES}",
            argument="data",
        )
    return InlineMedia(media_type, bytes(data), name)


def type_of(content: bytes) -> str | None:
    """The type of `content` by how it begins; None for a format that is not known here."""
    if content[:4] == b"RIFF":
        return _RIFF.get(content[8:12])
    return next((kind for start, kind in _BEGINNINGS if content.startswith(start)), None)
