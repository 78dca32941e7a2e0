"""Ids of streams, entries and contents.

A stream id is chosen by the client or generated from time and random bytes. The id of an entry is
its position, ``<stream>/<seq>``. Entry ids are unique, even across forks, because they are
positions. A store's alias table contains the ids that other programs gave to entries.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Annotated, NewType

from msgspec import Meta

from perdure.errors.usage import WrongArgument

StreamId = NewType("StreamId", str)
EntryId = NewType("EntryId", str)

IdempotencyKey = Annotated[str, Meta(min_length=1)]
"""An idempotency key: a repeated call with the same key has no further effect.

A key is never empty, because unrelated calls would share an empty key.
"""

# Ids appear in the hash chain, in file names and in addresses: one line, no separator, no slash.
MOST_CHARACTERS = 128
"""Maximum length of a stream id."""

_STREAM_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
_SEQ = re.compile(r"0|[1-9][0-9]{0,18}")
_LONGEST_SEQ = 18
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford base 32: sorts as its value does


def stream_id(text: str) -> StreamId:
    """Return `text` as a stream id.

    Raises: WrongArgument unless `text` has 1 to 128 characters from ``A-Z a-z 0-9 . _ : @ -`` and
    starts with a letter or digit.
    """
    if not _STREAM_ID.fullmatch(text):
        raise WrongArgument(
            f"{text!r} cannot be a session id: use 1 to 128 letters, digits, . _ : @ or -, "
            "beginning with a letter or digit",
            argument="id",
        )
    return StreamId(text)


def generated_stream_id(at: int, random: bytes) -> StreamId:
    """Return a new id that sorts by creation time and cannot be guessed.

    Units: `at` is Unix milliseconds, `random` has at least 10 bytes.
    Shape: the id has 26 characters, 10 from the time and 16 from 80 random bits (as in a ULID).
    """
    if len(random) < 10:
        raise ValueError("a generated id needs 10 random bytes")
    value = (at << 80) | int.from_bytes(random[:10], "big")
    return StreamId("".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5)))


MOST_SEQ = 2**63 - 1
"""Upper bound of all seqs; every seq is smaller."""


def seqs_between(count: int, after: int, before: int | None) -> range:
    """For a stream with `count` entries, return the seqs above `after`, in ascending order.

    If `before` is given, return only the seqs below `before`, in descending order.
    """
    first = max(after, -1) + 1
    return range(first, count) if before is None else range(min(before, count) - 1, first - 1, -1)


def entry_id(stream: str, seq: int) -> EntryId:
    """Return the id of the entry with the sequence number `seq` in `stream`."""
    return EntryId(f"{stream}/{seq}")


def entry_place(entry: str) -> tuple[StreamId, int]:
    """Return the stream and the seq of an entry id.

    Raises: ValueError if `entry` is not ``<stream>/<seq>``.
    """
    stream, _, seq = entry.rpartition("/")
    if not _STREAM_ID.fullmatch(stream) or not _SEQ.fullmatch(seq):
        raise ValueError(f"{entry!r} is not an entry id")
    return StreamId(stream), int(seq)


def place_of(text: str) -> tuple[StreamId, int] | None:
    """Return the stream and the seq of an entry id; None if `text` is not ``<stream>/<seq>``."""
    try:
        return entry_place(text)
    except ValueError:
        return None


def is_number(reference: str) -> bool:
    """Return True if `reference` has only digits, which means that it is a seq.

    A number is never interpreted as a prefix of an id.
    """
    return reference.isascii() and reference.isdigit()


def number_of(reference: str) -> int | None:
    """Return the seq in `reference` (``7``, not ``007``); None if it is not a seq."""
    if (
        not is_number(reference)
        or len(reference) > _LONGEST_SEQ
        or str(int(reference)) != reference
    ):
        return None
    return int(reference)


def blob_hash(content: bytes) -> str:
    """Return the name under which a store stores `content`, ``sha256-`` and 64 hex digits."""
    return blob_hash_of((content,))


def blob_hash_of(pieces: Iterable[bytes]) -> str:
    """Return the name under which a store stores the content that consists of `pieces`."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return "sha256-" + digest.hexdigest()
