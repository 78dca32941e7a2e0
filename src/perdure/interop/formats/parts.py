"""Parts that every foreign format has: media as base64, and parts nobody here knows.

Media are taken out of the source, named by their hash and kept once. No part holds a provider's
signature.
"""

from __future__ import annotations

import binascii
from base64 import b64decode

import msgspec

from perdure.interop.formats.fields import fields_of
from perdure.session.codec import encode
from perdure.session.messages import MediaPart, UnknownPart
from perdure.stores.chain import blob_hash

HANDLE = "media://"
"""What a handle begins with; the name of the content follows."""


class Media:
    """The media of a source so far."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    @property
    def blobs(self) -> tuple[bytes, ...]:
        """Each content once, in the order they came."""
        return tuple(self._contents.values())

    def part(self, data: str | None, mime_type: str | None) -> MediaPart | None:
        """The part for base64 `data`; None when it is no base64."""
        if data is None:
            return None
        try:
            content = b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return None
        digest = blob_hash(content)
        self._contents[digest] = content
        return MediaPart(
            mime_type=mime_type or "application/octet-stream",
            handle=HANDLE + digest,
            byte_length=len(content),
        )


def unknown_part(item: object) -> UnknownPart:
    """`item` as a part of an unknown type, without signatures at its top."""
    fields = fields_of(item)
    if fields is not None:
        item = {key: fields[key] for key in fields if not key.lower().endswith("signature")}
    return UnknownPart(msgspec.Raw(encode(item)))
