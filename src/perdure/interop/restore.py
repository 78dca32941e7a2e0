"""Import a session of perdure's own format into a store.

The session keeps its id if no other session has this id. With its id unchanged, the entries of the
session equal the entries in the file byte for byte. A file with fewer entries than the session adds
nothing; a file with more entries adds those that the session lacks. An interrupted import leaves a
valid session with fewer entries, because the beginning of a log is a valid log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from perdure.errors import SessionNotFound
from perdure.interop.append_items import after_conflicts
from perdure.interop.bundle import bundle_of
from perdure.interop.formats import native
from perdure.interop.formats.logs import LogFile, LogStretch, as_new
from perdure.interop.matching import session_ids
from perdure.interop.reports import ImportReport, Lost, about, still_erased
from perdure.session.clock import Clock, RandomSource
from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import MESSAGE
from perdure.session.notes import SessionReceived
from perdure.stores.protocol import EMPTY, Commit, Lease, StreamState, Write
from perdure.stores.session_store import SessionStore, state_unless_erased

LEASE_MS = 60_000


async def restore(
    store: SessionStore,
    log: LogFile,
    *,
    subject: str | None = None,
    clock: Clock,
    random: RandomSource,
    piece_bytes: int,
    again: bool = False,
) -> ImportReport:
    """Import the session of `log` into `store`.

    `subject`, if given, becomes the subject of the session. If the session was erased, nothing is
    imported. If `again` is True, an erased session is imported with another id.
    Units: each commit contains approximately `piece_bytes` bytes of the file.
    Durable: the whole file is stored when the call returns. A session with turns is created by a
    separate commit, because turns need the lease of the session. After a crash between two commits,
    importing the same file again adds the missing entries.
    Raises: LeaseHeld if another import of the session is running. Raises FormatError if the entries
    to append do not form a valid log, or if the file was changed meanwhile. Other errors are those
    of ``SessionStore.commit``.
    """
    subject = log.header.subject if subject is None else subject
    restoring = _SessionRestore(store, log, subject, clock, random, piece_bytes, again)
    return await after_conflicts(restoring.run, log.length // piece_bytes)


@dataclass(slots=True)
class _SessionRestore:
    """The import of one session.

    A conflict starts a new attempt; `entries` and `messages` count the additions of all attempts.
    """

    store: SessionStore
    log: LogFile
    subject: str | None
    clock: Clock
    random: RandomSource
    piece_bytes: int
    again: bool
    entries: int = 0
    messages: int = 0
    is_new: bool = False
    is_noted: bool = False

    async def run(self) -> ImportReport:
        passed: list[StreamId] = []
        erased: StreamId | None = None
        for stream in session_ids(native.FORMAT, self.log.header.id, b""):
            header = msgspec.structs.replace(
                self.log.header, id=stream, subject=self.subject, received=len(self.log)
            )
            try:
                state = await state_unless_erased(self.store, stream)
            except SessionNotFound:
                if erased is not None and not self.again:
                    return still_erased(Lost(erased), native.FORMAT)
                await self._append(header, None)
                return self._report(stream, erased, passed)
            if state is None:
                erased = erased or stream
                continue
            # The subject, and how much was received, are facts of the store, not of the file.
            header = msgspec.structs.replace(
                header, subject=state.header.subject, received=state.header.received
            )
            common = await self._in_common(state, header)
            if common < len(self.log) and (common, header) != (state.head + 1, state.header):
                passed.append(stream)
                continue
            if common < len(self.log):
                await self._append(header, state)
            return about(self._report(stream), self.subject, state.header)
        raise AssertionError("session_ids never ends")

    async def _in_common(self, state: StreamState, header: StreamHeader) -> int:
        """Return how many entries, from the first on, are equal in the file and in the store.

        Return -1 if the session in the store is a different session.
        """
        stream, log = header.id, self.log
        if state.header.fork is not None:
            here = await bundle_of(self.store, stream)
            if here.header != msgspec.structs.replace(header, received=0):
                return -1
            return await asyncio.to_thread(log.in_common, here.entries, 0, stream)
        if state.header != header:
            return -1
        common, end = 0, min(len(log), state.head + 1)
        while common < end:
            some = min(end - common, log.some(common, self.piece_bytes))
            entries = await self.store.entries(stream, common - 1, some)
            same = await asyncio.to_thread(log.in_common, entries, common, stream)
            common += same
            if same < some:
                break
        return common

    def _report(
        self, stream: StreamId, erased: StreamId | None = None, passed: Sequence[StreamId] = ()
    ) -> ImportReport:
        told = [f"session {each} is another one; this one became {stream}" for each in passed[:1]]
        if erased is not None:
            told = [f"session {erased} was erased; this one became {stream}"]
        return ImportReport(
            session=stream,
            format=native.FORMAT,
            entries=self.entries,
            messages=self.messages,
            skipped=0,
            malformed=(),
            warnings=tuple(told),
            is_new=self.is_new,
        )

    # -- appending

    async def _append(self, header: StreamHeader, state: StreamState | None) -> None:
        """Append the entries after `state`; if `state` is None, create the session first."""
        self.log.check()
        first = 0 if state is None else state.head + 1
        self.is_noted = state is not None and self.log.has_authority(first)
        is_open = state is not None and state.open_turn is not None
        if not is_open and not self.log.has_turns(first):
            await self._append_all(header, first, None, is_new=state is None)
            return
        if state is None:
            await self._commit(Write(stream=header.id, create=header))
            self.is_new = True
        async with self._lease(header.id) as lease:
            await self._append_all(header, first, lease, is_new=False)

    async def _append_all(
        self, header: StreamHeader, first: int, lease: Lease | None, *, is_new: bool
    ) -> None:
        stretches = self.log.stretches(first, header.id, self.piece_bytes)
        while (stretch := await asyncio.to_thread(next, stretches, None)) is not None:
            await self._commit(self._write(header, stretch, lease, is_new=is_new), stretch.blobs)
            if lease is not None and stretch.entries[-1].seq < len(self.log) - 1:
                lease = await self.store.renew_lease(lease, LEASE_MS)
            self.is_new = self.is_new or is_new
            self.entries += len(stretch.entries)
            self.messages += sum(entry.kind == MESSAGE for entry in stretch.entries)
            is_new = False
        if is_new:  # a log without entries
            await self._commit(Write(stream=header.id, create=header))
            self.is_new = True

    def _write(
        self, header: StreamHeader, stretch: LogStretch, lease: Lease | None, *, is_new: bool
    ) -> Write:
        first = stretch.entries[0].seq
        alias = self.log.alias
        entries = [as_new(each, first, alias(each.seq)) for each in stretch.entries]
        is_last = first + len(entries) == len(self.log)
        if self.is_noted and is_last and header.received < len(self.log):
            entries.append(new_side(SessionReceived()))
        return Write(
            stream=header.id,
            entries=tuple(entries),
            is_received=True,
            create=header if is_new else None,
            expected_head=None if is_new else first - 1 if first else EMPTY,
            lease=lease,
        )

    @asynccontextmanager
    async def _lease(self, stream: StreamId) -> AsyncGenerator[Lease]:
        owner = f"import-{self.random(8).hex()}"
        lease = await self.store.acquire_lease(stream, owner, LEASE_MS)
        try:
            yield lease
        finally:
            await self.store.release_lease(lease)

    async def _commit(self, write: Write, blobs: tuple[bytes, ...] = ()) -> None:
        await self.store.commit(Commit(writes=(write,), at=self.clock.now_ms(), blobs=blobs))
