"""The store contract: what a commit guarantees and what can be read back.

A store contains streams; a stream is one append-only log with a dense ``seq`` from 0. All state of
a store except the entries is computed from the entries. ``tests/conformance/store`` tests every
backend against this contract.

The append rules are the same in every backend:

1. A tree entry with parent ``LEAF`` gets the stream's leaf as its parent, inside the commit. Every
   appended tree entry becomes the leaf. A side entry of kind ``leaf`` makes its target the leaf.
2. A parent must be a tree entry that the stream sees: its own, or shared by its origin.
3. ``seq`` is dense per stream, in commit order; a commit's entries are consecutive.
4. While a turn is open (see `StreamState.open_turn`), only writes that carry its lease can append
   tree entries. A write without the lease stores a side entry ``queued`` instead of a tree entry,
   and a ``leaf`` raises `TurnOpen`.
5. A ``turn_started`` opens a turn and needs a lease; a ``turn_finished`` closes it.
6. The part of a commit for a stream extends that stream's hash chain (``stores.chain``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Literal, Protocol, Unpack, runtime_checkable

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.errors import ConfigError
from perdure.session.entries import Entry, NewEntry, Positioned
from perdure.session.fold import ContextWindow, Placed
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ListText, OpenTurn, SessionInfo, SessionScope, Sought, StreamHeader

FLOW_KINDS = ("flow_started", "flow_imported", "flow_completed")
"""Kinds of entries that show which flows a namespace has, and which flows are completed."""

EMPTY = -1
"""Head of a stream without entries."""

Durability = Literal["full", "normal"]
"""``full`` commits survive power loss; ``normal`` commits survive ``kill -9``, and are faster."""


def durability_of(text: str) -> Durability:
    """Return `text` as a `Durability`. Raises: ConfigError if `text` is not a durability."""
    if text not in ("full", "normal"):
        raise ConfigError(f"unknown durability {text!r}: use full or normal")
    return "full" if text == "full" else "normal"


class Lease(msgspec.Struct, frozen=True):
    """The right to run turns in a stream.

    `epoch` grows with every new owner. A store rejects writes under an older epoch.
    Units: `until` is Unix milliseconds by the store's clock.
    """

    stream: StreamId
    owner: str
    epoch: int
    until: int


class LeaseRequest(msgspec.Struct, frozen=True):
    """The arguments of ``acquire_lease``, for a commit that acquires a lease."""

    owner: str
    ttl_ms: int
    dead_owner: str | None = None


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a commit for one stream.

    `create` creates the stream first. The whole commit fails if the stream is not at
    `expected_head` (a seq; -1 means empty). The whole commit also fails if the stream is not at
    `expected_leaf` (an id; None means before the root). `lease` is the lease of the open turn, if
    the write belongs to that turn. If `taking` is given, this commit acquires the lease, and
    `lease` must be None. With `taking`, the whole commit also fails whenever ``acquire_lease``
    would fail. `is_releasing` releases the lease at the end of the commit. `taking` and
    `is_releasing` require a backend with ``leases_in_commits``; `taking` also requires a commit
    without an idempotency key. `is_received` means that the entries come from an import; they get
    no ``marks``. A new stream gets leases with epochs above `above_epoch`. So a new stream does not
    reuse the epochs of an erased stream with the same id.
    """

    stream: StreamId
    entries: tuple[NewEntry, ...] = ()
    create: StreamHeader | None = None
    above_epoch: int = 0
    expected_head: int | None = None
    expected_leaf: EntryId | msgspec.UnsetType | None = msgspec.UNSET
    lease: Lease | None = None
    taking: LeaseRequest | None = None
    is_releasing: bool = False
    is_received: bool = False


