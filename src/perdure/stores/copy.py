"""Copying streams from one store to another, in parts, each checked before it is kept.

What is copied is what was there at one moment; logs only grow, so writers need not stop. The target
says itself how far a copy came: begun again after a kill, it goes on there. A stream arrives
under the same hashes, or, where the target cannot hold it as it is, sealed anew, which is said.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from perdure.errors import (
    CopyConflict,
    CorruptLog,
    EntryNotFound,
    InvalidEntry,
    InvalidParent,
    SessionNotFound,
)
from perdure.session.clock import RandomSource
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, entry_place
from perdure.session.info import StreamHeader
from perdure.stores.chain import SALT_BYTES, body_digest, commit_hash, genesis_hash, header_line
from perdure.stores.maintenance.segments import (
    SOME_COMMITS,
    SealedCommit,
    SegmentState,
    StreamSegment,
)
from perdure.stores.protocol import EMPTY, StreamState
from perdure.stores.session_store import SessionStore
from perdure.stores.verification import StoredEntry, contents_shown

SOME_ENTRIES = 500
"""Entries of a commit that is sealed anew."""

NAME_OF_CONTENT = re.compile(rb"sha256-[0-9a-f]{64}")
"""What may be the name of a content, wherever it stands in a body."""

StreamOutcome = Literal["copied", "present", "sealed anew", "erased", "conflict", "damaged"]


class CopiedStream(msgspec.Struct, frozen=True):
    """What became of one stream.

    `added` counts the entries that were not there before. `hash` is the target's chain, as
    hexadecimal digits: the source's own unless the stream was ``sealed anew``. `reason` says why
    it was, or what is wrong: a ``conflict`` is another session of that id, a ``damaged`` one was
    copied up to the damage. An ``erased`` one has no place in a target that removes sessions whole.
    """

    stream: StreamId
    outcome: StreamOutcome
    added: int = 0
    hash: str = ""
    reason: str | None = None


class CopyReport(msgspec.Struct, frozen=True):
    """What a copy did. `lost_contents` names those that the source no longer has, or not whole."""

    streams: tuple[CopiedStream, ...]
    contents: int = 0
    lost_contents: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Everything that was asked for is in the target."""
        has_all = all(each.outcome not in ("conflict", "damaged") for each in self.streams)
        return has_all and not self.lost_contents

    @property
    def added_entries(self) -> int:
        """Entries that were not in the target before."""
        return sum(each.added for each in self.streams)


class Whole(msgspec.Struct, frozen=True):
    """A stream as one log that points to no other."""

    header: StreamHeader
    entries: tuple[Entry, ...]
    aliases: Mapping[str, EntryId]


Progress = Callable[[int, int], None]
"""Told how many of how many entries are in the target."""


