"""The handle on a namespace of a store in memory, the store's services, and searchable texts."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from perdure.errors import StoreUnavailable, Unsupported
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE
from perdure.session.search.query import sought_in
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.stores.access.call_lock import one_at_a_time
from perdure.stores.access.lease_term import lease_end
from perdure.stores.access.process import OwnProcess
from perdure.stores.in_memory import limits as stream_limits
from perdure.stores.in_memory import segments
from perdure.stores.in_memory.erase import erase
from perdure.stores.in_memory.streams import Heap, HeldStream, held_in, is_on_branch, problems_in
from perdure.stores.maintenance.protocol import SOME_COMMITS, VacuumReport
from perdure.stores.maintenance.repair import SalvagedNamespace
from perdure.stores.maintenance.segments import SegmentState, StreamSegment
from perdure.stores.maintenance.stats import StoreFigures
from perdure.stores.protocol import OnProgress, Verification
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.retention.policy import Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.scan import Found, fitting, found_entry, found_title, hits_among
from perdure.stores.search import recall_plan
from perdure.stores.search.corpus import Corpus
from perdure.stores.search.recall_plan import Asked, Ranked, Recalled
from perdure.stores.search.rows import run_now
from perdure.stores.search.vectors import Unembedded, VectorModel, VectorState, to_embed
from perdure.stores.verification import Steps, blob_problems, content_steps
from perdure.stores.wakeups import Changes, Watches

ADDRESS = "memory:"


@dataclass(slots=True)
class Memory:
    """Data shared by handles: for each namespace its streams, limits, certificates and wake-ups."""

    clock: Clock
    random: RandomSource
    lock: threading.RLock = field(default_factory=threading.RLock)
    process: OwnProcess = field(default_factory=lambda: OwnProcess(ADDRESS))
    heaps: dict[str, Heap] = field(default_factory=dict[str, Heap])
    limits: dict[str, stream_limits.Limits] = field(default_factory=dict[str, stream_limits.Limits])
    erasures: dict[str, list[Certificate]] = field(default_factory=dict[str, "list[Certificate]"])
    watches: Watches = field(default_factory=Watches)


class MemoryHandle:
    """A handle on one namespace of a `Memory`, usable until the handle is closed."""

    def __init__(self, namespace: str, memory: Memory) -> None:
        self.namespace = namespace
        self.lock, self.process = memory.lock, memory.process
        self.memory = memory
        self.data = memory.heaps.setdefault(namespace, Heap())
        self.limits = memory.limits.setdefault(namespace, stream_limits.Limits())
        self.watches: weakref.WeakSet[Changes] = weakref.WeakSet()
        self.is_closed = False

    def check_open(self) -> None:
        """Check that the handle is open.

        Raises: StoreUnavailable if the handle was closed.
        """
        if self.is_closed:
            raise StoreUnavailable(ADDRESS, "it was closed; open it again")

    @property
    def heap(self) -> Heap:
        """Return the data of the namespace. Raises: StoreUnavailable if the handle was closed."""
        self.check_open()
        return self.data

    def stream(self, stream: StreamId) -> HeldStream:
        """Return the data of `stream`. Raises: SessionNotFound."""
        return held_in(self.heap, stream)

    def lease_end(self, ttl_ms: int) -> int:
        """Return when a lease of `ttl_ms` that starts now ends. Units: Unix milliseconds."""
        return lease_end(self.memory.clock.now_ms(), ttl_ms)


@one_at_a_time
class MemorySearch:
    """The `SearchService` of a memory. There is no index; each search reads the whole log."""

    def __init__(self, handle: MemoryHandle) -> None:
        self.lock, self.process = handle.lock, handle.process
        self._handle = handle
        self._corpus, self._erased = Corpus(), 0
        self._ranking = threading.Lock()

    async def hits(self, query: SearchQuery, on_progress: OnProgress | None = None) -> list[Hit]:
        heap, sought = self._handle.heap, sought_in(query.text)
        read = islice(fitting(texts_in(heap), query, sought), MOST_RANKED)
        fits = [fit for fit in await asyncio.to_thread(list, read) if is_there(heap, fit[0])]
        shown = {found.position for found, _ in fits if is_shown(heap, found)}
        return await asyncio.to_thread(
            hits_among, fits, query, sought, lambda found: found.position in shown
        )

    async def recall(self, asked: Asked) -> list[Recalled]:
        heap = self._handle.heap
        erased = sum(entry is None or entry.is_erased for entry in heap.log)
        if erased != self._erased:
            self._corpus, self._erased = Corpus(), erased
        corpus, texts, vectors = self._corpus, texts_in(heap), heap.vectors.snapshot()

        def ranked() -> Sequence[Ranked]:
            with self._ranking:  # another recall may be using the corpus
                return recall_plan.scanned(corpus, texts, vectors, asked)

        best = await asyncio.to_thread(ranked)
        found = [(text_at(heap, corpus.positions[each.text]), each) for each in best]
        return [Recalled(text, each) for text, each in found if text is not None]

    async def unembedded(self, model: VectorModel) -> Unembedded:
        heap = self._handle.heap
        before = run_now(heap.vectors.state(model)).upto
        new = [(each, each.position) for each in texts_in(heap) if each.position > before]
        return Unembedded(before, to_embed(reversed(new)), len(heap.log))

    async def add_vectors(
        self, model: VectorModel, span: tuple[int, int], vectors: Mapping[int, bytes]
    ) -> bool:
        heap, (before, after) = self._handle.heap, span
        if run_now(heap.vectors.state(model)).upto != before:
            return False
        there = {at: body for at, body in vectors.items() if text_at(heap, at) is not None}
        run_now(heap.vectors.add(model, after, there))
        return True

    async def vector_models(self) -> dict[VectorModel, VectorState]:
        return run_now(self._handle.heap.vectors.states())

    async def drop_vectors(self, model: VectorModel) -> None:
        run_now(self._handle.heap.vectors.drop(model))

    async def reindex(self, on_progress: OnProgress | None = None) -> int:
        return sum(1 for _ in texts_in(self._handle.heap))

    async def index(self, on_progress: OnProgress | None = None) -> None:
        self._handle.check_open()


@one_at_a_time
class MemoryRetention:
    """The `RetentionService` of a memory."""

    def __init__(self, handle: MemoryHandle) -> None:
        self.lock, self.process = handle.lock, handle.process
        self._handle = handle

    async def erase(self, request: EraseRequest) -> Certificate:
        earlier = self._handle.memory.erasures.setdefault(self._handle.namespace, [])
        certificate = erase(
            self._handle.heap, self._handle.namespace, request, earlier, self._handle.memory.random
        )
        self._handle.limits.count(self._handle.heap)
        self._handle.memory.watches.wake(
            (self._handle.namespace, StreamId(each.session)) for each in certificate.sessions
        )
        return certificate

    async def erasures(self) -> list[Certificate]:
        self._handle.check_open()
        return list(self._handle.memory.erasures.get(self._handle.namespace, ()))

    async def remember_backup(self, backup: Backup) -> None:
        raise Unsupported("backups", "memory")

    async def backups(self) -> list[Backup]:
        self._handle.check_open()
        return []

    async def policy(self) -> Retention:
        self._handle.check_open()
        return self._handle.limits.policy

    async def set_policy(self, policy: Retention) -> None:
        self._handle.check_open()
        self._handle.limits.policy = policy

    async def is_due(self, policy: Retention) -> bool:
        self._handle.check_open()
        return not policy.is_empty

    async def holdings(self) -> list[Holding]:
        return stream_limits.holdings(self._handle.heap, self._handle.memory.clock.now_ms())

    async def holder(self, stream: StreamId) -> Hold | None:
        return stream_limits.holder(self._handle.heap, stream, self._handle.memory.clock.now_ms())

    async def remove(
        self, stream: StreamId, *, is_erased: bool = False, expected_head: int | None = None
    ) -> bool:
        state = self._handle.stream(stream).state
        if is_erased and state.info.status != "erased":
            return False
        if expected_head not in (None, state.head):
            return False
        is_gone = stream_limits.remove(
            self._handle.heap, stream, self._handle.memory.clock.now_ms()
        )
        self._handle.limits.count(self._handle.heap)
        self._handle.memory.watches.wake([(self._handle.namespace, stream)])
        return is_gone

    async def forget_keys(self, before: int) -> int:
        return stream_limits.forget_keys(self._handle.heap, before)

    async def give_back(self) -> int:
        self._handle.check_open()
        return 0

    async def quota(self) -> tuple[Quota, Usage]:
        return self._handle.limits.quota, stream_limits.usage_of(self._handle.heap)

    async def set_quota(self, quota: Quota) -> None:
        self._handle.check_open()
        self._handle.limits.quota = quota
        self._handle.limits.count(self._handle.heap)


@one_at_a_time
class MemoryMaintenance:
    """The `MaintenanceService` of a memory."""

    def __init__(self, handle: MemoryHandle) -> None:
        self.lock, self.process = handle.lock, handle.process
        self._handle = handle

    async def verify(self, on_progress: OnProgress | None = None) -> Verification:
        heap = self._handle.heap
        problems = [each for held in heap.streams.values() for each in problems_in(heap, held)]
        entries = [entry for entry in heap.log if entry is not None]
        sizes = (len(content) for content in heap.blobs.values())
        steps = Steps(on_progress, len(entries) + sum(map(content_steps, sizes)))
        steps.add(len(entries))
        for digest, content in heap.blobs.items():
            problems += blob_problems(digest, content)
            steps.add(content_steps(len(content)))
        erased = sum(entry.is_erased and entry.kind != OPAQUE for entry in entries)
        steps.end()
        return Verification(len(heap.streams), len(entries), tuple(problems), erased)

    async def check_writable(self) -> None:
        self._handle.check_open()

    async def vacuum(self) -> VacuumReport:
        raise Unsupported("vacuum", "memory")

    async def segment_states(self) -> list[SegmentState]:
        return segments.segment_states(self._handle.heap)

    async def read_segment(
        self, stream: StreamId, *, after: int, upto: int, limit: int = SOME_COMMITS
    ) -> StreamSegment:
        return segments.read_segment(self._handle.heap, stream, after=after, upto=upto, limit=limit)

    async def receive(self, sealed: StreamSegment, contents: Sequence[bytes]) -> None:
        segments.receive(self._handle.heap, sealed, contents)
        self._handle.limits.count(self._handle.heap)
        self._handle.memory.watches.wake([(self._handle.namespace, sealed.header.id)])

    async def salvage_namespace(self) -> SalvagedNamespace:
        raise Unsupported("salvage", "memory")

    async def measure(self, since: int) -> StoreFigures:
        raise Unsupported("measure", "memory")  # `store stats` reads the store


def texts_in(heap: Heap) -> Iterator[Found]:
    """Yield all searchable texts, the newest entry first and then the titles.

    Shape: another thread can iterate while `heap` changes.
    """
    headers = {stream: held.state.header for stream, held in heap.streams.items()}
    return _texts(tuple(heap.log), headers)


def _texts(
    log: Sequence[Entry | None], headers: Mapping[StreamId, StreamHeader]
) -> Iterator[Found]:
    for position in range(len(log), 0, -1):
        entry = log[position - 1]
        header = None if entry is None else headers[entry.stream]
        if entry is not None and header is not None and header.kind == "session":
            found = found_entry(position, entry, header.subject)
            if found is not None:
                yield found
    for number, header in enumerate(headers.values(), 1):
        found = found_title(number, header)
        if found is not None:
            yield found


def text_at(heap: Heap, position: int) -> Found | None:
    """Return the text of the entry at `position`; None if it was erased."""
    entry = heap.log[position - 1]
    held = None if entry is None else heap.streams.get(entry.stream)
    if entry is None or held is None:
        return None
    return found_entry(position, entry, held.state.header.subject)


def is_there(heap: Heap, found: Found) -> bool:
    """Return whether `found` still exists; False if it was erased after it was read."""
    if found.stream not in heap.streams:
        return False
    entry = None if found.entry is None else heap.log[found.position - 1]
    return found.entry is None or (entry is not None and not entry.is_erased)


def is_shown(heap: Heap, found: Found) -> bool:
    """Return whether `found` is on the current branch of its session."""
    target = found.target
    return target is None or is_on_branch(heap, target, heap.streams[found.stream].state.leaf)
