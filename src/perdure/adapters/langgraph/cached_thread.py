"""The cache of a LangGraph thread, valid until the session of the thread grows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

import perdure
from perdure.adapters.langgraph.checkpoints import (
    CheckpointReader,
    PendingWrite,
    StoredCheckpoint,
)
from perdure.adapters.langgraph.entries import Key, writes_alias
from perdure.errors import Erased, SessionNotFound

V = TypeVar("V")

_CACHED: Final = 64
"""Maximum number of cached checkpoints of a thread, and of cached lists of pending writes."""


class CachedThread:
    """The newest state of a thread that this process has read or written.

    Shape: `head` is the head of the session when the cached data was read. Call `look` before a
    read, because `look` clears the cache if the session has a newer head. An append needs no call
    of `look`, because the append fails if the session has a newer head than `head`.
    """

    def __init__(self, store: perdure.Store, reader: CheckpointReader, lock: asyncio.Lock) -> None:
        self.head = reader.session.head
        self.newest: dict[str, str | None] = {}
        self.tails: dict[Key, str | None] = {}
        # Of a new session that is no fork, every write is known here until another one is seen.
        self._has_all_tails = self.head < 0 and reader.session.leaf is None
        self.written: dict[Key, Sequence[PendingWrite]] = {}
        self._placed: dict[Key, StoredCheckpoint] = {}
        self._store = store
        self._reader = reader
        self._lock = lock

    async def look(self) -> bool:
        """Clear the cache if another process wrote; return False if the session was erased."""
        try:
            if (await self._store.open(self._reader.session.id)).head != self.head:
                async with self._lock:  # an append of our own may be running
                    await self.refresh()
        except (Erased, SessionNotFound):
            return False
        return True

    async def refresh(self) -> None:
        """Read the head, and clear the cache. Raises: Erased; SessionNotFound."""
        self.head = (await self._store.open(self._reader.session.id)).head
        self.forget()

    def forget(self) -> None:
        """Empty the cache."""
        self.newest.clear()
        self.tails.clear()
        self._has_all_tails = False
        self.written.clear()
        self._placed.clear()

    async def get(self, ns: str, id: str | None) -> StoredCheckpoint | None:
        """Return a checkpoint as of the last `look`; if `id` is None, the newest of `ns`."""
        if id is None:
            id = await self.newest_id(ns)
        return None if id is None else await self.checkpoint(ns, id)

    async def checkpoint(self, ns: str, id: str) -> StoredCheckpoint | None:
        """Return the checkpoint with this namespace and id, or None."""
        if (known := self._placed.get((ns, id))) is not None:
            return known
        head = self.head
        read = await self._reader.checkpoint(ns, id)
        if read is not None and head == self.head:
            self.place(read)
        return read

    def place(self, read: StoredCheckpoint) -> None:
        """Cache a checkpoint."""
        _cache(self._placed, (read.ns, read.id), read)

    async def newest_id(self, ns: str) -> str | None:
        """Return the id of the newest checkpoint of `ns`."""
        if ns in self.newest:
            return self.newest[ns]
        head = self.head
        found = await self._reader.newest_id(ns)
        if head == self.head:
            self.newest[ns] = found
        return found

    async def tail(self, ns: str, id: str) -> str | None:
        """Return the id of the entry that stores the newest pending writes of a checkpoint."""
        if (ns, id) not in self.tails and not self._has_all_tails:
            entry = await self._reader.entry(writes_alias(ns, id))
            self.tails[ns, id] = None if entry is None else entry.id
        return self.tails.get((ns, id))

    async def writes(self, ns: str, id: str) -> Sequence[PendingWrite]:
        """Return the pending writes of a checkpoint as of the last `look`."""
        if (known := self.written.get((ns, id))) is not None:
            return known
        if self._has_all_tails and (ns, id) not in self.tails:
            return ()
        head = self.head
        found = await self._reader.writes(ns, id)
        if head == self.head:
            _cache(self.written, (ns, id), found)
        return found


def _cache(cached: dict[Key, V], key: Key, value: V) -> None:
    cached[key] = value
    while len(cached) > _CACHED:
        del cached[next(iter(cached))]
