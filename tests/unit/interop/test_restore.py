from __future__ import annotations

import asyncio

import msgspec
import pytest

from perdure.errors import FormatError, LeaseHeld, StoreUnavailable
from perdure.interop.bundle import bundle_of
from perdure.interop.exports import export_session
from perdure.interop.formats import native
from perdure.interop.formats.logs import LogFile
from perdure.interop.formats.native import Bundle
from perdure.interop.formats.sources.content import Held
from perdure.interop.formats.sources.reader import Bounds
from perdure.interop.restore import LEASE_MS, restore
from perdure.session.codec import new_side, new_tree
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import user
from perdure.session.notes import LeafMoved
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult, Write
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.samples import case
from tests.fakes.sources import empty_store, every_file, imported, pi_file
from tests.fakes.streams import append, create, say
from tests.unit.interop.test_bundle import FORK, fork

S = StreamId("s")
PIECES = Bounds(whole_bytes=0, piece_bytes=400)


async def restored(
    store: MemoryStore, bundle: Bundle, piece_bytes: int = 10**9
) -> tuple[str, int, bool]:
    content = native.write_bundle(bundle)
    report = await restore(
        store,
        LogFile(Held(content)),
        clock=ManualClock(),
        random=SeededRandom(3),
        piece_bytes=piece_bytes,
    )
    return report.session, report.entries, report.is_new


async def with_turn(store: MemoryStore) -> Bundle:
    """Return a session with a turn and two branches."""
    await create(store)
    (one,) = await say(store, "one")
    lease = await store.acquire_lease(S, "me", 1000)
    entries = (
        new_side(TurnStarted(1, "agent")),
        new_tree(user("two")),
        new_side(TurnFinished("stop")),
    )
    write = Write(stream=S, entries=entries, lease=lease)
    await store.commit(Commit(writes=(write,), at=START_MS))
    await store.release_lease(lease)
    await append(store, new_side(LeafMoved(one.id)))
    return await bundle_of(store, S)


async def test_restored_session_is_identical_to_the_last_byte() -> None:
    for content in every_file():
        with case(content):
            store, other = empty_store(), empty_store()
            stream = (await imported(store, content)).session
            exported = await export_session(store, stream)
            report = await imported(other, exported.content)
            assert (report.session, report.is_new, report.format) == (stream, True, "perdure")
            assert await other.entries(stream) == await store.entries(stream)
            assert await other.aliases(stream) == await store.aliases(stream)
            assert (await other.state(stream)).leaf == (await store.state(stream)).leaf
            assert (await export_session(other, stream)).content == exported.content
            assert (await other.maintenance.verify()).is_ok


async def test_turns_of_a_session_are_restored() -> None:
    bundle = await with_turn(empty_store())
    other = empty_store()
    assert await restored(other, bundle) == ("s", len(bundle.entries), True)
    assert await bundle_of(other, S) == bundle
    state = await other.state(S)
    assert (state.open_turn, state.info.turns, state.leaf) == (None, 1, "s/0")


async def test_open_turn_of_a_restored_session_stays_open() -> None:
    bundle = await with_turn(empty_store())
    cut = msgspec.structs.replace(bundle, entries=bundle.entries[:3])
    other = empty_store()
    await restored(other, cut)
    assert (await other.state(S)).open_turn == 1


async def test_restoring_the_same_file_again_adds_nothing() -> None:
    bundle = await with_turn(empty_store())
    other = empty_store()
    await restored(other, bundle)
    assert await restored(other, bundle) == ("s", 0, False)


async def test_continued_session_ignores_older_file() -> None:
    store = empty_store()
    bundle = await with_turn(store)
    await say(store, "later")
    assert await restored(store, bundle) == ("s", 0, False)


async def test_restoring_a_session_changed_elsewhere_adds_new_entries() -> None:
    store, other = empty_store(), empty_store()
    await restored(other, await with_turn(store))
    await say(store, "later")
    assert await restored(other, await bundle_of(store, S)) == ("s", 1, False)
    assert await bundle_of(other, S) == await bundle_of(store, S)


