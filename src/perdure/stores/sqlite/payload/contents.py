"""Store large contents in the file, compressed if that saves space, and verify them when read.

The name of a content is the hash of the content's own bytes, whatever its stored form. Each read of
a content computes the hash again. Entry bodies are stored uncompressed, because they are read one
by one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from perdure.errors import CorruptLog
from perdure.session.ids import blob_hash
from perdure.stores.protocol import EMPTY

AS_IT_IS = 0
BY_ZLIB = 1

LEVEL = 3
"""zlib's level. Measured on recorded sessions: contents shrink to a fifth. Level 6 saves another
seventh but takes 2.5 times as long; level 1 is not faster.
"""

LEAST_BYTES = 200
SAMPLE_BYTES = 65_536
WORTH_IT = 0.9
"""A content, such as a picture, is stored uncompressed if its beginning does not shrink to this
share.
"""


class PackedContent(NamedTuple):
    """A content in its stored form. `size` counts the bytes of the content."""

    digest: str
    size: int
    packing: int
    kept: bytes


def pack_contents(contents: Sequence[bytes]) -> list[PackedContent]:
    """Return `contents` in their stored form."""
    return [pack_content(content) for content in contents]


def pack_content(content: bytes) -> PackedContent:
    """Return `content` in its stored form."""
    digest, size = blob_hash(content), len(content)
    if size >= LEAST_BYTES:
        sample = content[:SAMPLE_BYTES]
        packed = zlib.compress(sample, LEVEL)
        if len(packed) < WORTH_IT * len(sample):
            whole = packed if size == len(sample) else zlib.compress(content, LEVEL)
            return PackedContent(digest, size, BY_ZLIB, whole)
    return PackedContent(digest, size, AS_IT_IS, content)


def content_in(packed: PackedContent) -> bytes:
    """Return the original content.

    Raises: CorruptLog if the content does not match its name.
    """
    content = _unpack(packed)
    if content is None or len(content) != packed.size or blob_hash(content) != packed.digest:
        raise CorruptLog(packed.digest, EMPTY, "its content is not what its name says")
    return content


def _unpack(packed: PackedContent) -> bytes | None:
    """Decompress `packed`, to at most one byte more than `size`; return None on failure."""
    if packed.packing == AS_IT_IS:
        return bytes(packed.kept)
    if packed.packing != BY_ZLIB:
        return None
    unpacking = zlib.decompressobj()
    try:
        return unpacking.decompress(packed.kept, packed.size + 1)
    except (zlib.error, ValueError):
        return None
