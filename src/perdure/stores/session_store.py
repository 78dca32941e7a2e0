"""`SessionStore`: the log of one namespace, and the other services of a store.

``stores.protocol`` describes the log; this module adds search, retention and maintenance. Every
backend provides search, retention and maintenance. A backend raises `Unsupported` for individual
calls that it does not support.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from perdure.errors import SessionNotFound
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.maintenance.protocol import SOME_COMMITS, VacuumReport
from perdure.stores.marks import Marks
from perdure.stores.protocol import (
    Capabilities,
    Commit,
    LogReader,
    LogWriter,
    NamespaceReader,
    OnProgress,
    StoreInfo,
    StreamState,
    Verification,
    Write,
)
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.retention.policy import Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage

if TYPE_CHECKING:
    from perdure.stores.maintenance.repair import SalvagedNamespace
    from perdure.stores.maintenance.segments import SegmentState, StreamSegment
    from perdure.stores.maintenance.stats import StoreFigures
    from perdure.stores.search.recall_plan import Asked, Recalled
    from perdure.stores.search.vectors import Unembedded, VectorModel, VectorState


class SearchService(Protocol):
    """Full-text search over the namespace. Other namespaces do not affect the scores."""

    async def hits(self, query: SearchQuery, on_progress: OnProgress | None = None) -> list[Hit]:
        """Return the matches of `query` in every branch of every session, best first.

        The search covers all commits before the call. ``session.search.searchable`` defines the
        searchable texts, and ``session.search.query`` the matches. All backends return the same
        hits and scores. `on_progress` is called while a search without an index reads the store.
        Raises: InvalidQuery; SearchIndexDamaged.
        """
        ...

    async def recall(self, asked: Asked) -> list[Recalled]:
        """Return the texts that `asked.ranking` ranks best.

        The recall covers all commits before the call. The ranking runs in a thread. The ranking
        receives the frequency of the words in every text, and the vectors of `asked.model` for the
        texts that have a vector.
        Raises: SearchIndexDamaged.
        """
        ...

    async def unembedded(self, model: VectorModel) -> Unembedded:
        """Return the next texts without a vector of `model`, in the order of the log.

        Raises: Unsupported.
        """
        ...

    async def add_vectors(
        self, model: VectorModel, span: tuple[int, int], vectors: Mapping[int, bytes]
    ) -> bool:
        """Store `vectors`, a mapping from the positions of texts to their vectors.

        `span` contains all positions in `vectors`, and is a part of the range that `unembedded`
        returned. Texts that were erased get no vector. Return False, and store nothing, if the
        stored vectors do not end at `span[0]`, because another process has changed them.
        Durable: the vectors survive the end of the process, but not a power cut. After a power cut,
        `unembedded` returns the texts again.
        Raises: StoreReadOnly, StoreFull, StoreUnavailable or Unsupported.
        """
        ...

    async def vector_models(self) -> dict[VectorModel, VectorState]:
        """Return the models that have vectors, each with the number of its vectors.

        Raises: Unsupported.
        """
        ...

    async def drop_vectors(self, model: VectorModel) -> None:
        """Remove all vectors of `model`. Raises: StoreReadOnly, StoreUnavailable or Unsupported."""
        ...

    async def index(self, on_progress: OnProgress | None = None) -> None:
        """Update the index now instead of at the next search.

        Raises: StoreReadOnly, StoreFull, StoreUnavailable. Searches still work after an error of
        `index`.
        """
        ...

    async def reindex(self, on_progress: OnProgress | None = None) -> int:
        """Rebuild the index from the log; return the number of searchable texts."""
        ...


class RetentionService(Protocol):
    """Erases and removes sessions; stores the retention policy, the quota and a list of backups."""

    async def erase(self, request: EraseRequest) -> Certificate:
        """Erase the data that `request` describes, and everything that is derived from this data.

        An erasure removes the bodies of the entries with their salts, titles and headers, foreign
        ids, partial answers, idempotency keys, texts in the search index, summaries of the entries
        (in kept forks too), child sessions, and contents that no other entry references. The
        digests of erased bodies stay, so `verify` still checks every hash. An erased session
        rejects every commit, lease or fork with Erased, and its open turn can write nothing more. A
        backend without the capability ``erase`` removes the sessions as a whole.

        With the fork policy "keep", the erasure keeps the entries that a fork sees, and their
        labels. The certificate lists the kept entries, and the forks that share them. Erasing an
        erased session again returns the earlier certificate if nothing is left to erase. A repeated
        erasure also erases the kept entries that no fork needs any more.

        Durable: the intent of the erasure is committed before any data is removed. After a kill,
        either nothing was erased, or the next opening of the store or the next `erase` completes
        the erasure. When the call returns, the store's files contain no erased data, except in the
        places that `Certificate.copies` lists.
        Raises: SessionNotFound, SessionHasForks, StoreReadOnly, StoreFull or StoreUnavailable.
        """
        ...

    async def erasures(self) -> list[Certificate]:
        """Return the certificates of the namespace, oldest first, including incomplete erasures."""
        ...

    async def remember_backup(self, backup: Backup) -> None:
        """Record `backup`, which replaces an earlier backup at the same path.

        Durable: the record is stored when the call returns. Raises: Unsupported.
        """
        ...

    async def backups(self) -> list[Backup]:
        """Return the recorded backups, oldest first.

        Some of the recorded backups may have been deleted meanwhile.
        """
        ...

    async def policy(self) -> Retention:
        """Return the retention policy of the namespace; an empty one if none was set."""
        ...

    async def set_policy(self, policy: Retention) -> None:
        """Set the retention policy; this call does not remove sessions.

        Durable: the policy is stored when the call returns.
        """
        ...

    async def is_due(self, policy: Retention) -> bool:
        """Return whether `policy` might remove a session now.

        A result of False is always correct. A result of True can be wrong, because the call does
        not scan the sessions.
        """
        ...

    async def holdings(self) -> list[Holding]:
        """Return a `Holding` for every session of the namespace, as input for `expiring`.

        The call reads the whole namespace.
        """
        ...

    async def holder(self, stream: StreamId) -> Hold | None:
        """Return the reason why `stream` cannot be removed now; None if there is no such reason.

        Raises: SessionNotFound.
        """
        ...

    async def remove(
        self, stream: StreamId, *, is_erased: bool = False, expected_head: int | None = None
    ) -> bool:
        """Remove a session with all its rows. Return False if the session is protected now.

        If `is_erased` is True, remove the session only if it was erased, so that its id can be used
        again. With `expected_head`, remove the session only if its head is still `expected_head`.
        Durable: the removal is one operation; after a kill the next opening of the store completes
        it. The positions of the session's entries are never reused.
        """
        ...

    async def forget_keys(self, before: int) -> int:
        """Delete the idempotency keys of commits before `before`; return the number of keys."""
        ...

    async def give_back(self) -> int:
        """Give free space back to the file system, in steps; return the number of bytes."""
        ...

    async def quota(self) -> tuple[Quota, Usage]:
        """Return the quota of the namespace (empty if none was set) and the current usage.

        The usage is exact, even after a kill.
        """
        ...

    async def set_quota(self, quota: Quota) -> None:
        """Set the quota of the namespace; an empty quota removes the limits.

        After this call, a commit of any process that would exceed the quota raises QuotaExceeded.
        Sessions that already exceed the quota remain. Durable: the quota is stored when the call
        returns. The call reads the whole namespace.
        """
        ...


class MaintenanceService(Protocol):
    """Verifies, copies, salvages, measures and cleans up a namespace."""

    async def verify(self, on_progress: OnProgress | None = None) -> Verification:
        """Check every hash, parent, count and span.

        `on_progress` can be called on another thread.
        """
        ...

    async def check_writable(self) -> None:
        """Commit an empty write, to test whether the store accepts commits.

        Raises: StoreReadOnly, StoreFull, StoreUnavailable, if a commit would raise them now.
        """
        ...

    async def vacuum(self) -> VacuumReport:
        """Remove contents that nothing references, and return free space to the file system.

        Raises: Unsupported.
        """
        ...

    async def segment_states(self) -> list[SegmentState]:
        """Return the state of every stream of the namespace at one moment.

        Shape: an origin comes before its forks; otherwise the streams are in the order of creation.
        """
        ...

    async def read_segment(
        self, stream: StreamId, *, after: int, upto: int, limit: int = SOME_COMMITS
    ) -> StreamSegment:
        """Return the first `limit` commits after seq `after` that end at or before seq `upto`.

        Raises: SessionNotFound if the stream is missing. Raises CorruptLog if `after` is inside a
        commit.
        """
        ...

    async def receive(self, sealed: StreamSegment, contents: Sequence[bytes]) -> None:
        """Append the commits of `sealed` unchanged, with their contents.

        If the stream is missing, create it.
        Durable: the call is atomic, like a commit.
        Raises: CopyConflict if the stream does not end where `sealed` begins. Raises CorruptLog if
        `sealed` does not match its own hashes. Raises SessionNotFound if a fork's origin is
        missing. Raises Unsupported for a fork or an erased entry, if the backend does not support
        it.
        """
        ...

    async def salvage_namespace(self) -> SalvagedNamespace:
        """Return the readable data of a damaged namespace at one moment; change nothing.

        Shape: the whole result is in memory. Raises: Unsupported.
        """
        ...

    async def measure(self, since: int) -> StoreFigures:
        """Return the figures of ``store stats``; `since` is in Unix milliseconds."""
        ...


class SessionStore(LogWriter, LogReader, NamespaceReader, Protocol):
    """One namespace of a store. Call the methods from any task of one event loop."""

    address: str
    namespace: str
    capabilities: Capabilities
    marks: Marks

    @property
    def search(self) -> SearchService:
        """Return the service for full-text search."""
        ...

    @property
    def retention(self) -> RetentionService:
        """Return the service for erasure, retention and quotas."""
        ...

    @property
    def maintenance(self) -> MaintenanceService:
        """Return the service for verification, copying and clean-up."""
        ...

    async def info(self) -> StoreInfo:
        """Return facts and figures of the store."""
        ...

    async def close(self) -> None:
        """Finish pending commits and close the store. Calling `close` twice is safe."""
        ...


async def exists(store: LogReader, stream: StreamId) -> bool:
    """Return whether `stream` is in the store. The result can be True for an erased stream."""
    with suppress(SessionNotFound):
        await store.state(stream)
        return True
    return False


async def is_erased(store: SessionStore, stream: StreamId) -> bool:
    """Return whether `stream` was erased as a whole.

    A backend that cannot erase removes streams instead; there, a certificate shows that a missing
    stream was erased.
    """
    with suppress(SessionNotFound):
        return await state_unless_erased(store, stream) is None
    return False


async def state_unless_erased(store: SessionStore, stream: StreamId) -> StreamState | None:
    """Return the state of `stream`; None if the stream was erased. Raises: SessionNotFound."""
    try:
        state = await store.state(stream)
    except SessionNotFound:
        done = [] if store.capabilities.erase else await store.retention.erasures()
        sessions = (each for erasure in done for each in erasure.sessions)
        if any(each.is_whole and each.session == stream for each in sessions):
            return None
        raise
    return None if state.info.status == "erased" else state


async def append_to(
    store: LogWriter,
    stream: StreamId,
    *entries: NewEntry,
    at: int,
    expected_head: int | None = None,
    key: str | None = None,
    blobs: tuple[bytes, ...] = (),
) -> tuple[Entry, ...]:
    """Append `entries` to one stream in one commit; return them as stored.

    `key` is the idempotency key of the commit. Units: `at` is Unix milliseconds. Raises: the errors
    of ``LogWriter.commit``.
    """
    write = Write(stream=stream, entries=entries, expected_head=expected_head)
    commit = Commit(writes=(write,), at=at, idempotency_key=key, blobs=blobs)
    return (await store.commit(commit)).entries[0]
