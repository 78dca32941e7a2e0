"""Rules 4 and 5 of an append: turns, and writes by others while a turn is open."""

from __future__ import annotations

import msgspec
import pytest

from perdure.errors import (
    InvalidEntry,
    InvalidParent,
    TurnOpen,
)
from perdure.session.codec import body_of, encode, new_side
from perdure.session.entries import NewEntry, Sibling
from perdure.session.ids import EntryId
from perdure.session.kinds import OPAQUE
from perdure.session.notes import Adopted, Queued
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import (
    TTL_MS,
    S,
    append,
    append_one,
    create,
    in_a_turn,
    labelled,
    moved,
    replied,
    said,
    texts,
    turn_finished,
    turn_started,
    unknown,
)
from tests.fakes.clock import ManualClock


async def test_stream_state_shows_the_open_turn_until_it_finishes(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    assert (await store.state(S)).open_turn == 1
    assert [info.open_turn for info in await store.sessions()] == [1]

    await append(store, S, replied("done"), turn_finished(EntryId("s/1")), lease=lease)
    assert (await store.state(S)).open_turn is None
    assert [info.open_turn for info in await store.sessions()] == [None]
    await append(store, S, turn_started(2), lease=lease)

    state = await store.state(S)
    assert (state.open_turn, state.info.turns, state.info.open_turn) == (5, 2, 5)
    assert (await store.maintenance.verify()).is_ok


async def test_one_write_can_start_and_finish_turn(store: SessionStore) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)

    entries = await append(
        store, S, turn_started(), said("a"), turn_finished(Sibling(0)), turn_started(2), lease=lease
    )

    assert entries[2].about == "s/0"
    assert (await store.state(S)).open_turn == 3


async def test_turn_needs_a_lease_to_start_and_to_finish(store: SessionStore) -> None:
    await create(store, S, said("a"))
    with pytest.raises(InvalidEntry):
        await append(store, S, turn_started())
    lease = await store.acquire_lease(S, "me", TTL_MS)
    await append(store, S, turn_started(), lease=lease)

    with pytest.raises(InvalidEntry):
        await append(store, S, turn_finished())

    assert (await store.state(S)).open_turn == 1


async def test_second_turn_cannot_start_during_an_open_turn(store: SessionStore) -> None:
    lease = await in_a_turn(store)

    with pytest.raises(TurnOpen) as refused:
        await append(store, S, turn_started(2), lease=lease)

    assert (refused.value.stream, refused.value.turn_seq) == ("s", 1)


async def test_turn_that_is_not_open_cannot_finish(store: SessionStore) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)

    with pytest.raises(InvalidEntry):
        await append(store, S, turn_finished(), lease=lease)
    with pytest.raises(InvalidEntry):
        await append(store, S, turn_started(), turn_finished(), turn_finished(), lease=lease)


async def test_new_lease_owner_can_finish_turn(store: SessionStore, clock: ManualClock) -> None:
    await in_a_turn(store)
    clock.advance(31)
    lease = await store.acquire_lease(S, "recovery", TTL_MS)

    assert (await store.state(S)).open_turn == 1
    await append(store, S, turn_finished(EntryId("s/1")), lease=lease)

    assert (await store.state(S)).open_turn is None


# ---------------------------------------------------------------- beside an open turn


async def test_tree_entry_of_another_writer_is_queued_during_a_turn(
    store: SessionStore,
) -> None:
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


async def test_entry_of_unknown_kind_is_queued_unchanged(store: SessionStore) -> None:
    await in_a_turn(store)

    queued = body_of(await append_one(store, S, unknown(b"[1e5]", v=9)))

    assert isinstance(queued, Queued)
    assert (queued.entry_kind, queued.entry_v) == ("from_the_future", 9)
    assert bytes(queued.entry_body) == b"[1e5]"


async def test_entries_that_refer_to_queued_entries_are_accepted(
    store: SessionStore,
) -> None:
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


async def test_queued_entry_keeps_its_alias(store: SessionStore) -> None:
    await in_a_turn(store)

    await append(store, S, said("x", alias="abc"))

    assert await store.resolve(S, "abc") == "s/3"


async def test_invalid_entry_is_not_queued(store: SessionStore) -> None:
    await in_a_turn(store)

    with pytest.raises(InvalidParent):
        await append(store, S, said("x", EntryId("s/99")))
    with pytest.raises(InvalidEntry):
        await append(store, S, NewEntry("message", b"{}"))
    with pytest.raises(InvalidEntry):
        await append(store, S, NewEntry(OPAQUE, b"\xff\x00"))

    assert (await store.state(S)).head == 2


async def test_entry_outside_the_tree_can_be_appended_during_a_turn(
    store: SessionStore,
) -> None:
    await in_a_turn(store)

    entry = await append_one(store, S, labelled("x", EntryId("s/2")))

    assert (entry.kind, entry.about) == ("label", "s/2")


async def test_branch_switch_without_the_lease_is_rejected_during_a_turn(
    store: SessionStore,
) -> None:
    lease = await in_a_turn(store)

    with pytest.raises(TurnOpen) as refused:
        await append(store, S, said("x"), moved(EntryId("s/0")))
    assert (refused.value.stream, refused.value.turn_seq) == ("s", 1)
    assert (await store.state(S)).head == 2

    await append(store, S, moved(EntryId("s/0")), lease=lease)
    assert (await store.state(S)).leaf == "s/0"


async def test_lease_owner_appends_queued_entries_to_the_branch(store: SessionStore) -> None:
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


async def test_queued_entry_cannot_be_parent(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    waiting = await append_one(store, S, said("x"))

    queued = new_side(Queued("message", msgspec.Raw(said("z").body)))

    with pytest.raises(InvalidParent):
        await append(store, S, said("y", waiting.id), lease=lease)
    with pytest.raises(InvalidParent):
        await append(store, S, queued, said("y", Sibling(0)), lease=lease)


async def test_writer_without_lease_appends_to_the_tree_after_the_turn(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    await append(store, S, turn_finished(EntryId("s/1")), lease=lease)

    entry = await append_one(store, S, said("after"))

    assert (entry.lane, entry.parent_id) == ("tree", "s/2")


async def test_lease_without_turn_blocks_no_writer(store: SessionStore) -> None:
    await create(store)
    await store.acquire_lease(S, "me", TTL_MS)

    entry = await append_one(store, S, said("anybody"))

    assert (entry.lane, entry.kind) == ("tree", "message")
