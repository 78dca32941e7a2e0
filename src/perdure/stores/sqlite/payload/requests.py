"""Prepare commits before they are queued and before the file is locked."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.session.clock import RandomSource
from perdure.stores.append_rules import Read, read_bodies
from perdure.stores.chain import SALT_BYTES, body_digest
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.payload.contents import PackedContent


class Share(msgspec.Struct, frozen=True, gc=False):
    """A write with its prepared parts.

    Shape: `bodies` are the decoded bodies, with a salt and a digest for each body.
    """

    write: Write
    read: list[Read]
    salts: list[bytes]
    digests: list[bytes]


class Request(msgspec.Struct, frozen=True, gc=False):
    """A commit with its parts prepared before it was queued.

    `asked` is the fingerprint of the commit, `blobs` are its packed contents. Units: `now` is Unix
    milliseconds.
    """

    namespace: str
    commit: Commit
    asked: bytes
    shares: list[Share]
    blobs: Sequence[PackedContent]
    now: int = 0


def shares_of(commit: Commit, random: RandomSource) -> list[Share]:
    """Prepare the writes of `commit`."""
    return [_share_of(write, random) for write in commit.writes]


def _share_of(write: Write, random: RandomSource) -> Share:
    count = len(write.entries)
    if not count:
        return Share(write, [], [], [])
    grains = random(SALT_BYTES * count)
    salts = [grains[at : at + SALT_BYTES] for at in range(0, len(grains), SALT_BYTES)]
    digests = [body_digest(new.body, salt) for new, salt in zip(write.entries, salts, strict=True)]
    return Share(write, read_bodies(write), salts, digests)
