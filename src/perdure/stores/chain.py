"""The hash chain of a stream: a commit's hash covers its entries' headers and the previous hash.

A hash of the chain includes bodies only as salted digests. So the chain can still be verified after
an erasure, and the digest reveals nothing about the body. ``docs/log-format.md`` is the normative
specification of the hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from perdure.session.codec import encode
from perdure.session.entries import Entry, NewEntry, ParentRef, Sibling
from perdure.session.info import StreamHeader
from perdure.stores.protocol import Commit

SALT_BYTES = 16
HASH_BYTES = 32


def body_digest(body: bytes, salt: bytes) -> bytes:
    """Return the BLAKE2b-256 of `body`, keyed with its salt."""
    return hashlib.blake2b(body, digest_size=HASH_BYTES, key=salt).digest()


def genesis_hash(header: StreamHeader, origin_hash: bytes = b"") -> bytes:
    """Return the hash with which a stream's chain begins, before its first commit.

    For a fork, `origin_hash` is the hash of the origin's chain at the fork.
    """
    state = hashlib.blake2b(digest_size=HASH_BYTES, person=b"perdure-genesis")
    state.update(encode(header))
    state.update(origin_hash)
    return state.digest()


def header_line(entry: Entry, digest: bytes) -> bytes:
    """Return the line that represents `entry` in its commit's hash."""
    about = entry.parent_id if entry.lane == "tree" else entry.about
    place = f"{entry.seq} {entry.lane} {about or '-'} {entry.at}"
    return f"{place} {entry.kind} {entry.v} {digest.hex()}\n".encode()


def commit_hash(before: bytes, at: int, epoch: int, lines: Iterable[bytes]) -> bytes:
    """Return the chain's hash after a commit at time `at` under lease epoch `epoch` (0: none)."""
    state = hashlib.blake2b(before, digest_size=HASH_BYTES, person=b"perdure-commit")
    state.update(f"{at} {epoch}\n".encode())
    for line in lines:
        state.update(line)
    return state.digest()


def fingerprint(commit: Commit) -> bytes:
    """Return the hash to which an idempotency key is bound.

    The hash covers all appended data except times.
    """
    asked = [
        (write.stream, [_fingerprint_fields(new) for new in write.entries])
        for write in commit.writes
    ]
    return hashlib.blake2b(msgspec.msgpack.encode(asked), digest_size=16).digest()


def _fingerprint_fields(new: NewEntry) -> tuple[object, ...]:
    alias = new.alias and new.alias.encode(errors="surrogatepass")
    return (new.kind, new.v, new.lane, new.body, _place(new.parent), _place(new.about), alias)


def _place(reference: ParentRef) -> object:
    return reference.index if isinstance(reference, Sibling) else reference
