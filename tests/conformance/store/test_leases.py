"""Rules 4 and 5: leases, turns, what waits beside an open turn, and partial answers."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from perdure.errors import (
    InvalidEntry,
    InvalidParent,
    LeaseHeld,
    LeaseLost,
    SessionNotFound,
    TurnOpen,
)
from perdure.session.codec import body_of, encode, new_side
from perdure.session.entries import NewEntry, Sibling
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import OPAQUE
from perdure.session.notes import Adopted, Queued
from perdure.stores.protocol import Commit, Lease, SessionStore, Write
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    S,
    append,
    append_one,
    create,
    labelled,
    moved,
    replied,
    said,
    texts,
    turn_finished,
    turn_started,
    unknown,
)
from tests.fakes.clock import START_MS, ManualClock

TTL_MS = 30_000


async def in_a_turn(store: SessionStore) -> Lease:
    """A stream "s" whose turn is open: s/0 a message before it, s/1 its start, s/2 its input."""
    await create(store, S, said("before"))
    lease = await store.acquire_lease(S, "me", TTL_MS)
    await append(store, S, turn_started(), said("do it"), lease=lease)
    return lease


# ---------------------------------------------------------------- leases


async def test_a_free_lease_is_taken_with_epoch_one(
    store: SessionStore, clock: ManualClock
) -> None:
    await create(store)

    lease = await store.acquire_lease(S, "me", TTL_MS)

    assert lease == Lease(S, "me", 1, clock.now_ms() + TTL_MS)
    assert (await store.state(S)).epoch == 1


@pytest.mark.parametrize("owner", ["you", "me"])
async def test_a_held_lease_is_refused_to_everybody(
    store: SessionStore, clock: ManualClock, owner: str
) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)
    clock.advance(29)

    with pytest.raises(LeaseHeld) as refused:
        await store.acquire_lease(S, owner, TTL_MS)

    held = refused.value
    assert (held.stream, held.owner, held.until) == ("s", "me", lease.until)
    assert (await store.state(S)).epoch == 1


async def test_a_lease_that_ran_out_can_be_taken_with_a_higher_epoch(
    store: SessionStore, clock: ManualClock
) -> None:
    await create(store)
    await store.acquire_lease(S, "me", TTL_MS)
    clock.advance(30)

    taken = await store.acquire_lease(S, "you", TTL_MS)

    assert (taken.owner, taken.epoch) == ("you", 2)
    assert (await store.state(S)).epoch == 2


async def test_a_renewed_lease_is_the_same_lease_for_longer(
    store: SessionStore, clock: ManualClock
) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)
    clock.advance(20)

    renewed = await store.renew_lease(lease, TTL_MS)
    clock.advance(20)

    assert renewed == Lease(S, "me", 1, lease.until + 20_000)
    with pytest.raises(LeaseHeld):
        await store.acquire_lease(S, "you", TTL_MS)


async def test_a_lease_that_ran_out_is_renewed_unless_somebody_took_it(
    store: SessionStore, clock: ManualClock
) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)
    clock.advance(100)

    assert (await store.renew_lease(lease, TTL_MS)).epoch == 1
    clock.advance(100)
    await store.acquire_lease(S, "you", TTL_MS)
    with pytest.raises(LeaseLost) as refused:
        await store.renew_lease(lease, TTL_MS)

    lost = refused.value
    assert (lost.stream, lost.epoch, lost.current) == ("s", 1, 2)


async def test_a_released_lease_is_free_at_once_and_the_epoch_still_grows(
    store: SessionStore,
) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)

    await store.release_lease(lease)

    assert (await store.state(S)).epoch == 1
    assert (await store.acquire_lease(S, "you", TTL_MS)).epoch == 2


async def test_releasing_a_lease_that_was_taken_over_does_nothing(
    store: SessionStore, clock: ManualClock
) -> None:
    await create(store)
    old = await store.acquire_lease(S, "me", TTL_MS)
    clock.advance(31)
    await store.acquire_lease(S, "you", TTL_MS)

    await store.release_lease(old)

    with pytest.raises(LeaseHeld):
        await store.acquire_lease(S, "me", TTL_MS)


async def test_leases_are_per_stream(store: SessionStore) -> None:
    await create(store)
    await create(store, "t")
    lease = await store.acquire_lease(S, "me", TTL_MS)

    other = await store.acquire_lease(StreamId("t"), "you", TTL_MS)

    assert other.epoch == 1
    with pytest.raises(LeaseLost):
        await append(store, StreamId("t"), said("x"), lease=lease)


async def test_of_many_that_want_a_lease_one_gets_it(data: Data) -> None:
    left, right = await data.open(), await data.open()
    await create(left)

    async def race(store: SessionStore, owner: str) -> int:
        with contextlib.suppress(LeaseHeld):
            return (await store.acquire_lease(S, owner, TTL_MS)).epoch
        return 0

    epochs = await asyncio.gather(*(race(s, str(n)) for n in range(8) for s in (left, right)))

    assert sorted(epochs) == [0] * 15 + [1]


async def test_the_lease_of_an_owner_known_to_be_dead_is_taken_at_once(data: Data) -> None:
    left, right = await data.open(), await data.open()
    old = await in_a_turn(left)

    taken = await right.acquire_lease(S, "you", TTL_MS, dead_owner="me")

    assert (taken.owner, taken.epoch) == ("you", 2)
    assert (await right.state(S)).open_turn == 1
    with pytest.raises(LeaseLost):
        await append(left, S, replied("from the dead"), lease=old)
    # Whoever comes second with the same news finds the lease in living hands.
    with pytest.raises(LeaseHeld) as refused:
        await left.acquire_lease(S, "they", TTL_MS, dead_owner="me")
    assert refused.value.owner == "you"


async def test_another_owners_death_frees_no_lease(store: SessionStore) -> None:
    await create(store)
    await store.acquire_lease(S, "me", TTL_MS)

    with pytest.raises(LeaseHeld):
        await store.acquire_lease(S, "you", TTL_MS, dead_owner="m")
    with pytest.raises(LeaseHeld):
        await store.acquire_lease(S, "me", TTL_MS, dead_owner="")


async def test_there_is_no_lease_of_a_stream_that_does_not_exist(store: SessionStore) -> None:
    lost = Lease(S, "me", 1, 0)

    for call in (
        store.acquire_lease(S, "me", TTL_MS),
        store.renew_lease(lost, TTL_MS),
        store.release_lease(lost),
        store.put_partial(lost, 0, b""),
    ):
        with pytest.raises(SessionNotFound):
            await call


# ---------------------------------------------------------------- writing under a lease


@pytest.mark.parametrize(
    "new", [said("x"), labelled("x", None), turn_started(), turn_finished(), moved(None)]
)
async def test_a_write_under_a_lost_lease_is_refused_whatever_it_appends(
    store: SessionStore, clock: ManualClock, new: NewEntry
) -> None:
    lease = await in_a_turn(store)
    clock.advance(31)
    await store.acquire_lease(S, "you", TTL_MS)
    before = await store.state(S)

    with pytest.raises(LeaseLost) as refused:
        await append(store, S, new, lease=lease)

    assert (refused.value.epoch, refused.value.current) == (1, 2)
    assert await store.state(S) == before


@pytest.mark.parametrize("epoch", [0, 1, -1])
async def test_an_epoch_that_nobody_was_given_is_refused(store: SessionStore, epoch: int) -> None:
    await create(store)

    with pytest.raises(LeaseLost):
        await append(store, S, said("x"), lease=Lease(S, "me", epoch, 2**50))

    assert (await store.state(S)).epoch == 0


async def test_a_lease_that_ran_out_still_writes_until_somebody_takes_it(
    store: SessionStore, clock: ManualClock
) -> None:
    lease = await in_a_turn(store)
    clock.advance(1000)

    await append(store, S, replied("late but first"), turn_finished(EntryId("s/1")), lease=lease)

    assert (await store.state(S)).open_turn is None


async def test_what_the_lease_says_about_time_and_owner_does_not_count(
    store: SessionStore,
) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)

    await append(store, S, said("x"), lease=msgspec.structs.replace(lease, until=0, owner="?"))

    assert texts(await store.entries(S)) == ["x"]


async def test_a_process_that_wakes_up_late_is_refused_and_the_taker_goes_on(
    data: Data, clock: ManualClock
) -> None:
    sleeper, taker = await data.open(), await data.open()
    old = await in_a_turn(sleeper)
    clock.advance(31)
    new = await taker.acquire_lease(S, "you", TTL_MS)

    with pytest.raises(LeaseLost):
        await append(sleeper, S, replied("too late"), lease=old)
    await append(taker, S, replied("in time"), turn_finished(), lease=new)

    assert texts(await sleeper.entries(S)) == ["before", "do it", "in time"]


# ---------------------------------------------------------------- turns


async def test_a_turn_opens_and_closes(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    assert (await store.state(S)).open_turn == 1

    await append(store, S, replied("done"), turn_finished(EntryId("s/1")), lease=lease)
    assert (await store.state(S)).open_turn is None
    await append(store, S, turn_started(2), lease=lease)

    state = await store.state(S)
    assert (state.open_turn, state.info.turns) == (5, 2)


async def test_a_turn_may_open_and_close_in_one_write(store: SessionStore) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)

    entries = await append(
        store, S, turn_started(), said("a"), turn_finished(Sibling(0)), turn_started(2), lease=lease
    )

    assert entries[2].about == "s/0"
    assert (await store.state(S)).open_turn == 3


async def test_a_turn_needs_a_lease_to_start_and_to_finish(store: SessionStore) -> None:
    await create(store, S, said("a"))
    with pytest.raises(InvalidEntry):
        await append(store, S, turn_started())
    lease = await store.acquire_lease(S, "me", TTL_MS)
    await append(store, S, turn_started(), lease=lease)

    with pytest.raises(InvalidEntry):
        await append(store, S, turn_finished())

    assert (await store.state(S)).open_turn == 1


async def test_a_second_turn_cannot_start_while_one_is_open(store: SessionStore) -> None:
    lease = await in_a_turn(store)

    with pytest.raises(TurnOpen) as refused:
        await append(store, S, turn_started(2), lease=lease)

    assert (refused.value.stream, refused.value.turn_seq) == ("s", 1)


async def test_no_turn_can_finish_that_is_not_open(store: SessionStore) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)

    with pytest.raises(InvalidEntry):
        await append(store, S, turn_finished(), lease=lease)
    with pytest.raises(InvalidEntry):
        await append(store, S, turn_started(), turn_finished(), turn_finished(), lease=lease)


async def test_whoever_takes_the_lease_over_can_finish_the_turn(
    store: SessionStore, clock: ManualClock
) -> None:
    await in_a_turn(store)
    clock.advance(31)
    lease = await store.acquire_lease(S, "recovery", TTL_MS)

    assert (await store.state(S)).open_turn == 1
    await append(store, S, turn_finished(EntryId("s/1")), lease=lease)

    assert (await store.state(S)).open_turn is None


# ---------------------------------------------------------------- beside an open turn


async def test_a_tree_entry_of_anybody_else_is_queued_in_its_place(store: SessionStore) -> None:
    await in_a_turn(store)
    body = b'{"role":"user", "parts":[{"type":"text","text":"wait"}], "later":[1.50]}'

    entry = await append_one(store, S, NewEntry("message", body, at=77))
    state = await store.state(S)

    assert (entry.seq, entry.lane, entry.parent_id, entry.about) == (3, "side", None, None)
    assert (entry.kind, entry.v, entry.at) == ("queued", Queued.version, 77)
    queued = body_of(entry)
    assert isinstance(queued, Queued)
    assert (queued.entry_kind, queued.entry_v, queued.mode) == ("message", 1, "steer")
    assert bytes(queued.entry_body) == body
    assert (state.head, state.leaf, state.open_turn) == (3, "s/2", 1)
    assert state.info.messages == 2
    assert await store.notes(S, ["queued"]) == [entry]


async def test_unknown_kinds_are_queued_with_their_version(store: SessionStore) -> None:
    await in_a_turn(store)

    queued = body_of(await append_one(store, S, unknown(b"[1e5]", v=9)))

    assert isinstance(queued, Queued)
    assert (queued.entry_kind, queued.entry_v) == ("from_the_future", 9)
    assert bytes(queued.entry_body) == b"[1e5]"


async def test_entries_that_hang_from_each_other_are_all_queued(store: SessionStore) -> None:
    await in_a_turn(store)

    entries = await append(
        store,
        S,
        said("one"),
        labelled("about one", Sibling(0)),
        said("two", Sibling(0)),
        said("three", EntryId("s/0")),
        said("four", None),
    )

    assert [entry.kind for entry in entries] == ["queued", "label", "queued", "queued", "queued"]
    assert entries[1].about == entries[0].id
    assert (await store.state(S)).leaf == "s/2"


async def test_a_queued_entry_keeps_its_foreign_id(store: SessionStore) -> None:
    await in_a_turn(store)

    await append(store, S, said("x", alias="abc"))

    assert await store.resolve(S, "abc") == "s/3"


async def test_what_would_be_refused_is_not_queued_either(store: SessionStore) -> None:
    await in_a_turn(store)

    with pytest.raises(InvalidParent):
        await append(store, S, said("x", EntryId("s/99")))
    with pytest.raises(InvalidEntry):
        await append(store, S, NewEntry("message", b"{}"))
    with pytest.raises(InvalidEntry):
        await append(store, S, NewEntry(OPAQUE, b"\xff\x00"))

    assert (await store.state(S)).head == 2


async def test_side_entries_of_anybody_go_through(store: SessionStore) -> None:
    await in_a_turn(store)

    entry = await append_one(store, S, labelled("x", EntryId("s/2")))

    assert (entry.kind, entry.about) == ("label", "s/2")


async def test_nobody_else_moves_the_leaf_during_a_turn(store: SessionStore) -> None:
    lease = await in_a_turn(store)

    with pytest.raises(TurnOpen) as refused:
        await append(store, S, said("x"), moved(EntryId("s/0")))
    assert (refused.value.stream, refused.value.turn_seq) == ("s", 1)
    assert (await store.state(S)).head == 2

    await append(store, S, moved(EntryId("s/0")), lease=lease)
    assert (await store.state(S)).leaf == "s/0"


async def test_the_owner_appends_to_the_tree_and_adopts_what_waits(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    waiting = await append_one(store, S, said("and this"))
    queued = body_of(waiting)
    assert isinstance(queued, Queued)

    adopted, note = await append(
        store,
        S,
        NewEntry(queued.entry_kind, bytes(queued.entry_body), queued.entry_v),
        NewEntry("adopted", encode(Adopted(EntryId("s/4"))), lane="side", about=waiting.id),
        lease=lease,
    )

    assert (adopted.parent_id, note.about) == ("s/2", waiting.id)
    assert texts([adopted]) == ["and this"]
    assert (await store.state(S)).info.messages == 3


async def test_a_queued_entry_is_nobodys_parent(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    waiting = await append_one(store, S, said("x"))

    queued = new_side(Queued("message", msgspec.Raw(said("z").body)))

    with pytest.raises(InvalidParent):
        await append(store, S, said("y", waiting.id), lease=lease)
    with pytest.raises(InvalidParent):
        await append(store, S, queued, said("y", Sibling(0)), lease=lease)


async def test_after_the_turn_anybody_appends_again(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    await append(store, S, turn_finished(EntryId("s/1")), lease=lease)

    entry = await append_one(store, S, said("after"))

    assert (entry.lane, entry.parent_id) == ("tree", "s/2")


async def test_a_lease_without_a_turn_holds_nobody_back(store: SessionStore) -> None:
    await create(store)
    await store.acquire_lease(S, "me", TTL_MS)

    entry = await append_one(store, S, said("anybody"))

    assert (entry.lane, entry.kind) == ("tree", "message")


# ---------------------------------------------------------------- partial answers


async def test_a_partial_answer_is_kept_and_replaced(data: Data) -> None:
    store, other = await data.open(), await data.open()
    lease = await in_a_turn(store)
    assert await store.partial(S) is None

    await store.put_partial(lease, 3, b"The s")
    await store.put_partial(lease, 3, b"The sea\x00\xff")

    assert await other.partial(S) == (3, b"The sea\x00\xff")
    await store.put_partial(lease, 5, b"")
    assert await other.partial(S) == (5, b"")


async def test_a_partial_answer_is_no_entry(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    before = (await store.state(S), await store.position())

    await store.put_partial(lease, 2, b"x")

    assert (await store.state(S), await store.position()) == before


async def test_a_partial_answer_is_gone_once_the_turn_is_finished(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    await store.put_partial(lease, 2, b"x")

    await append(store, S, turn_finished(), lease=lease)
    assert await store.partial(S) is None
    # What a slow writer still sends belongs to no turn, and not to the next one either.
    await store.put_partial(lease, 2, b"late")
    assert await store.partial(S) is None
    await append(store, S, turn_started(2), lease=lease)

    assert await store.partial(S) is None


async def test_a_refused_end_of_the_turn_leaves_the_partial_answer(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    await store.put_partial(lease, 2, b"half")

    with pytest.raises(InvalidParent):
        await append(store, S, turn_finished(), said("x", EntryId("s/99")), lease=lease)

    assert await store.partial(S) == (2, b"half")


@pytest.mark.needs("multi_stream_commit")
async def test_a_commit_that_another_stream_refuses_leaves_the_partial_answer(
    store: SessionStore,
) -> None:
    lease = await in_a_turn(store)
    await store.put_partial(lease, 2, b"half")

    other = Write(stream=StreamId("gone"), entries=(said(),))
    end = Write(stream=S, entries=(turn_finished(),), lease=lease)
    with pytest.raises(SessionNotFound):
        await store.commit(Commit(writes=(end, other), at=START_MS))

    assert await store.partial(S) == (2, b"half")


async def test_a_partial_answer_outlives_its_writers_lease(
    store: SessionStore, clock: ManualClock
) -> None:
    old = await in_a_turn(store)
    await store.put_partial(old, 2, b"half an ans")
    clock.advance(31)
    await store.acquire_lease(S, "recovery", TTL_MS)

    with pytest.raises(LeaseLost):
        await store.put_partial(old, 2, b"half an answer")

    assert await store.partial(S) == (2, b"half an ans")
