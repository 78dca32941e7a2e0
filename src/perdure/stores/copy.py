"""Copy streams from one store to another in parts; each part is checked before it is stored.

A copy contains the state of the source at one moment. Writers can continue during a copy, because
logs only grow. A copy that was killed resumes from the state of the target. The copy of a stream
has the same hashes as the original. If the target cannot store the stream unchanged, the stream
gets new hashes, and the report says this.
"""

from __future__ import annotations

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
from perdure.stores.chain import SALT_BYTES, commit_hash, genesis_hash, header_line
from perdure.stores.maintenance.protocol import SOME_COMMITS
from perdure.stores.maintenance.segments import (
    SealedCommit,
    SegmentState,
    StreamSegment,
)
from perdure.stores.protocol import EMPTY, StreamState
from perdure.stores.session_store import SessionStore
from perdure.stores.validation import names_in
from perdure.stores.verification import StoredEntry, contents_shown, sealed

SOME_ENTRIES = 500
"""Number of entries per commit of a stream that gets new hashes."""

StreamOutcome = Literal["copied", "present", "sealed anew", "erased", "conflict", "damaged"]


class CopiedStream(msgspec.Struct, frozen=True):
    """The result of a copy for one stream.

    `added` counts the new entries in the target. `hash` is the hash of the target's chain, in
    hexadecimal. `hash` equals the hash in the source, unless this copy or an earlier copy gave the
    stream new hashes (outcome ``sealed anew``, or ``present`` with a `reason`). `reason` says why
    the hashes are new, or what the fault is. The outcome ``conflict`` means that the stream does
    not fit into the target, for example because the target has another session with the same id. A
    ``damaged`` stream was copied up to the damage. The outcome ``erased`` means that nothing was
    copied, because the stream is erased and the target can only remove whole sessions, or because
    the stream was removed from the source during the copy.
    """

    stream: StreamId
    outcome: StreamOutcome
    added: int = 0
    hash: str = ""
    reason: str | None = None


class CopyReport(msgspec.Struct, frozen=True):
    """The result of a copy.

    `lost_contents` are the contents that are missing or damaged in the source.
    """

    streams: tuple[CopiedStream, ...]
    contents: int = 0
    lost_contents: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Return True if the target has all requested streams and contents."""
        has_all = all(each.outcome not in ("conflict", "damaged") for each in self.streams)
        return has_all and not self.lost_contents

    @property
    def added_entries(self) -> int:
        """Return the number of entries that the copy added to the target."""
        return sum(each.added for each in self.streams)


class Whole(msgspec.Struct, frozen=True):
    """A stream as one log that refers to no other stream."""

    header: StreamHeader
    entries: tuple[Entry, ...]
    aliases: Mapping[str, EntryId]


Progress = Callable[[int, int], None]
"""Called with the copied and the total number of entries."""


class StoreCopy:
    """Copies streams from one store to another.

    `whole_of` returns a stream as a `Whole`; it is called for a stream that needs new hashes.
    """

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
        """Copy each stream in `moment`, up to the head that `moment` has for the stream.

        Shape: `moment` lists an origin before its forks.

        Durable: a copied part is durable as soon as the target has committed it.
        """
        self._total = sum(each.head + 1 for each in moment)
        copied: list[CopiedStream] = []
        there = {
            each.stream: (each.head, each.hash)
            for each in await self._target.maintenance.segment_states()
        }
        for standing in moment:
            begun = self._done
            if there.get(standing.stream) == (standing.head, standing.hash):  # already complete
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
            self._done = begun  # another copy added entries first: continue after them

    async def _try_copy(self, standing: SegmentState, before: StreamState | None) -> CopiedStream:
        """Copy one stream; `before` is its state in the target so far. Raises: CopyConflict."""
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
        """Return the state of the stream in the target; None if the target lacks the stream."""
        try:
            return await self._target.state(stream)
        except SessionNotFound:
            return None

    async def _is_gone(self, stream: StreamId) -> bool:
        """Return True if the stream was removed from the source during the copy."""
        try:
            await self._source.state(stream)
        except SessionNotFound:
            return True
        return False

    async def _is_left_out(self, stream: StreamId) -> bool:
        """Return True if the stream is erased and the target cannot erase content.

        A target that cannot erase content would show the erased stream in lists.
        """
        if self._target.capabilities.erase:
            return False
        return (await self._source.state(stream)).info.status == "erased"

    # -- unchanged

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
            if is_continued and error.seq == after:  # no commit of the source ends there
                raise CopyConflict(stream, after) from error
            raise

    async def _check_present(self, standing: SegmentState, here: StreamState) -> None:
        """Check that the stream has the same commits in the source and the target.

        Raises: CopyConflict.
        """
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

    # -- sealed again

    async def _why_anew(self, standing: SegmentState) -> str | None:
        """Return why the target must store the stream with new hashes.

        Return None if the hashes can stay the same.
        """
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
        """Return the contents that `rows` reference and that the copy has not transferred yet."""
        rows = tuple(rows)
        names = names_in(row.entry.body for row in rows)
        found: list[bytes] = []
        for name in sorted(names - self._passed):
            try:
                found.append(await self._source.blob(name))
                self._passed.add(name)
            except EntryNotFound:  # it may be text that only looks like a name
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
    """Return True if `header` and the entries `have` in the target are the beginning of `whole`."""
    return header == whole.header and tuple(have) == whole.entries[: len(have)]


def sealed_anew(
    whole: Whole, first: int, before: bytes, random: RandomSource, *, epoch: int = 0
) -> StreamSegment:
    """Return the entries of `whole` from seq `first`, in new commits with new salts."""
    commits: list[SealedCommit] = []
    chain = before
    for start in range(first, len(whole.entries), SOME_ENTRIES):
        entries = whole.entries[start : start + SOME_ENTRIES]
        rows = tuple(sealed(entry, random(SALT_BYTES)) for entry in entries)
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


def with_origins(moment: Sequence[SegmentState], chosen: Iterable[StreamId]) -> list[SegmentState]:
    """Return the `chosen` streams of `moment` together with their origins."""
    found = {each.stream: each for each in moment}
    wanted: set[StreamId] = set()
    for stream in chosen:
        near = found.get(stream)
        while near is not None and near.stream not in wanted:
            wanted.add(near.stream)
            near = found.get(near.origin) if near.origin is not None else None
    return [each for each in moment if each.stream in wanted]


def with_forks(moment: Sequence[SegmentState], chosen: Iterable[StreamId]) -> list[StreamId]:
    """Return the `chosen` streams with all their direct and indirect forks in `moment`.

    Shape: in the result, each origin comes before its forks.
    """
    forks: dict[StreamId, list[StreamId]] = {}
    for each in moment:
        if each.origin is not None:
            forks.setdefault(each.origin, []).append(each.stream)
    found = dict.fromkeys(chosen)
    left = list(found)
    while left:
        new = [fork for fork in forks.get(left.pop(), ()) if fork not in found]
        found.update(dict.fromkeys(new))
        left += new
    return list(found)
