"""Marks that identify the entries written by the perdure of this user.

A mark is a keyed digest at the end of an entry's body. The key is in the user's data folder, so
files of other writers cannot contain a valid mark. A mark covers the id of the stream and the
bodies of the marked entries. A mark is invalid in another session, and remains valid in a copied
store. ``docs/log-format.md`` is the normative specification of marks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import msgspec

from perdure.session.entries import Entry, NewEntry
from perdure.session.flows.kinds import FLOW_BODIES
from perdure.session.ids import StreamId
from perdure.session.ledger import (
    Interrupted,
    ModelCalled,
    ModelFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.session.memory.kinds import FactsDue
from perdure.session.notes import (
    AgentBound,
    Answer,
    GrantRevoked,
    Question,
    SessionStarted,
    WorkspaceChanged,
)
from perdure.stores.access.lazy_modules import Later
from perdure.stores.protocol import Commit, Write

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = Later("asyncio")

KEY_BYTES = 32
_MARK_BYTES = 16
_HEAD_BYTES = 512
_LARGE_BYTES = 131_072
"""If the bodies of a commit have this many bytes, the marks are computed in a thread."""

_MARK = re.compile(rb',?"mark":"(?:(\d{1,18})\.(\d{1,9})\.)?([0-9a-f]{32})"\}$')

TURN_KINDS = frozenset(
    body.kind
    for body in (
        TurnStarted,
        ModelCalled,
        ModelFinished,
        ToolStarted,
        ToolFinished,
        TurnFinished,
        Interrupted,
        Question,
        Answer,
    )
)
"""Kinds of entries from which a turn is resumed, or that contain grants of the turn."""

_ALONE = frozenset(
    (
        SessionStarted.kind,
        AgentBound.kind,
        WorkspaceChanged.kind,
        Question.kind,
        Answer.kind,
        GrantRevoked.kind,
        FactsDue.kind,
        *(body.kind for body in FLOW_BODIES),
    )
)
"""Kinds that are written without a turn's lease; each entry gets its own mark."""

AUTHORITY_KINDS = TURN_KINDS | _ALONE
"""Kinds that are marked: a session's bindings, its turns, decisions of flows, and due work."""


