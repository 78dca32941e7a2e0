"""Represent a part of a stream exactly as it is stored, so that its copy has the same hashes.

Salts, digests, times and epochs are copied unchanged, so a copied log has the hashes of the
original. The append rules are not applied, because they were applied when the entries were first
committed. Erased entries (digest only, without body and salt) stay erased. The functions are pure:
only the backends read and write data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perdure.errors import CopyConflict, CorruptLog
from perdure.session.ids import StreamId, entry_id
from perdure.session.info import StreamHeader, info_after
from perdure.stores.append_rules import Admission
from perdure.stores.chain import body_digest, commit_hash, header_line
from perdure.stores.protocol import StreamState
from perdure.stores.verification import StoredEntry, position_after


class SealedCommit(msgspec.Struct, frozen=True):
    """The entries of a commit in one stream, and the hash of the chain after them."""

    at: int
    epoch: int
    hash: bytes
    rows: tuple[StoredEntry, ...]

    @property
    def first(self) -> int:
        """The seq of the first entry."""
        return self.rows[0].entry.seq

    @property
    def last(self) -> int:
        """The seq of the last entry."""
        return self.rows[-1].entry.seq


class StreamSegment(msgspec.Struct, frozen=True):
    """Consecutive commits of one stream.

    Shape: `before` is the hash of the chain before the first commit. At the start of the stream,
    `before` is the genesis hash. `aliases` are pairs (foreign id, seq) of entries in the `commits`.
    `epoch` is the epoch of the stream. `is_erased` means that the whole session was erased, so the
    genesis hash can no longer be computed from the header.
    """

    header: StreamHeader
    before: bytes
    epoch: int
    commits: tuple[SealedCommit, ...]
    aliases: tuple[tuple[str, int], ...] = ()
    is_erased: bool = False

    @property
    def first(self) -> int:
        """The seq of the first entry; 0 without commits."""
        return self.commits[0].first if self.commits else 0

    @property
    def hash(self) -> bytes:
        """The hash of the chain after the last commit."""
        return self.commits[-1].hash if self.commits else self.before

    def entries(self) -> Iterator[StoredEntry]:
        """Yield every entry with its salt and digest, in order."""
        return (row for commit in self.commits for row in commit.rows)


class SegmentState(msgspec.Struct, frozen=True):
    """State of a stream at one moment. For a fork, `origin` is the origin stream."""

    stream: StreamId
    head: int
    hash: bytes
    origin: StreamId | None = None


class _Born(msgspec.Struct):
    created_at: int


_born = msgspec.json.Decoder(_Born)


def created_at_of(header: bytes) -> int:
    """Return the creation time in a stored header, without decoding its other fields."""
    return _born.decode(header).created_at


def origins_first(origins: Mapping[StreamId, StreamId | None]) -> list[StreamId]:
    """Return the streams in the order of `origins`, but each origin before its forks.

    Shape: `origins` maps a stream to its origin; damaged origins may form a cycle.
    """
    ordered: dict[StreamId, None] = {}
    for stream in origins:
        waiting = [stream]
        while (origin := origins.get(waiting[-1])) in origins and origin is not None:
            if origin in ordered or origin in waiting:
                break
            waiting.append(origin)
        ordered.update(dict.fromkeys(reversed(waiting)))
    return list(ordered)


def check(sealed: StreamSegment) -> None:
    """Recompute every hash of `sealed`.

    Raises: CorruptLog at the first mismatch.
    """
    stream, before, seq = sealed.header.id, sealed.before, sealed.first
    for commit in sealed.commits:
        lines: list[bytes] = []
        for row in commit.rows:
            if row.entry.seq != seq:
                raise CorruptLog(stream, seq, "it is not where it should be")
            if row.salt is not None and body_digest(row.entry.body, row.salt) != row.digest:
                raise CorruptLog(stream, seq, "its body is not what was committed")
            lines.append(header_line(row.entry, row.digest))
            seq += 1
        before = commit_hash(before, commit.at, commit.epoch, lines)
        if before != commit.hash:
            raise CorruptLog(stream, commit.first, "the hash of its commit does not fit")


def check_follows(sealed: StreamSegment, state: StreamState) -> None:
    """Check that `sealed` continues the stream at `state`. Raises: CopyConflict."""
    if state.header != sealed.header:
        raise CopyConflict(state.header.id, -1)
    if state.hash != sealed.before or (sealed.commits and state.head + 1 != sealed.first):
        raise CopyConflict(state.header.id, state.head)


def admission_of(
    state: StreamState, commit: SealedCommit, aliases: Sequence[tuple[str, int]]
) -> Admission:
    """Return the entries and the state after `commit`, without applying the append rules."""
    leaf, open_turn = state.leaf, state.open_turn
    for row in commit.rows:
        leaf, open_turn = position_after(row.entry, leaf, open_turn)
    entries = tuple(row.entry for row in commit.rows)
    stream = state.header.id
    return Admission(
        entries=entries,
        leaf=leaf,
        open_turn=open_turn,
        info=info_after(state.info, entries),
        aliases=tuple(
            (alias, entry_id(stream, seq))
            for alias, seq in aliases
            if commit.first <= seq <= commit.last
        ),
        epoch=commit.epoch,
    )
