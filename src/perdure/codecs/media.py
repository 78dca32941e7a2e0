"""Code that all foreign formats share: media as base64, and parts of unknown types.

Media are extracted from the source, named by their hash and stored once. Parts are stored without
the signatures of providers.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import cast

import msgspec

from perdure.codecs.fields import fields_of
from perdure.session.codec import encode
from perdure.session.ids import blob_hash
from perdure.session.media.inline import SCHEME, type_of
from perdure.session.media_storage.handles import inline_in
from perdure.session.messages import MediaPart, UnknownPart

UNKNOWN_TYPE = "application/octet-stream"

_DATA_ADDRESS = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[\w.+-]+)*;base64,")
_DATA = re.compile(r"data:[^,]{0,200};base64,.*", re.IGNORECASE | re.DOTALL)
_LEFT_OUT = "[media, left to the import original]"


class Media:
    """The media found in a source so far; their bytes are collected only if `is_kept` is true."""

    def __init__(self, *, is_kept: bool = True) -> None:
        self._contents: dict[str, bytes] = {}
        self._is_kept = is_kept

    @property
    def blobs(self) -> tuple[bytes, ...]:
        """The contents, each once, in the order in which they were found."""
        return tuple(self._contents.values())

    def take(self) -> tuple[bytes, ...]:
        """Return and remove the media added since the last call."""
        taken, self._contents = self.blobs, {}
        return taken

    def holds(self, part: MediaPart) -> bool:
        """Whether the bytes of `part` were added after the last `take`.

        The result is always True if `is_kept` is false.
        """
        return not self._is_kept or part.handle.removeprefix(SCHEME) in self._contents

    def part(self, data: str | None, mime_type: str | None) -> MediaPart | None:
        """Return the part for base64 `data`; None if it is not base64."""
        if data is None:
            return None
        try:
            content = b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return None
        digest = ""
        if self._is_kept:
            digest = blob_hash(content)
            self._contents[digest] = content
        return MediaPart(
            mime_type=mime_type or type_of(content) or UNKNOWN_TYPE,
            handle=SCHEME + digest,
            byte_length=len(content),
        )

    def from_address(self, address: str | None, mime_type: str | None = None) -> MediaPart | None:
        """Return the part for a ``data:`` address or for plain base64; None for any other text."""
        found = None if address is None else _DATA_ADDRESS.match(address)
        if address is None or found is None:
            return self.part(address or None, mime_type)
        return self.part(address[found.end() :], found[1] or mime_type)


def unknown_part(item: object) -> UnknownPart:
    """Return `item` as a part of an unknown type, without top-level signatures.

    Media bytes are removed from the part, because no log accepts them; these bytes are in the
    stored original of the import.
    """
    fields = fields_of(item)
    if fields is not None:
        item = {key: fields[key] for key in fields if not key.lower().endswith("signature")}
    part = UnknownPart(msgspec.Raw(encode(item)))
    if inline_in((part,)) is None:
        return part
    return UnknownPart(msgspec.Raw(encode(_without_media(item))))


def _without_media(value: object) -> object:
    if isinstance(value, str):
        return _DATA.sub(_LEFT_OUT, value)
    if isinstance(value, list):
        return [_without_media(each) for each in cast("list[object]", value)]
    fields = fields_of(value)
    if fields is None:
        return value
    is_base64 = "base64" in (fields.get("type"), fields.get("kind"))
    return {
        key: None if is_base64 and key == "data" else _without_media(each)
        for key, each in fields.items()
    }
