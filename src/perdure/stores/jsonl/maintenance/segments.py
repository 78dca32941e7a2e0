"""Read the sessions of a folder as stored segments, and store received segments.

Lines that another program wrote have no salts, so another store cannot store them under the same
hashes. This module returns lines without salts unchanged, and ``stores.copy`` gives them new
hashes.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors import CopyConflict, CorruptLog, Unsupported
from perdure.session.ids import StreamId, entry_place
from perdure.stores.append_rules import initial_state
from perdure.stores.chain import genesis_hash
from perdure.stores.jsonl.append import (
    BatchFacts,
    CommitLines,
    sound_state,
    write_batch,
)
from perdure.stores.jsonl.contents import stored_of
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.sidefiles import HeldLease, lease_of, put_blob, put_lease
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.lines import BACKEND
from perdure.stores.jsonl.retention.content_gc import held_for
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.maintenance.segments import (
    SealedCommit,
    SegmentState,
    StreamSegment,
    admission_of,
    check,
    check_follows,
)
from perdure.stores.protocol import EMPTY, StreamState


def segment_states(shelf: SessionIndex, feed: Feed) -> list[SegmentState]:
    """Implement ``MaintenanceService.segment_states``.

    A session with missing acknowledged entries is listed with its expected head.
    """
    feed.refresh()
    found = {standing.header.id: standing for _, standing in shelf.standings()}
    ordered = sorted(found.values(), key=lambda each: (each.header.created_at, each.header.id))
    return [
        SegmentState(each.header.id, max(each.head, feed.head(each.header.id)), each.hash)
        for each in ordered
    ]


def read_segment(
    shelf: SessionIndex, stream: StreamId, *, after: int, upto: int, limit: int
) -> StreamSegment:
    """Implement ``MaintenanceService.read_segment``."""
    log = shelf.require_log(stream)
    for seq, problem in log.faults:
        raise CorruptLog(stream, EMPTY if seq is None else seq, problem)
    before, ends = genesis_hash(log.header), EMPTY
    commits: list[SealedCommit] = []
    for commit in log.all_commits():
        last = commit.first + commit.count - 1
        if commit.first <= after:
            before, ends = commit.hash, last
        elif last <= upto and len(commits) < limit:
            rows = tuple(stored_of(log, range(commit.first, last + 1)))
            commits.append(SealedCommit(commit.at, commit.epoch, commit.hash, rows))
    if ends != after:
        raise CorruptLog(stream, after, "no commit ends with it")
    last = commits[-1].last if commits else after
    aliases = ((alias, entry_place(id_)[1]) for alias, id_ in log.aliases)
    return StreamSegment(
        header=log.header,
        before=before,
        epoch=lease_of(shelf.folder, stream).epoch,
        commits=tuple(commits),
        aliases=tuple((alias, seq) for alias, seq in aliases if after < seq <= last),
    )


def receive(
    shelf: SessionIndex, feed: Feed, share: StreamSegment, contents: Sequence[bytes]
) -> None:
    """Implement ``MaintenanceService.receive``.

    If the process is killed, the commits that it has already written remain.
    """
    _check_possible(share)
    check(share)
    stream = share.header.id
    entries = (row.entry for row in share.entries())
    with shelf.folder.hold_lock("stream", stream), held_for(shelf.folder, entries):
        check_follows(share, _state(shelf, shelf.log(stream), share))
        for content in contents:
            put_blob(shelf.folder, content)
        if not share.commits:
            _write(shelf, feed, share, None)
        for commit in share.commits:
            _write(shelf, feed, share, commit)
        held = lease_of(shelf.folder, stream)
        if share.epoch > held.epoch:
            put_lease(shelf.folder, stream, HeldLease(epoch=share.epoch))


def _check_possible(share: StreamSegment) -> None:
    if share.header.fork is not None:
        raise Unsupported("pointer_fork", BACKEND)
    if any(row.salt is None for row in share.entries()):
        raise Unsupported("erase", BACKEND)


def _state(shelf: SessionIndex, log: Log | None, share: StreamSegment) -> StreamState:
    if log is not None:
        return sound_state(shelf, log)
    if share.commits and share.first > 0:
        raise CopyConflict(share.header.id, EMPTY)
    return initial_state(share.header, genesis_hash(share.header))


def _write(
    shelf: SessionIndex, feed: Feed, share: StreamSegment, commit: SealedCommit | None
) -> None:
    """Write one commit; without a commit, only create the session's file."""
    log = shelf.log(share.header.id)
    if commit is None and log is not None:
        return
    state = _state(shelf, log, share)
    kept = commit or SealedCommit(share.header.created_at, 0, share.before, ())
    admission = admission_of(state, kept, share.aliases)
    batch = CommitLines(shelf, log, state, admission, BatchFacts(kept.at))
    write_batch(shelf, feed, batch, [row.salt or b"" for row in kept.rows])