class StoreCopy:
    """One copy from a store to another. `whole_of` gives a stream that is to be sealed anew."""

    def __init__(
        self,
        source: SessionStore,
        target: SessionStore,
        *,
        whole_of: Callable[[StreamId], Awaitable[Whole]],
        random: RandomSource,
        on_progress: Progress,
    ) -> None:
        self._source = source
        self._target = target
        self._whole_of = whole_of
        self._random = random
        self._on_progress = on_progress
        self._passed: set[str] = set()
        self._lost: list[str] = []
        self._done = self._total = 0

    async def run(self, moment: Sequence[SegmentState]) -> CopyReport:
        """Copy the streams of `moment` as they stood then, an origin before its forks.

        Durable: each part as a commit of the target.
        """
        self._total = sum(each.head + 1 for each in moment)
        copied: list[CopiedStream] = []
        there = {
            each.stream: (each.head, each.hash)
            for each in await self._target.maintenance.segment_states()
        }
        for standing in moment:
            begun = self._done
            if there.get(standing.stream) == (standing.head, standing.hash):  # the same, throughout
                same = CopiedStream(standing.stream, "present", 0, standing.hash.hex())
                copied.append(same)
            else:
                copied.append(await self._copy_stream(standing))
            self._tell(begun + standing.head + 1)
        return CopyReport(tuple(copied), len(self._passed), tuple(self._lost))

    def _tell(self, done: int) -> None:
        self._done = done
        self._on_progress(min(done, self._total), self._total)

    async def _copy_stream(self, standing: SegmentState) -> CopiedStream:
        begun = self._done
        while True:
            before = await self._here(standing.stream)
            try:
                return await self._try_copy(standing, before)
            except CopyConflict as error:
                if await self._here(standing.stream) == before:
                    return CopiedStream(standing.stream, "conflict", reason=str(error))
            self._done = begun  # another copy was faster: on from where that came to

    async def _try_copy(self, standing: SegmentState, before: StreamState | None) -> CopiedStream:
        """Copy the stream, which stands at `before` in the target. Raises: CopyConflict."""
        stream = standing.stream
        try:
            if await self._is_left_out(stream):
                return _left_out(stream, before)
            reason = await self._why_anew(standing)
            if reason is not None:
                return await self._seal_anew(standing, before, reason)
            return await self._pass_on(standing, before)
        except (SessionNotFound, InvalidEntry, InvalidParent):
            if await self._is_gone(stream):
                return _left_out(stream, await self._here(stream))
            why = f"what it was forked from ({standing.origin}) is not in the target, or another"
            return CopiedStream(stream, "conflict", reason=why)
        except CorruptLog as error:
            here = await self._here(stream)
            head = EMPTY if before is None else before.head
            added = 0 if here is None else here.head - head
            place = f"entry {error.seq}: " if error.seq >= 0 else ""
            return CopiedStream(stream, "damaged", added, reason=f"{place}{error.reason}")

    async def _here(self, stream: StreamId) -> StreamState | None:
        """Where the stream stands in the target."""
        try:
            return await self._target.state(stream)
        except SessionNotFound:
            return None

    async def _is_gone(self, stream: StreamId) -> bool:
        """It was removed from the source since the copy began."""
        try:
            await self._source.state(stream)
        except SessionNotFound:
            return True
        return False

    async def _is_left_out(self, stream: StreamId) -> bool:
        """It was erased, and the target would list what is left of it."""
        if self._target.capabilities.erase:
            return False
        return (await self._source.state(stream)).info.status == "erased"

    # -- as it is

    async def _pass_on(self, standing: SegmentState, before: StreamState | None) -> CopiedStream:
        stream, begun = standing.stream, self._done
        after = EMPTY if before is None else before.head
        if before is not None and after >= standing.head:
            await self._check_present(standing, before)
            return CopiedStream(stream, "present", 0, standing.hash.hex())
        is_first, chain = True, b""
        while is_first or after < standing.head:
            share = await self._part(stream, after, standing.head, is_continued=before is not None)
            if not share.commits and not is_first:
                raise CorruptLog(stream, after + 1, "no commit holds it")
            await self._target.maintenance.receive(share, await self._contents(share.entries()))
            after = share.commits[-1].last if share.commits else after
            is_first, chain = False, share.hash
            self._tell(begun + after + 1)
        if chain != standing.hash:
            raise CorruptLog(stream, EMPTY, "its commits do not lead to the hash kept with it")
        added = after - (EMPTY if before is None else before.head)
        return CopiedStream(stream, "copied", added, chain.hex())

    async def _part(
        self, stream: StreamId, after: int, upto: int, *, is_continued: bool
    ) -> StreamSegment:
        try:
            return await self._source.maintenance.read_segment(
                stream, after=after, upto=upto, limit=SOME_COMMITS
            )
        except CorruptLog as error:
            if is_continued and error.seq == after:  # the target ends where no commit here does
                raise CopyConflict(stream, after) from error
            raise

    async def _check_present(self, standing: SegmentState, here: StreamState) -> None:
        """Raises: CopyConflict unless the target's stream begins as the source's does."""
        stream, head = standing.stream, standing.head
        if here.header != (await self._source.state(stream)).header:
            raise CopyConflict(stream, EMPTY)
        if here.head == head:
            found = here.hash
        else:
            try:
                found = (
                    await self._target.maintenance.read_segment(
                        stream, after=head, upto=head, limit=1
                    )
                ).before
            except CorruptLog as error:
                raise CopyConflict(stream, head) from error
        if found != standing.hash:
            raise CopyConflict(stream, head)

    # -- sealed anew

    async def _why_anew(self, standing: SegmentState) -> str | None:
        """Why the target cannot hold the stream as it is; None when it can."""
        can = self._target.capabilities
        if standing.origin is not None and not can.pointer_fork:
            return "the target cannot point to another session: what the fork shares was copied"
        after = EMPTY
        while after < standing.head and (can.erase is False or not self._source.capabilities.erase):
            share = await self._source.maintenance.read_segment(
                standing.stream, after=after, upto=standing.head, limit=SOME_COMMITS
            )
            for row in share.entries():
                if row.salt is None and row.entry.body:
                    return "lines that another tool wrote have no salts"
                if row.salt is None and not can.erase:
                    return "the target keeps no digests of what was erased"
            if not share.commits:
                break
            after = share.commits[-1].last
        return None

    async def _seal_anew(
        self, standing: SegmentState, before: StreamState | None, reason: str
    ) -> CopiedStream:
        stream = standing.stream
        whole = await self._whole_of(stream)
        if standing.origin is None:
            whole = msgspec.structs.replace(whole, entries=whole.entries[: standing.head + 1])
        have = [] if before is None else await self._target.entries(stream)
        if before is not None and not _is_beginning(before.header, have, whole):
            raise CopyConflict(stream, before.head)
        chain = genesis_hash(whole.header) if before is None else before.hash
        epoch = (await self._source.state(stream)).epoch
        share = sealed_anew(whole, len(have), chain, self._random, epoch=epoch)
        if share.commits or before is None:
            await self._target.maintenance.receive(share, await self._contents(share.entries()))
        here = await self._target.state(stream)
        if here.hash != share.hash:
            raise CopyConflict(stream, here.head)
        if standing.origin is None and len(whole.entries) <= standing.head:
            raise CorruptLog(stream, len(whole.entries), "it no longer exists")
        outcome: StreamOutcome = "sealed anew" if share.commits or before is None else "present"
        added = len(whole.entries) - len(have)
        return CopiedStream(stream, outcome, added, here.hash.hex(), reason)

    # -- contents

    async def _contents(self, rows: Iterable[StoredEntry]) -> list[bytes]:
        """The contents that `rows` name and that were not passed on yet."""
        rows = tuple(rows)
        names = {name.decode() for row in rows for name in NAME_OF_CONTENT.findall(row.entry.body)}
        found: list[bytes] = []
        for name in sorted(names - self._passed):
            try:
                found.append(await self._source.blob(name))
                self._passed.add(name)
            except EntryNotFound:  # or a text only looks like the name of a content
                if any(name in contents_shown(row.entry) for row in rows):
                    self._lose(name)
            except CorruptLog:
                self._lose(name)
        return found

    def _lose(self, name: str) -> None:
        if name not in self._lost:
            self._lost.append(name)


