"""Read streams in memory as stored segments, and store segments received from another store."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.errors import CopyConflict, CorruptLog
from perdure.session.ids import StreamId, blob_hash, entry_place
from perdure.stores.in_memory.append import create_stream, write_admission
from perdure.stores.in_memory.streams import Heap, HeldStream, held_in
from perdure.stores.maintenance.segments import (
    SealedCommit,
    SegmentState,
    StreamSegment,
    admission_of,
    check,
    check_follows,
)
from perdure.stores.protocol import EMPTY


def segment_states(heap: Heap) -> list[SegmentState]:
    """Implement ``MaintenanceService.segment_states``."""
    return [
        SegmentState(
            stream=stream,
            head=held.state.head,
            hash=held.state.hash,
            origin=held.state.header.fork.stream if held.state.header.fork else None,
        )
        for stream, held in heap.streams.items()
    ]


def read_segment(
    heap: Heap, stream: StreamId, *, after: int, upto: int, limit: int
) -> StreamSegment:
    """Implement ``MaintenanceService.read_segment``."""
    held = held_in(heap, stream)
    before, ends = held.genesis, EMPTY
    commits: list[SealedCommit] = []
    for commit in held.commits:
        last = commit.first + commit.count - 1
        if commit.first <= after:
            before, ends = commit.hash, last
        elif last <= upto and len(commits) < limit:
            rows = tuple(held.rows[commit.first : last + 1])
            commits.append(SealedCommit(commit.at, commit.epoch, commit.hash, rows))
    if ends != after:
        raise CorruptLog(stream, after, "no commit ends with it")
    last = commits[-1].last if commits else after
    aliases = ((alias, entry_place(id_)[1]) for alias, id_ in held.aliases)
    return StreamSegment(
        header=held.state.header,
        before=before,
        epoch=held.state.epoch,
        commits=tuple(commits),
        aliases=tuple((alias, seq) for alias, seq in aliases if after < seq <= last),
        is_erased=held.state.info.status == "erased",
    )


def receive(heap: Heap, share: StreamSegment, contents: Sequence[bytes]) -> None:
    """Implement ``MaintenanceService.receive``."""
    check(share)
    held = heap.streams.get(share.header.id) or _create_stream(heap, share)
    check_follows(share, held.state)
    heap.streams[share.header.id] = held
    for commit in share.commits:
        admission = admission_of(held.state, commit, share.aliases)
        write_admission(heap, held, admission, commit.rows, at=commit.at, chain=commit.hash)
        heap.log.extend(admission.entries)
    epoch = max(held.state.epoch, share.epoch)
    held.state = msgspec.structs.replace(held.state, epoch=epoch)
    for content in contents:
        heap.blobs.setdefault(blob_hash(content), content)


def _create_stream(heap: Heap, share: StreamSegment) -> HeldStream:
    if share.commits and share.first > 0:
        raise CopyConflict(share.header.id, EMPTY)
    held = create_stream(heap, share.header)
    if share.is_erased:
        held.genesis = share.before
        held.state = msgspec.structs.replace(held.state, hash=share.before)
    return held