class _Body(Protocol):
    """The fields of an entry that a mark covers, whether or not the entry is stored."""

    @property
    def lane(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def v(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class TrustState(msgspec.Struct, frozen=True):
    """The data that currently decides which entries of a store are trusted.

    If the trust state has changed since a result was computed, the result can be outdated.
    """

    marks: Marks
    endorsed: frozenset[str]


class Marks:
    """The trust rules of a store, and the key of its own marks.

    `key` returns the key; it is called once, when the first mark is created or checked. Without a
    key, no entry gets a mark. If `is_trusted` is True, all entries except imported ones count as
    written by the user. `endorsed` returns the digests of the entries that the user trusts without
    a mark.
    """

    def __init__(
        self,
        key: Callable[[], bytes | None] = lambda: None,
        *,
        is_trusted: bool = True,
        endorsed: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._find_key = key
        self._endorsed = endorsed
        self.is_trusted = is_trusted

    @cached_property
    def _key(self) -> bytes | None:
        return self._find_key()

    @property
    def trust_state(self) -> TrustState:
        """Return the current trust state."""
        return TrustState(self, frozenset() if self.is_trusted else self._endorsed())

    def with_marks(self, commit: Commit) -> Commit:
        """Return `commit` with marks on entries that can grant permissions; imports get none."""
        if not any(_has_authority(write) for write in commit.writes) or self._key is None:
            return commit
        key = self._key
        writes = tuple(
            self._mark_write(write, key) if _has_authority(write) else write
            for write in commit.writes
        )
        return msgspec.structs.replace(commit, writes=writes)

    async def mark(self, commit: Commit) -> Commit:
        """Return the result of `with_marks`; for a large `commit`, it is computed in a thread."""
        sizes = [len(new.body) for write in commit.writes for new in write.entries]
        if sum(sizes) < _LARGE_BYTES:
            return self.with_marks(commit)
        return await asyncio.to_thread(self.with_marks, commit)

    def is_own(self, entry: Entry) -> bool:
        """Return True if this user's perdure wrote `entry`, or this user trusts it."""
        return entry.seq in self.own_among((entry,))

    def own_among(self, entries: Sequence[Entry]) -> frozenset[int]:
        """Return the seqs of those `entries` (a range of one stream) that are the user's own."""
        if self.is_trusted:
            return frozenset(entry.seq for entry in entries)
        if self._key is None:
            return frozenset()
        by_seq = {entry.seq: entry for entry in entries}
        own = {seq for entry in entries for seq in _covered_seqs(entry, by_seq, self._key)}
        if len(own) < len(by_seq) and (endorsed := self._endorsed()):
            own |= {e.seq for e in entries if endorsement(e, self._key) in endorsed}
        return frozenset(own)

    def endorsements(self, entries: Iterable[Entry]) -> list[str]:
        """Return the digests that `endorsed` must return for `entries` to be trusted."""
        return [] if self._key is None else [endorsement(entry, self._key) for entry in entries]

    def _mark_write(self, write: Write, key: bytes) -> Write:
        if write.expected_head is None or (write.lease is None and write.taking is None):
            entries = tuple(
                _with_mark(new, _alone(write.stream, _about(new), new, key).hex())
                if new.kind in _ALONE
                else new
                for new in write.entries
            )
            return msgspec.structs.replace(write, entries=entries)
        last = max(place for place, new in enumerate(write.entries) if new.lane == "side")
        first, count = write.expected_head + 1, len(write.entries)
        digest = _together(write.stream, first, write.entries, key).hex()
        entries = list(write.entries)
        entries[last] = _with_mark(entries[last], f"{first}.{count}.{digest}")
        return msgspec.structs.replace(write, entries=tuple(entries))


TRUSTED = Marks()
"""`Marks` of a store that a program opened: all its entries except imported ones are trusted."""


def marks_of(store: object) -> Marks:
    """Return the marks of `store`.

    If `store` has no marks, its entries are trusted.
    """
    marks = getattr(store, "marks", TRUSTED)
    return marks if isinstance(marks, Marks) else TRUSTED


def endorsement(entry: Entry, key: bytes) -> str:
    """Return the digest that endorses `entry` alone, at its position."""
    return _mac(key, "endorsed", entry.stream, entry.seq, [_mac_fields(entry)]).hex()


def _has_authority(write: Write) -> bool:
    return not write.is_received and any(new.kind in AUTHORITY_KINDS for new in write.entries)


def _covered_seqs(entry: Entry, by_seq: Mapping[int, Entry], key: bytes) -> Iterable[int]:
    """Return the seqs that the mark of `entry` covers; none if there is no valid mark."""
    found = _MARK.search(entry.body)
    if found is None or entry.lane != "side":
        return ()
    bare = msgspec.structs.replace(entry, body=entry.body[: found.start()] + b"}")
    mark = bytes.fromhex(found[3].decode())
    if found[1] is None:
        is_valid = mark == _alone(entry.stream, _about(entry), bare, key)
        return (entry.seq,) if is_valid else ()
    seqs = range(int(found[1]), int(found[1]) + int(found[2]))
    if entry.seq not in seqs or len(seqs) > len(by_seq) or not all(s in by_seq for s in seqs):
        return ()
    stretch = [bare if seq == entry.seq else by_seq[seq] for seq in seqs]
    return seqs if mark == _together(entry.stream, seqs.start, stretch, key) else ()


def _with_mark(new: NewEntry, mark: str) -> NewEntry:
    comma = b"" if new.body == b"{}" else b","
    body = b'%b%b"mark":"%b"}' % (new.body[:-1], comma, mark.encode())
    return msgspec.structs.replace(new, body=body)


def _about(entry: Entry | NewEntry) -> str | None:
    """Return the question that an answer is about; None for an entry of any other kind.

    An answer's body does not name the question, so a mark covers the question and the body.
    """
    return str(entry.about) if entry.kind == Answer.kind else None


def _alone(stream: StreamId, about: str | None, entry: _Body, key: bytes) -> bytes:
    return _mac(key, "alone", stream, about, [_mac_fields(entry)])


def _together(stream: StreamId, first: int, entries: Iterable[_Body], key: bytes) -> bytes:
    all_told = [_mac_fields(entry) for entry in entries]
    size = sum(len(body) + _HEAD_BYTES for *_, body in all_told)
    return _mac(key, "together", stream, first, all_told, size=size)


def _mac_fields(entry: _Body) -> tuple[str, str, int, bytes]:
    return entry.lane, entry.kind, entry.v, entry.body


def _mac(key: bytes, *told: object, size: int = 0) -> bytes:
    content = bytearray(size)  # final size: growing it needs half as much memory again
    msgspec.msgpack.Encoder().encode_into(told, content)
    return hashlib.blake2b(
        content, digest_size=_MARK_BYTES, key=key, person=b"perdure-mark"
    ).digest()
