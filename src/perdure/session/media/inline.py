"""Inline media: the bytes of a picture or document before a handle replaces them.

No value of this module can be written to a log unchanged; ``media_storage.handles`` extracts the
bytes.
"""

from __future__ import annotations

import re

import msgspec

from perdure.errors.usage import WrongArgument
from perdure.session.argument_checks import takes_declared
from perdure.session.ids import blob_hash

SCHEME = "media://"
"""Start of a handle; ``sha256-`` and 64 hexadecimal digits follow."""

HANDLE = re.compile(r"media://sha256-[0-9a-f]{64}")

MIME_TYPE = re.compile(r"(?:image|audio|video)/[\w.+-]{1,200}|application/pdf|text/plain")
"""Media types that a message can hold: images, audio, video, PDF, plain text."""

_ANY_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,200}(?:; ?[\w.+=\"-]{1,100})?", re.ASCII)

MAX_CONTENT_BYTES = 100 * 1024 * 1024
"""Maximum size of one content, in bytes."""

MAX_PART_BYTES = 20 * 1024 * 1024
MAX_MESSAGE_BYTES = 40 * 1024 * 1024
MAX_PARTS = 16
"""Limits for the media of a message: bytes of one part, bytes of all parts, number of parts."""

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
    """Media as bytes, before a handle replaces them.

    Use the function `media` to create an `InlineMedia`.
    """

    mime_type: str
    content: bytes
    name: str | None = None

    @property
    def handle(self) -> str:
        """Return the content's name in a log, ``media://sha256-`` and 64 hexadecimal digits."""
        return SCHEME + blob_hash(self.content)

    def __repr__(self) -> str:
        return f"InlineMedia({self.mime_type!r}, {len(self.content)} bytes)"


@takes_declared
def media(
    content: bytes | bytearray | memoryview, mime_type: str | None = None, name: str | None = None
) -> InlineMedia:
    """Return `content` as a part of a message: an image, audio, video, a PDF or plain text.

    `mime_type` is detected for common formats if it is not given.
    Raises: WrongArgument if a message cannot contain the media, because the type is unsupported,
    the content is too large, or the name is too long.
    """
    held = bytes(content)
    kind = mime_type or type_of(held)
    if kind is None or not MIME_TYPE.fullmatch(kind):
        told = "say which with mime_type=" if kind is None else f"not {kind!r}"
        raise WrongArgument(f"media are images, audio, video, PDF or plain text; {told}")
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
    """Return `data` as content that is stored next to the log; `media_type` can be any type.

    Put the result into the data of a `Custom`, a `Note` or a `CustomMessage`. The log stores only
    the `handle` of a content, and `Store.content` reads the bytes. For media in messages, use
    `media`.
    Raises: WrongArgument for an invalid `media_type`, and for too much data.
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
    """Return the type of `content` detected from its first bytes; None for an unknown format."""
    if content[:4] == b"RIFF":
        return _RIFF.get(content[8:12])
    return next((kind for start, kind in _BEGINNINGS if content.startswith(start)), None)
