"""Segments: streams transferred between stores of one kind, with the same hashes."""

from __future__ import annotations

import msgspec
import pytest

from perdure.errors import CopyConflict, CorruptLog, PerdureError
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import OPAQUE, Compaction, ModelChange
from perdure.session.notes import CompactionUndone
from perdure.stores.maintenance.segments import SealedCommit, StreamSegment
from perdure.stores.protocol import EMPTY
from perdure.stores.session_store import SessionStore
from perdure.stores.verification import StoredEntry
from tests.conformance.store.backends import Backend
from tests.conformance.store.building import (
    MINUTE_MS,
    S,
    append,
    create,
    fork,
    moved,
    replied,
    said,
    turn_finished,
    turn_started,
    unknown,
)
from tests.fakes.sealing import pass_on


async def filled(store: SessionStore) -> None:
    """Create a session with all kinds of content, in commits of several sizes."""
    await create(store, S, said("a", alias="a1"), said("b"))
    lease = await store.acquire_lease(S, "me", MINUTE_MS)
    await append(store, S, turn_started(), said("c"), lease=lease)
    await append(store, S, said("waits"))
    await append(store, S, replied("d", at=5), turn_finished(), lease=lease)
    await append(store, S, new_tree(ModelChange("p:m")), moved(EntryId("s/0")))
    await append(store, S, new_tree(Compaction("gist", EntryId("s/0"))), unknown())
    await append(store, S, new_side(CompactionUndone(), EntryId("s/9")), said("e", alias="é"))
    await append(store, S, NewEntry(OPAQUE, b"\xff\n"))


async def everything(store: SessionStore) -> object:
    """Return all readable data of the store except epochs, leases and positions."""
    streams = [each.stream for each in await store.maintenance.segment_states()]
    states = [
        msgspec.structs.replace(await store.state(each), epoch=0, lease=None) for each in streams
    ]
    logs = [
        (await store.entries(each), await store.tree(each), await store.aliases(each))
        for each in streams
    ]
    windows = [await store.context_window(each.header.id, each.leaf) for each in states]
    return states, logs, windows


async def test_transferred_stream_has_same_hashes(backend: Backend) -> None:
    first, second = backend.new(), backend.new()
    store, copy = await first.open(), await second.open()
    await filled(store)
    await create(store, StreamId("empty"))
    await pass_on(store, copy, limit=3)

    assert await everything(copy) == await everything(store)
    assert (await copy.maintenance.verify()).problems == ()
    await append(copy, S, said("it goes on"))
    assert (await copy.maintenance.verify()).problems == ()
    await first.close()
    await second.close()


@pytest.mark.needs("pointer_fork")
async def test_transferred_forks_keep_references_to_the_origin(
    backend: Backend,
) -> None:
    first, second = backend.new(), backend.new()
    store, copy = await first.open(), await second.open()
    await filled(store)
    await fork(store, S, "f", said("in f"))
    await fork(store, StreamId("f"), "g", said("in g"), at=EntryId("s/1"), scope="path")
    await fork(store, S, "h", at=None, head=1)
    await append(store, S, said("later"))
    await pass_on(store, copy)

    assert await everything(copy) == await everything(store)
    assert (await copy.maintenance.verify()).problems == ()
    await first.close()
    await second.close()


async def test_lease_after_a_transfer_gets_a_higher_epoch(backend: Backend) -> None:
    first, second = backend.new(), backend.new()
    store, copy = await first.open(), await second.open()
    await create(store)
    lease = await store.acquire_lease(S, "me", MINUTE_MS)
    await append(store, S, turn_started(), lease=lease)
    await pass_on(store, copy)

    taken = await copy.acquire_lease(S, "you", MINUTE_MS)  # nobody holds it here
    assert taken.epoch > lease.epoch
    assert (await copy.state(S)).open_turn == 0
    await first.close()
    await second.close()


async def part(store: SessionStore, after: int = EMPTY, limit: int = 100) -> StreamSegment:
    head = (await store.state(S)).head
    return await store.maintenance.read_segment(S, after=after, upto=head, limit=limit)


async def test_segments_begin_and_end_at_commit_boundaries(store: SessionStore) -> None:
    await filled(store)
    whole = await part(store)
    assert [len(commit.rows) for commit in whole.commits] == [2, 2, 1, 2, 2, 2, 2, 1]

    first, second = await part(store, limit=2), await part(store, after=3, limit=1)
    assert (first.first, first.commits[-1].last) == (0, 3)
    assert second.before == first.hash
    assert second.commits == whole.commits[2:3]
    early = await store.maintenance.read_segment(S, after=EMPTY, upto=2, limit=9)
    assert early.commits == whole.commits[:1]
    with pytest.raises(CorruptLog):
        await part(store, after=2)


async def test_received_segment_does_not_overwrite_another_session(
    backend: Backend,
) -> None:
    first, second = backend.new(), backend.new()
    store, other = await first.open(), await second.open()
    await filled(store)
    await create(other, S, said("another"))
    before = await everything(other)
    whole, later = await part(store), await part(store, after=1)

    for share in (whole, later):
        with pytest.raises(CopyConflict):
            await other.maintenance.receive(share, ())
    assert await everything(other) == before
    await first.close()
    await second.close()


async def test_segment_without_its_earlier_segments_is_rejected(backend: Backend) -> None:
    first, second = backend.new(), backend.new()
    store, copy = await first.open(), await second.open()
    await filled(store)
    with pytest.raises(CopyConflict):
        await copy.maintenance.receive(await part(store, after=1), ())
    assert await copy.maintenance.segment_states() == []
    await first.close()
    await second.close()


def altered(share: StreamSegment) -> list[StreamSegment]:
    """Return copies of the segment `share`, each with one change in its first commit."""
    commit = share.commits[0]
    row = commit.rows[0]
    changes = (
        msgspec.structs.replace(commit, at=commit.at + 1),
        msgspec.structs.replace(commit, epoch=7),
        _with_row(commit, msgspec.structs.replace(row, digest=bytes(32))),
        _with_row(commit, _with_entry(row, body=b'{"role":"user","parts":[]}')),
        _with_row(commit, _with_entry(row, at=1)),
        _with_row(commit, _with_entry(row, seq=1)),
    )
    return [msgspec.structs.replace(share, commits=(each,)) for each in changes]


def _with_row(commit: SealedCommit, row: StoredEntry) -> SealedCommit:
    return msgspec.structs.replace(commit, rows=(row, *commit.rows[1:]))


def _with_entry(row: StoredEntry, **changes: object) -> StoredEntry:
    return msgspec.structs.replace(row, entry=msgspec.structs.replace(row.entry, **changes))


async def test_segment_with_wrong_hashes_is_rejected(backend: Backend) -> None:
    first, second = backend.new(), backend.new()
    store, copy = await first.open(), await second.open()
    await filled(store)
    for share in altered(await part(store, limit=1)):
        with pytest.raises(PerdureError):
            await copy.maintenance.receive(share, ())
        assert await copy.maintenance.segment_states() == []
    await first.close()
    await second.close()


async def test_segment_transfer_includes_contents(backend: Backend) -> None:
    first, second = backend.new(), backend.new()
    store, copy = await first.open(), await second.open()
    await create(store)
    await copy.maintenance.receive(await part(store), (b"content", b""))
    name = "sha256-ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    assert await copy.blob(name) == b"content"
    await first.close()
    await second.close()