async def test_restored_session_with_a_used_id_gets_a_new_id() -> None:
    store, other = empty_store(), empty_store()
    bundle = await with_turn(store)
    await create(other)
    await say(other, "something else")
    assert await restored(other, bundle) == ("s.2", len(bundle.entries), True)
    assert await restored(other, bundle) == ("s.2", 0, False)
    entries = await other.entries(StreamId("s.2"))
    assert [entry.id for entry in entries][:2] == ["s.2/0", "s.2/1"]
    assert (await other.state(StreamId("s.2"))).leaf == "s.2/0"
    assert len(await other.entries(S)) == 1


async def test_diverged_sessions_are_not_merged() -> None:
    store, other = empty_store(), empty_store()
    await restored(other, await with_turn(store))
    await say(store, "here")
    await say(other, "there")
    session, _, is_new = await restored(other, await bundle_of(store, S))
    assert (session, is_new) == ("s.2", True)


async def test_session_that_another_process_restores_is_skipped() -> None:
    bundle = await with_turn(empty_store())
    other = empty_store()
    header = bundle.header
    await other.commit(Commit(writes=(Write(stream=S, create=header),), at=START_MS))
    await other.acquire_lease(S, "somebody", 1000)
    with pytest.raises(LeaseHeld):
        await restored(other, bundle)


class DyingStore(MemoryStore):
    """A store that fails after `left` more commits."""

    left = 100

    async def commit(self, commit: Commit) -> CommitResult:
        if not self.left:
            raise StoreUnavailable(self.address, "it was killed")
        self.left -= 1
        return await super().commit(commit)


async def test_interrupted_import_is_resumed() -> None:
    bundle = await with_turn(empty_store())
    other = DyingStore(clock=ManualClock(), random=SeededRandom(1))
    other.left = 1
    with pytest.raises(StoreUnavailable):
        await restored(other, bundle)
    other.left = 100
    assert await restored(other, bundle) == ("s", len(bundle.entries), False)
    assert await bundle_of(other, S) == bundle


async def test_import_in_pieces_gives_the_same_log() -> None:
    for content in every_file():
        with case(content):
            store, other = empty_store(), empty_store()
            stream = (await imported(store, content)).session
            exported = await export_session(store, stream)
            report = await imported(other, exported.content, bounds=PIECES)
            entries = await store.entries(stream)
            assert (report.session, report.entries, report.is_new) == (stream, len(entries), True)
            assert (await export_session(other, stream)).content == exported.content
            assert (await other.state(stream)).leaf == (await store.state(stream)).leaf
            assert (await imported(other, exported.content, bounds=PIECES)).entries == 0
            assert (await other.maintenance.verify()).is_ok


async def test_import_killed_at_any_commit_is_completed_by_retry() -> None:
    bundle = await with_turn(empty_store())
    last = len(bundle.entries)  # as many pieces, after the commit that creates the session
    for left in range(last + 1):
        other = DyingStore(clock=ManualClock(), random=SeededRandom(1))
        other.left = left
        with pytest.raises(StoreUnavailable):
            await restored(other, bundle, 1)
        here = list(bundle.entries[: max(0, left - 1)])
        assert (await other.entries(S) if left else []) == here
        other.left = 100
        assert await restored(other, bundle, 1) == ("s", last - len(here), left == 0)
        assert await bundle_of(other, S) == bundle


async def test_two_concurrent_imports_add_each_entry_once() -> None:
    bundle = await bundle_of_many()
    other = empty_store()
    reports = await asyncio.gather(restored(other, bundle, 1), restored(other, bundle, 1))
    assert sum(entries for _, entries, _ in reports) == len(bundle.entries)
    assert sorted(is_new for _, _, is_new in reports) == [False, True]
    assert await bundle_of(other, S) == bundle