class ErasingWrite(Write, frozen=True, kw_only=True):
    """A write of an erasure; only backends create such a write.

    `listed` replaces the session's text in lists of sessions.
    """

    listed: ListText | None = None


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Writes to one or several streams that are appended atomically.

    Units: `at` is Unix milliseconds. `blobs` are contents that entries reference by `blob_hash`.
    """

    writes: tuple[Write, ...]
    at: int
    idempotency_key: str | None = None
    blobs: tuple[bytes, ...] = ()


class CommitResult(msgspec.Struct, frozen=True):
    """The result of a commit.

    Shape: `entries` has one tuple for each write, in the order of the writes. `is_replay` means
    that the idempotency key was used before, and `entries` are the entries of the first commit.
    `leases` are the leases that the commit acquired. If a fork copies entries, `copies` maps
    entries of the origin to their copies.
    """

    entries: tuple[tuple[Entry, ...], ...]
    is_replay: bool = False
    leases: tuple[Lease, ...] = ()
    copies: Mapping[EntryId, EntryId] = {}


class StreamState(msgspec.Struct, frozen=True):
    """Current state of a stream. `open_turn` is the seq of the open turn's ``turn_started``.

    Shape: `hash` is the 32 bytes of the chain's head; `head` is -1 for an empty stream. `lease` is
    the newest lease if it was not released; it may have expired. Only ``LogReader.state`` sets
    `lease`.
    """

    header: StreamHeader
    head: int
    leaf: EntryId | None
    hash: bytes
    epoch: int
    open_turn: int | None
    info: SessionInfo
    lease: Lease | None = None


Tail = tuple[StreamState, list[Entry], list[Entry]]
"""The state of a stream, its newest entries in order, and side entries: see `LogReader.tail`."""


class Problem(ShortRepr, frozen=True):
    """A fault that `verify` found. `seq` is None for a fault of the whole stream or store."""

    stream: str | None
    seq: int | None
    problem: str


class Verification(ShortRepr, frozen=True):
    """The result of `verify`. `erased` entries and `cut_off` writes are not faults."""

    streams: int
    entries: int
    problems: tuple[Problem, ...]
    erased: int = 0
    cut_off: tuple[Problem, ...] = ()

    @property
    def is_ok(self) -> bool:
        """Return True if no fault was found."""
        return not self.problems


class StoreInfo(ShortRepr, frozen=True):
    """Facts about the store and its namespace.

    Units: bytes. `payload_bytes` is the size of the namespace's bodies and blobs; each blob counts
    once. `cipher` is the cipher of an encrypted store.
    """

    address: str
    backend: str
    namespace: str
    durability: str
    schema_version: int
    streams: int
    entries: int
    size_bytes: int
    payload_bytes: int
    is_encrypted: bool
    engine: str
    cipher: str | None = None


class Capabilities(ShortRepr, frozen=True, kw_only=True):
    """Optional features of a backend; using a missing feature raises `Unsupported`.

    With `multi_stream_commit`, one commit can write to several streams. With `pointer_fork`, a fork
    shares its origin's entries, under their ids. Without `pointer_fork`, a fork gets copies of the
    entries, with their own ids. The header of a copied fork has a `parent` and no `fork`. With
    `encryption`, the store can be encrypted at rest. With `erase`, content can be erased from a
    stream that remains. Without the feature `erase`, a stream can only be removed as a whole. With
    `search`, the store supports full-text search (``SearchService``). With `recall`, the store's
    search can count words for a recall. With `leases_in_commits`, a commit can acquire and release
    a lease.
    """

    multi_stream_commit: bool = True
    pointer_fork: bool = True
    encryption: bool = False
    erase: bool = False
    search: bool = False
    recall: bool = False
    leases_in_commits: bool = False


class LogWriter(Protocol):
    """Append entries and manage leases."""

    async def commit(self, commit: Commit) -> CommitResult:
        """Append `commit` atomically.

        Durable: on return the commit survives ``kill -9`` and, at durability "full", power loss.
        Raises: SessionExists, SessionNotFound or Erased if the stream exists, is missing or was
        erased. Raises HeadConflict or LeafConflict if the stream is not at the expected head or
        leaf. Raises LeaseLost if a lease's epoch is not the current one. Raises TurnOpen for a
        ``leaf`` without the open turn's lease, and for a second ``turn_started``. Raises
        InvalidParent if a parent is not a tree entry that the stream sees. Raises InvalidEntry for
        an entry in the wrong lane, a ``turn_started`` without lease, or a `Sibling` that does not
        refer to an earlier entry of the write. Raises InvalidEntry for two writes of one stream,
        and for a fork beyond its origin's head. Raises IdempotencyMismatch if the key was used for
        other content. Raises QuotaExceeded if the commit would exceed a quota. Raises ValueError
        for an invalid stream id. Raises StoreReadOnly, StoreFull or StoreCorrupt if the store
        cannot be written. Raises Unsupported for several writes without ``multi_stream_commit``.
        Raises StoreUnavailable if the store cannot be reached; the commit might have happened.
        After any error except StoreUnavailable, nothing was appended.
        """
        ...

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        """Acquire the lease of `stream` with a new, higher epoch, if it is free or expired.

        A lease of `dead_owner` counts as free; the caller knows that this owner is dead.
        Raises: LeaseHeld(owner, until) while any owner, even the same owner, holds the lease.
        Raises SessionNotFound or Erased if the stream is missing or was erased.
        """
        ...

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        """Extend `lease`, even an expired one. Raises: LeaseLost if another owner has the lease."""
        ...

    async def release_lease(self, lease: Lease) -> None:
        """Release `lease` immediately; do nothing if another owner already acquired it."""
        ...

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        """Store `content` as the part of the answer to model call `seq` that was received so far.

        Durable: the content survives ``kill -9``. The content is stored until the next call of
        `put_partial` or the end of the turn. Raises: LeaseLost.
        """
        ...


class LogReader(Protocol):
    """Read one stream."""

    async def state(self, stream: StreamId) -> StreamState:
        """Return the current state of `stream`. Raises: SessionNotFound."""
        ...

    async def entries(
        self,
        stream: StreamId,
        after: int = EMPTY,
        limit: int | None = None,
        *,
        kind: str | None = None,
        before: int | None = None,
    ) -> list[Entry]:
        """Return the stream's own log in order, from the first entry after seq `after`.

        With `kind`, return only entries of that kind. With `before`, return only entries before seq
        `before`, newest first. The body of an erased entry is empty (`Entry.is_erased`). Raises:
        SessionNotFound.
        """
        ...

    async def tail(self, stream: StreamId, limit: int, kinds: Sequence[str] = ()) -> Tail:
        """Return ``state``, the last `limit` of ``entries``, and ``notes`` of `kinds`, in one read.

        No entry or note in the result comes after the head in the returned state. While other
        writers append, the result may have fewer than `limit` entries. Raises: SessionNotFound.
        """
        ...

    async def entry(self, stream: StreamId, entry: EntryId) -> Entry:
        """Return an entry that `stream` sees: its own entry, or one that its origin shares with it.

        Raises: EntryNotFound, SessionNotFound.
        """
        ...

    async def visible_ids(self, stream: StreamId, entries: Sequence[EntryId]) -> frozenset[EntryId]:
        """Return the `entries` (ids) that `stream` sees, using one read.

        Raises: SessionNotFound.
        """
        ...

    async def branch(
        self,
        stream: StreamId,
        leaf: EntryId | None,
        *,
        limit: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        """Return the tree entries from the root to `leaf`, optionally of one `kind`.

        With `limit`, return only the newest `limit` entries; the cost of the call does not depend
        on the length of the branch. If `leaf` is None, return [].
        Raises: EntryNotFound, SessionNotFound.
        """
        ...

    async def context_window(
        self, stream: StreamId, leaf: EntryId | None, limit: int | None = None
    ) -> ContextWindow:
        """Return the context of `leaf`, which is the end of its branch (`fold.window_of`).

        With `limit`, return at most the newest `limit` entries of the context; `limit` is at least
        1 (`fold.end_of`). The cost of the call depends on the size of the result. Raises:
        EntryNotFound, SessionNotFound.
        """
        ...

    async def around(
        self, stream: StreamId, leaf: EntryId, entries: Sequence[EntryId], reach: int
    ) -> list[Placed]:
        """Return the `entries` on the branch to `leaf`, each with up to `reach` neighbors.

        `reach` counts the neighbors on each side. An entry can have fewer neighbors, for example at
        the beginning of the branch. The call uses one read and returns the entries in order.
        Raises: the errors of `branch`.
        """
        ...

    async def tree(self, stream: StreamId, limit: int | None = None) -> list[Entry]:
        """Return the newest `limit` visible tree entries in log order, a fork's origin first."""
        ...

    async def notes(self, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
        """Return the side entries of `kinds` that the stream sees, in order.

        A fork also sees the side entries of its origin up to the fork. Omits erased entries.
        Raises: SessionNotFound.
        """
        ...

    async def open_questions(self, stream: StreamId) -> list[Entry]:
        """Return the open questions in the stream's own log, in order."""
        ...

    async def partial(self, stream: StreamId) -> tuple[int, bytes] | None:
        """Return the open turn's last `put_partial`, if any: seq of the model call, and content."""
        ...

    async def resolve(self, stream: StreamId, reference: str) -> EntryId:
        """Return the id of the entry whose full id or foreign id is `reference`.

        Raises: EntryNotFound, SessionNotFound.
        """
        ...

    async def find_entry(self, stream: StreamId, prefix: str) -> EntryId:
        """Resolve user input for `Session.find`: an id, seq, foreign id, or a prefix.

        Digits alone are never a prefix, so a wrong seq matches nothing.
        Raises: EntryNotFound, AmbiguousId, SessionNotFound.
        """
        ...

    async def aliases(self, stream: StreamId) -> dict[str, EntryId]:
        """Return a map from foreign ids to entries, for the stream's own log."""
        ...


@runtime_checkable
class SnapshotReader(Protocol):
    """Optional reads, for backends where every read is a round trip to another thread."""

    async def newest(
        self, stream: StreamId, *, limit: int | None = None, kind: str | None = None
    ) -> tuple[StreamState, list[Entry]]:
        """Return ``state`` and the ``branch`` to its leaf in one read. Raises: SessionNotFound."""
        ...

    async def resolved(self, stream: StreamId, reference: str) -> Entry:
        """Return the ``entry`` that ``resolve`` finds. Raises: EntryNotFound, SessionNotFound."""
        ...


class NamespaceReader(Protocol):
    """Read across the streams of the namespace."""

    async def find(self, prefix: str) -> StreamId:
        """Return the only stream that matches `prefix`. Raises: the errors of `Store.find`."""
        ...

    async def entries_named(self, alias: str) -> list[EntryId]:
        """Return the entries with foreign id `alias`, one per stream.

        The call reads all session files if the backend stores sessions in files.
        """
        ...

    async def sessions(
        self,
        *,
        limit: int | None = 50,
        scope: SessionScope = "listed",
        cwd: str | None = None,
        query: str | None = None,
        **sought: Unpack[Sought],
    ) -> list[SessionInfo]:
        """Return sessions that are not erased, newest activity first (ties: by id, descending).

        The filters are the folder `cwd`, a `query` contained in the name or id (case-insensitive),
        and `sought`.
        """
        ...

    async def idle_sessions(self, upto: int) -> list[StreamId]:
        """Return the sessions without activity after `upto` that can end as idle, latest first.

        A session can end as idle if it is active, was not imported, and has had a turn.
        """
        ...

    async def open_turns(self) -> list[OpenTurn]:
        """Return sessions of any origin with an open turn, in any order, without a full scan."""
        ...

    async def open_of_all(self, kind: str) -> list[Entry]:
        """Return the open entries of `kind` in all streams; `kind` is one of `OPENING`.

        The result has only entries in the streams' own logs, in any order. The cost of the call
        depends on the size of the result.
        """
        ...

    async def notes_of_all(
        self, kinds: Sequence[str], streams: Sequence[StreamId] | None = None
    ) -> list[Entry]:
        """Return the side entries of `kinds` in the own logs of all streams, in order per stream.

        With `streams`, the call reads only the logs of these streams, and skips unknown streams.
        The call uses one read. The cost of the call depends on the size of the result, plus one
        index lookup per stream. Entries of `FLOW_KINDS` are only in streams of kind `flow`.
        """
        ...

    async def feed(self, after: int, limit: int = 1000) -> list[Positioned]:
        """Return entries of all streams in commit order, after position `after` (0: all).

        The positions of entries only grow, and a gap between positions is never filled later.
        Erased entries are omitted.
        """
        ...

    async def position(self) -> int:
        """Return the position of the newest entry of the namespace; 0 if there is none."""
        ...

    def changes(self, stream: StreamId | None = None) -> AsyncIterator[None]:
        """Yield at least once after every commit by any process to `stream`; None means any stream.

        The iterator also yields at its beginning and after removals. The iterator misses no commit
        after this call. Several commits can cause one wake-up. The iterator ends at `close`.
        """
        ...

    async def blob(self, digest: str) -> bytes:
        """Return the content whose `blob_hash` is `digest`. Raises: EntryNotFound, CorruptLog."""
        ...


OnProgress = Callable[[int, int], None]
"""Called with the number of finished steps and the total number of steps."""
