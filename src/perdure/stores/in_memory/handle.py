"""The memory that stores of this process share, and a handle on one of its namespaces."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field

from perdure.errors import (
    StoreUnavailable,
)
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import StreamId
from perdure.stores.access.lease_term import lease_end
from perdure.stores.access.process import OwnProcess
from perdure.stores.in_memory import limits as stream_limits
from perdure.stores.in_memory.streams import (
    Heap,
    HeldStream,
    held_in,
)
from perdure.stores.retention.erase import Certificate
from perdure.stores.wakeups import Changes, Watches

ADDRESS = "memory:"


@dataclass(slots=True)
class Memory:
    """What handles share: by namespace a heap, limits, certificates, and what a commit wakes."""

    clock: Clock
    random: RandomSource
    lock: threading.RLock = field(default_factory=threading.RLock)
    process: OwnProcess = field(default_factory=lambda: OwnProcess(ADDRESS))
    heaps: dict[str, Heap] = field(default_factory=dict[str, Heap])
    limits: dict[str, stream_limits.Limits] = field(default_factory=dict[str, stream_limits.Limits])
    erasures: dict[str, list[Certificate]] = field(default_factory=dict[str, "list[Certificate]"])
    watches: Watches = field(default_factory=Watches)


class MemoryHandle:
    """A namespace of a memory, until it is closed."""

    def __init__(self, namespace: str, memory: Memory) -> None:
        self.namespace = namespace
        self.lock, self.process = memory.lock, memory.process
        self.memory = memory
        self.data = memory.heaps.setdefault(namespace, Heap())
        self.limits = memory.limits.setdefault(namespace, stream_limits.Limits())
        self.watches: weakref.WeakSet[Changes] = weakref.WeakSet()
        self.is_closed = False

    def check_open(self) -> None:
        """Raises: StoreUnavailable if the handle was closed."""
        if self.is_closed:
            raise StoreUnavailable(ADDRESS, "it was closed")

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