def _left_out(stream: StreamId, before: StreamState | None) -> CopiedStream:
    if before is None:
        return CopiedStream(stream, "erased", reason="it was erased, so nothing was copied")
    why = "it was erased since it was copied: erase it in the target, too"
    return CopiedStream(stream, "conflict", reason=why)


def _is_beginning(header: StreamHeader, have: Sequence[Entry], whole: Whole) -> bool:
    """Whether what the target has is how `whole` begins."""
    return header == whole.header and tuple(have) == whole.entries[: len(have)]


def sealed_anew(
    whole: Whole, first: int, before: bytes, random: RandomSource, *, epoch: int = 0
) -> StreamSegment:
    """The entries of `whole` from seq `first` on, in commits with salts of their own."""
    commits: list[SealedCommit] = []
    chain = before
    for start in range(first, len(whole.entries), SOME_ENTRIES):
        entries = whole.entries[start : start + SOME_ENTRIES]
        rows = tuple(_stored_entry(entry, random(SALT_BYTES)) for entry in entries)
        lines = [header_line(row.entry, row.digest) for row in rows]
        at = max(entry.at for entry in entries)
        chain = commit_hash(chain, at, 0, lines)
        commits.append(SealedCommit(at, 0, chain, rows))
    places = ((alias, entry_place(id_)[1]) for alias, id_ in whole.aliases.items())
    return StreamSegment(
        header=whole.header,
        before=before,
        epoch=epoch,
        commits=tuple(commits),
        aliases=tuple((alias, seq) for alias, seq in places if seq >= first),
    )


def _stored_entry(entry: Entry, salt: bytes) -> StoredEntry:
    return StoredEntry(entry, salt, body_digest(entry.body, salt))


def with_origins(moment: Sequence[SegmentState], chosen: Iterable[StreamId]) -> list[SegmentState]:
    """Those of `moment` that are chosen, and what they were forked from."""
    found = {each.stream: each for each in moment}
    wanted: set[StreamId] = set()
    for stream in chosen:
        near = found.get(stream)
        while near is not None and near.stream not in wanted:
            wanted.add(near.stream)
            near = found.get(near.origin) if near.origin is not None else None
    return [each for each in moment if each.stream in wanted]
