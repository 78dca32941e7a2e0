"""Session storage: in the store, or in memory while the session is a draft.

Session handles read from ``backing.log`` and write through ``backing.commit``, so only this module
handles drafts. A draft stores its entries in a separate in-memory store, under their final ids. One
commit writes the entries of a draft to the real store, with the same order, ids, parents and times.
The hash chain covers commits. So the chain of the session begins with the commit that stores the
draft.

A draft (a session that is not stored yet) is stored together with its first assistant message. A
draft is stored earlier if an operation needs a stored log. The operations that need a stored log
are a fork, an expected head or leaf, an idempotency key, a lease, a commit to several streams, and
`flush`. An abandoned draft leaves nothing in the store.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import NewEntry, Ref, Sibling, copied, with_references
from perdure.session.ids import StreamId, entry_place
from perdure.session.kinds import MESSAGE
from perdure.session.messages import decode_message
from perdure.stores.access.lazy_modules import Later
from perdure.stores.access.loop_lock import LoopLock
from perdure.stores.access.process import running_loop
from perdure.stores.protocol import Commit, CommitResult, LogReader, Write
from perdure.stores.session_store import SessionStore
from perdure.stores.wakeups import Changes

if TYPE_CHECKING:
    from perdure.stores.in_memory import store as in_memory_store
else:
    in_memory_store = Later("perdure.stores.in_memory.store")


class StoredSession:
    """A session that is in its store."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.log: LogReader = store
        self.is_draft = False

    async def commit(self, commit: Commit) -> CommitResult:
        """Append `commit`, which writes to the session."""
        return await self.store.commit(commit)

    async def flush(self) -> None:
        """Do nothing, because all entries are stored."""

    def changes(self, stream: StreamId) -> AsyncIterator[None]:
        """Yield at least once after every change of the session `stream`."""
        return self.store.changes(stream)


class LazySession:
    """A session that is a draft, not stored in its store yet. `create` returns a draft."""

    def __init__(
        self, store: SessionStore, memory: in_memory_store.MemoryStore, birth: Write, clock: Clock
    ) -> None:
        self.store = store
        self._memory = memory
        self._birth = birth
        self._clock = clock
        self._blobs: tuple[bytes, ...] = ()
        self._writing = LoopLock()
        self._watches: weakref.WeakSet[Changes] = weakref.WeakSet()
        self._version = 0
        self.is_draft = True

    @classmethod
    async def create(
        cls, store: SessionStore, birth: Write, clock: Clock, random: RandomSource
    ) -> LazySession:
        """Return a draft of the session that `birth` creates; do not write to `store`."""
        memory = in_memory_store.MemoryStore(store.namespace, clock=clock, random=random)
        await memory.commit(Commit(writes=(birth,), at=clock.now_ms()))
        return cls(store, memory, birth, clock)

    @property
    def log(self) -> LogReader:
        return self._memory if self.is_draft else self.store

    async def commit(self, commit: Commit) -> CommitResult:
        # Shielded: if the caller is cancelled, no draft may remain whose log is in the store.
        return await asyncio.shield(self._commit(commit))

    async def flush(self) -> None:
        await asyncio.shield(self._flush())

    async def _commit(self, commit: Commit) -> CommitResult:
        async with self._writing:
            if self.is_draft and _needs_a_stored_log(commit, self._birth.stream):
                await self._move(Commit(writes=(), at=commit.at))
            if not self.is_draft:
                return await self.store.commit(commit)
            if any(_is_assistant(new) for new in commit.writes[0].entries):
                return await self._move(commit)
            self._blobs += commit.blobs
            committed = await self._memory.commit(commit)
            self._wake()
            return committed

    async def _flush(self) -> None:
        async with self._writing:
            if self.is_draft:
                await self._move(Commit(writes=(), at=self._clock.now_ms()))

    def changes(self, stream: StreamId) -> AsyncIterator[None]:
        return self._changes(stream, self._version)

    async def _changes(self, stream: StreamId, seen: int) -> AsyncIterator[None]:
        wakes = Changes(running_loop())
        self._watches.add(wakes)
        while self.is_draft:
            while self._version == seen:
                await anext(wakes)
            seen = self._version
            yield
        following = self.store.changes(stream)
        yield  # for commits by others before this point
        async for _ in following:
            yield

    async def _move(self, commit: Commit) -> CommitResult:
        """Store the draft together with `commit` in one commit; return the result of `commit`."""
        own = self._birth.stream
        aliases = {entry: alias for alias, entry in (await self._memory.aliases(own)).items()}
        drafted = await self._memory.entries(own)

        def refer(reference: Ref) -> Ref:
            """Adapt `reference` to a write that begins with the entries of the draft."""
            if isinstance(reference, Sibling):
                return Sibling(reference.index + len(drafted))
            stream, seq = entry_place(reference)
            return Sibling(seq) if stream == own else reference

        entries = [copied(entry, aliases.get(entry.id)) for entry in drafted]
        entries += [new for write in commit.writes for new in write.entries]
        entries = [with_references(new, refer) for new in entries]
        write = msgspec.structs.replace(self._birth, entries=tuple(entries))
        blobs = (*self._blobs, *commit.blobs)
        committed = await self.store.commit(Commit(writes=(write,), at=commit.at, blobs=blobs))
        self.is_draft = False
        self._wake()
        await self._memory.close()
        return CommitResult(entries=(committed.entries[0][len(drafted) :],))

    def _wake(self) -> None:
        self._version += 1
        for watch in tuple(self._watches):
            watch.wake()


SessionStorage = StoredSession | LazySession
"""The place where one session is read and written.

`store` is the store of the session; for a draft, the store where it will be stored. `log` is the
log that currently contains the session.
"""


def _needs_a_stored_log(commit: Commit, own: StreamId) -> bool:
    if len(commit.writes) != 1 or commit.idempotency_key is not None:
        return True
    write = commit.writes[0]
    return (
        write.stream != own
        or write.create is not None
        or write.expected_head is not None
        or write.expected_leaf is not msgspec.UNSET
        or write.lease is not None
        or write.taking is not None
    )


def _is_assistant(new: NewEntry) -> bool:
    if new.kind != MESSAGE:
        return False
    try:
        return decode_message(new.body, new.v).role == "assistant"
    except ValueError:
        return False
