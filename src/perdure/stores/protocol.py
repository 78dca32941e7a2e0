"""The contract between perdure and a store: what a commit promises, and what can be read back.

A store holds streams; a stream is one append-only log with a dense ``seq`` from 0. Everything
above it is folded from entries. ``tests/conformance/store`` holds every backend to this contract.

The rules of an append, the same in every backend:

1. A tree entry with parent ``LEAF`` gets the stream's leaf as its parent, inside the commit; any
   tree entry becomes the leaf. A side entry of kind ``leaf`` makes its target the leaf.
2. A parent must be a tree entry that the stream sees: its own, or one its fork shares.
3. ``seq`` is dense per stream, in commit order; a commit's entries are consecutive.
4. While a turn is open (see `StreamState.open_turn`) only writes that carry its lease may append
   tree entries. Anybody else's tree entry is kept as side entry ``queued``, in its place; anybody
   else's ``leaf`` raises `TurnOpen`.
5. A ``turn_started`` opens a turn and needs a lease; a ``turn_finished`` closes it.
6. Every stream's share of a commit extends that stream's hash chain (``stores.chain``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Literal, Protocol, Unpack, runtime_checkable

import msgspec

from perdure.errors import ConfigError
from perdure.session.entries import Entry, NewEntry, Positioned
from perdure.session.fold import ContextWindow, Placed
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ListText, OpenTurn, SessionInfo, SessionScope, Sought, StreamHeader
from perdure.session.search.values import Hit, SearchQuery

EMPTY = -1
"""Head of a stream without entries."""

Durability = Literal["full", "normal"]
"""``full``: a commit survives power loss. ``normal``: it survives ``kill -9``, and is faster."""


def durability_of(text: str) -> Durability:
    """The durability that is called `text`. Raises: ConfigError when there is none."""
    if text not in ("full", "normal"):
        raise ConfigError(f"unknown durability {text!r}: use full or normal")
    return "full" if text == "full" else "normal"


class Lease(msgspec.Struct, frozen=True):
    """The right to run turns in a stream. `epoch` grows with every new holder and fences old ones.

    Units: `until` is Unix milliseconds by the store's clock.
    """

    stream: StreamId
    owner: str
    epoch: int
    until: int


class LeaseRequest(msgspec.Struct, frozen=True):
    """The wish to take a lease, as ``acquire_lease`` is told it."""

    owner: str
    ttl_ms: int
    dead_owner: str | None = None


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One stream's share of a commit.

    `create` makes the stream first. `expected_head` (a seq, -1 for empty) and `expected_leaf` (an
    id, None for before the root) make the whole commit fail when another writer was there first.
    `lease` says that the writer runs the open turn. With `taking` it is taken in this commit, in
    place of `lease`, or the whole commit fails as ``acquire_lease`` does; with `is_releasing` it is
    given back in it, after all else. Both take a backend with ``leases_in_commits``, and `taking` a
    commit without an idempotency key. `is_received` entries, of an import, get no ``marks``.
    Leases of a stream that `create` makes have epochs above `above_epoch`: greater than those of
    an erased stream of the same id.
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
    """What an erasure appends; only backends make it. `listed`, if any, is what lists show then."""

    listed: ListText | None = None


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """What is appended at once, all or nothing, to one or several streams.

    Units: `at` is Unix milliseconds. `blobs` are contents the entries refer to by `blob_hash`.
    """

    writes: tuple[Write, ...]
    at: int
    idempotency_key: str | None = None
    blobs: tuple[bytes, ...] = ()


class CommitResult(msgspec.Struct, frozen=True):
    """What a commit appended.

    Shape: one tuple of entries per write, in the order given. `is_replay`: the idempotency key was
    known, and these are the entries of the first time. `leases` are those that were taken. `copies`
    are, for a fork that copies, entry of the origin -> its copy.
    """

    entries: tuple[tuple[Entry, ...], ...]
    is_replay: bool = False
    leases: tuple[Lease, ...] = ()
    copies: Mapping[EntryId, EntryId] = {}


class StreamState(msgspec.Struct, frozen=True):
    """Where a stream stands. `open_turn` is the seq of the open turn's ``turn_started``.

    Shape: `hash` is the 32 bytes of the chain's head; `head` is -1 while there is no entry. `lease`
    is the one that was not given back, in answers of ``state`` only; it may have run out.
    """

    header: StreamHeader
    head: int
    leaf: EntryId | None
    hash: bytes
    epoch: int
    open_turn: int | None
    info: SessionInfo
    lease: Lease | None = None


class Problem(msgspec.Struct, frozen=True):
    """A fault that `verify` found. `seq` is None where it concerns the whole stream or store."""

    stream: str | None
    seq: int | None
    problem: str


class Verification(msgspec.Struct, frozen=True):
    """What `verify` found. Not faults: entries that are `erased`, writes that were `cut_off`."""

    streams: int
    entries: int
    problems: tuple[Problem, ...]
    erased: int = 0
    cut_off: tuple[Problem, ...] = ()

    @property
    def is_ok(self) -> bool:
        """No fault was found."""
        return not self.problems


class StoreInfo(msgspec.Struct, frozen=True):
    """Facts about the store and its namespace.

    Units: bytes; `payload_bytes` are those of the namespace's bodies and blobs, each blob once.
    `cipher` is what an encrypted store is encrypted with.
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


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend can do of what not every backend can; it refuses the rest (`Unsupported`).

    `multi_stream_commit`: one commit may write to several streams. `pointer_fork`: a fork shares
    its origin's entries, under their ids; without it a fork gets copies, entries of its own with
    ids of its own, and its header has a `parent` and no `fork`. `encryption`: the store can be
    encrypted at rest. `erase`: content can be taken out of a stream that stays; without it a
    stream can only be removed whole. `search`: the store is also `SearchService`.
    `leases_in_commits`: a commit can take a lease, and give one back.
    """

    multi_stream_commit: bool = True
    pointer_fork: bool = True
    encryption: bool = False
    erase: bool = False
    search: bool = False
    leases_in_commits: bool = False


class LogWriter(Protocol):
    """Appending to streams, and the right to do so."""

    async def commit(self, commit: Commit) -> CommitResult:
        """Append `commit`, all or nothing.

        Durable: on return it survives ``kill -9`` and, at durability "full", power loss.
        Raises: SessionExists, SessionNotFound, Erased; HeadConflict, LeafConflict; LeaseLost when a
        lease's epoch is not the current one; TurnOpen for a ``leaf`` without the open turn's lease,
        and for a second ``turn_started``; InvalidParent; InvalidEntry (unknown lane use, a
        ``turn_started`` without lease, a sibling that does not come earlier, two writes of one
        stream, a fork beyond its origin's head); IdempotencyMismatch when the key was used for
        other content; QuotaExceeded; ValueError for an id no stream can have; StoreReadOnly,
        StoreFull, StoreCorrupt; Unsupported for several writes without ``multi_stream_commit``;
        StoreUnavailable, after which the commit may have happened. Else nothing was appended.
        """
        ...

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        """Take the lease of `stream` with a new, higher epoch, if it is free or has run out.

        A lease held by `dead_owner`, whom the caller knows to be gone, counts as free.
        Raises: LeaseHeld(owner, until) while another (or the same) owner holds it; SessionNotFound,
        Erased.
        """
        ...

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        """Extend `lease`, also after it ran out. Raises: LeaseLost when another owner took it."""
        ...

    async def release_lease(self, lease: Lease) -> None:
        """Give `lease` back at once; nothing happens when it was taken over already."""
        ...

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        """Keep `content` as the part that has arrived of the answer to the model call `seq`.

        Durable: against ``kill -9``, until the next one or the turn's end. Raises: LeaseLost.
        """
        ...


class LogReader(Protocol):
    """Reading one stream."""

    async def state(self, stream: StreamId) -> StreamState:
        """Where `stream` stands now. Raises: SessionNotFound."""
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

        With `kind` only entries of it. With `before` only entries before that seq, newest first.
        An erased body is empty (`Entry.is_erased`). Raises: SessionNotFound.
        """
        ...

    async def entry(self, stream: StreamId, entry: EntryId) -> Entry:
        """An entry that `stream` sees: its own, or one a fork shares.

        Raises: EntryNotFound, SessionNotFound.
        """
        ...

    async def visible_ids(self, stream: StreamId, entries: Sequence[EntryId]) -> frozenset[EntryId]:
        """Those of `entries` that `stream` sees, found in one read. Raises: SessionNotFound."""
        ...

    async def branch(
        self,
        stream: StreamId,
        leaf: EntryId | None,
        *,
        limit: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        """The tree entries root -> `leaf`; with `kind` only those, with `limit` only the newest.

        Costs what it returns, not what the branch is long. `leaf` None gives [].
        Raises: EntryNotFound, SessionNotFound.
        """
        ...

    async def context_window(
        self, stream: StreamId, leaf: EntryId | None, limit: int | None = None
    ) -> ContextWindow:
        """The end of the branch to `leaf` that its context is built from (`fold.window_of`).

        Costs what it returns, at most the newest `limit` entries (1 or more) of it (`fold.end_of`).
        Raises: EntryNotFound, SessionNotFound.
        """
        ...

    async def around(
        self, stream: StreamId, leaf: EntryId, entries: Sequence[EntryId], reach: int
    ) -> list[Placed]:
        """Those of `entries` on the branch to `leaf`, with up to `reach` entries on either side.

        In order, in one read; fewer where another run of a log begins. Raises: as `branch`.
        """
        ...

    async def tree(self, stream: StreamId, limit: int | None = None) -> list[Entry]:
        """The newest `limit` tree entries the stream sees, in log order, a fork's origin first."""
        ...

    async def notes(self, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
        """The side entries of `kinds` that the stream sees, in order.

        A fork sees its origin's up to the fork. Erased ones are left out. Raises: SessionNotFound.
        """
        ...

    async def open_questions(self, stream: StreamId) -> list[Entry]:
        """The questions of the stream's own log that no entry of it closes, in order."""
        ...

    async def partial(self, stream: StreamId) -> tuple[int, bytes] | None:
        """Seq of the model call and content of the last `put_partial` of the open turn, if any."""
        ...

    async def resolve(self, stream: StreamId, reference: str) -> EntryId:
        """The id of the entry whose whole id or foreign id is `reference`.

        Raises: EntryNotFound, SessionNotFound.
        """
        ...

    async def find_entry(self, stream: StreamId, prefix: str) -> EntryId:
        """Resolve what a person typed, for `Session.find`: an id, seq, foreign id, or a prefix.

        Digits alone are never a prefix: a wrong seq matches nothing.
        Raises: EntryNotFound, AmbiguousId, SessionNotFound.
        """
        ...

    async def aliases(self, stream: StreamId) -> dict[str, EntryId]:
        """Foreign id -> entry, for the entries of this stream's own log."""
        ...


@runtime_checkable
class SnapshotReader(Protocol):
    """What a backend has besides where every read is a way of its own, to another thread."""

    async def newest(
        self, stream: StreamId, *, limit: int | None = None, kind: str | None = None
    ) -> tuple[StreamState, list[Entry]]:
        """``state``, and ``branch`` to its leaf, at one moment. Raises: SessionNotFound."""
        ...


class NamespaceReader(Protocol):
    """Reading across the streams of the namespace."""

    async def find(self, prefix: str) -> StreamId:
        """For `Store.find`: the one stream that `prefix` names. Raises: as `Store.find`."""
        ...

    async def entries_named(self, alias: str) -> list[EntryId]:
        """The entries with the foreign id `alias`, one a stream. Session files are all read."""
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
        """Sessions, newest activity first (ties: by id, descending); erased ones are none.

        Of `cwd`, with `query` in name or id (in any letter case), and as `sought` says.
        """
        ...

    async def idle_sessions(self, upto: int) -> list[StreamId]:
        """Active sessions of any origin without activity after `upto`, newest activity first."""
        ...

    async def open_turns(self) -> list[OpenTurn]:
        """Return sessions of any origin with an open turn, in any order. Costs what it returns."""
        ...

    async def open_questions_of_all(self) -> list[Entry]:
        """`open_questions` of all streams, in any order. Costs what it returns."""
        ...

    async def notes_of_all(self, kinds: Sequence[str]) -> list[Entry]:
        """The side entries of `kinds` in the own logs of all streams, those of each in order.

        In one read; costs what it returns, and a look at an index for each stream.
        """
        ...

    async def feed(self, after: int, limit: int = 1000) -> list[Positioned]:
        """Entries of all streams in commit order, from the first after position `after` (0: all).

        Positions grow with every entry; gaps are never filled later. Erased entries are left out.
        """
        ...

    async def position(self) -> int:
        """The position of the newest entry of the namespace; 0 when there is none."""
        ...

    def changes(self, stream: StreamId | None = None) -> AsyncIterator[None]:
        """Yield at least once after every commit to `stream` (None: to any), whoever makes it.

        Removals and commits after this call count; several may give one wake-up. Ends with `close`.
        """
        ...

    async def blob(self, digest: str) -> bytes:
        """The content whose `blob_hash` is `digest`. Raises: EntryNotFound, CorruptLog."""
        ...


@runtime_checkable
class SearchService(Protocol):
    """Full text over the namespace: what a backend with the capability ``search`` has besides."""

    async def search(self, query: SearchQuery) -> list[Hit]:
        """What fits `query`, in every branch of every session, the best first.

        Everything committed before the call is looked at; nothing of another namespace is, or
        counts in any way. What can be found is ``session.search.searchable``, what fits
        ``session.search.query``; every backend gives the same hits with the same scores.
        Raises: InvalidQuery; SearchIndexDamaged.
        """
        ...

    async def reindex(self) -> int:
        """Rebuild what `search` needs from the log; return how many texts can now be found."""
        ...


OnProgress = Callable[[int, int], None]
"""Told how much of how much is done."""


@runtime_checkable
class ScanSearchService(SearchService, Protocol):
    """A backend that can search without an index: the more there is, the longer it takes."""

    async def scan(self, query: SearchQuery, on_progress: OnProgress | None = None) -> list[Hit]:
        """As ``SearchService.search``, without an index."""
        ...


@runtime_checkable
class IndexedSearchService(SearchService, Protocol):
    """A backend whose searches go by an index: what was appended gets into it in steps."""

    async def index(self, on_progress: OnProgress | None = None) -> None:
        """Bring the index up to date, as the next search would.

        Raises: StoreReadOnly, StoreFull, StoreUnavailable. A search works without it then.
        """
        ...

    async def reindex(self, on_progress: OnProgress | None = None) -> int:
        """As ``SearchService.reindex``."""
        ...


class SessionStore(LogWriter, LogReader, NamespaceReader, Protocol):
    """One namespace of a store. Every method may be called from any task of one event loop."""

    address: str
    namespace: str
    capabilities: Capabilities

    async def verify(self, on_progress: OnProgress | None = None) -> Verification:
        """Check every hash, parent, count and span. `on_progress` may be told on another thread."""
        ...

    async def info(self) -> StoreInfo:
        """Facts and figures."""
        ...

    async def close(self) -> None:
        """Finish the commits under way and let go of the store. May be called twice."""
        ...