async def test_long_import_of_a_session_with_turns_keeps_its_lease() -> None:
    bundle, clock = await with_turn(empty_store()), ManualClock()
    rejected = 0

    class Slow(MemoryStore):
        async def commit(self, commit: Commit) -> CommitResult:
            nonlocal rejected
            done = await super().commit(commit)
            clock.advance(LEASE_MS / 1000 * 0.6)
            if commit.writes[0].lease is not None and commit.writes[0].entries:
                with pytest.raises(LeaseHeld):
                    await self.acquire_lease(S, "rival", 1)
                rejected += 1
            return done

    store = Slow(clock=clock, random=SeededRandom(1))
    log = LogFile(Held(native.write_bundle(bundle)))
    await restore(store, log, clock=clock, random=SeededRandom(3), piece_bytes=1)
    assert rejected > 2
    assert await bundle_of(store, S) == bundle


async def bundle_of_many() -> Bundle:
    store = empty_store()
    await create(store)
    for number in range(8):
        await say(store, f"number {number}")
    return await bundle_of(store, S)


async def test_log_with_an_invalid_last_entry_adds_nothing() -> None:
    bundle = await bundle_of_many()
    bad = msgspec.structs.replace(bundle.entries[-1], parent_id=EntryId("s/99"))
    content = native.write_bundle(
        msgspec.structs.replace(bundle, entries=(*bundle.entries[:-1], bad))
    )
    store = empty_store()
    with pytest.raises(FormatError, match="it is not a log"):
        await imported(store, content, bounds=PIECES)
    assert await store.sessions(scope="all") == []


async def test_log_read_in_pieces_can_be_restored_under_another_id() -> None:
    store, other = empty_store(), empty_store()
    bundle = await with_turn(store)
    await create(other)
    await say(other, "something else")
    assert await restored(other, bundle, 1) == ("s.2", len(bundle.entries), True)
    assert await restored(other, bundle, 1) == ("s.2", 0, False)
    assert (await other.maintenance.verify()).is_ok


async def test_exported_fork_is_complete_in_another_store() -> None:
    store, other = empty_store(), empty_store()
    await with_turn(store)
    await fork(store, S, FORK, EntryId("s/2"), scope="tree")
    await append(store, new_tree(user("on the fork")), stream=FORK)
    exported = await export_session(store, FORK)
    report = await imported(store, exported.content, bounds=PIECES)
    assert (report.session, report.entries, report.is_new) == (FORK, 0, False)
    assert (await imported(other, exported.content, bounds=PIECES)).session == FORK
    assert (await export_session(other, FORK)).content == exported.content


async def test_invalid_log_of_known_session_adds_nothing() -> None:
    bundle = await bundle_of_many()
    store = empty_store()
    await restored(store, bundle)
    content = native.write_bundle(msgspec.structs.replace(bundle, aliases={"": EntryId("s/0")}))
    assert (await imported(store, content)).entries == 0
    with pytest.raises(FormatError, match="foreign id"):
        await imported(empty_store(), content)


async def test_message_restored_into_an_open_turn_is_not_queued() -> None:
    bundle = await with_turn(empty_store())
    other = empty_store()
    await restored(other, msgspec.structs.replace(bundle, entries=bundle.entries[:2]))
    more = msgspec.structs.replace(bundle, entries=bundle.entries[:3])
    assert await restored(other, more) == ("s", 1, False)
    assert (await bundle_of(other, S)).entries == more.entries


async def test_session_restored_under_another_id_keeps_its_imported_file() -> None:
    store, other = empty_store(), empty_store()
    stream = (await imported(store, pi_file("v3.jsonl"))).session
    header = StreamHeader(stream, 0)
    await other.commit(Commit(writes=(Write(stream=stream, create=header),), at=START_MS))
    report = await imported(other, (await export_session(store, stream)).content)
    assert report.session == f"{stream}.2"
    assert (await export_session(other, report.session, "pi")).content == pi_file("v3.jsonl")
