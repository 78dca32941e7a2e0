"""The received part of an answer is stored beside the log while its turn is open."""

from __future__ import annotations

import pytest

from perdure.errors import (
    InvalidParent,
    LeaseLost,
    SessionNotFound,
)
from perdure.session.ids import EntryId, StreamId
from perdure.session.ledger import TurnFinished
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    TTL_MS,
    S,
    append,
    in_a_turn,
    said,
    turn_finished,
    turn_started,
)
from tests.fakes.clock import START_MS, ManualClock


async def test_partial_answer_is_stored_and_replaced(data: Data) -> None:
    store, other = await data.open(), await data.open()
    lease = await in_a_turn(store)
    assert await store.partial(S) is None

    await store.put_partial(lease, 3, b"The s")
    await store.put_partial(lease, 3, b"The sea\x00\xff")

    assert await other.partial(S) == (3, b"The sea\x00\xff")
    await store.put_partial(lease, 5, b"")
    assert await other.partial(S) == (5, b"")


async def test_partial_answer_is_not_an_entry_of_the_log(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    before = (await store.state(S), await store.position())

    await store.put_partial(lease, 2, b"x")

    assert (await store.state(S), await store.position()) == before


async def test_finished_turn_removes_partial_answer(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    await store.put_partial(lease, 2, b"x")

    await append(store, S, turn_finished(), lease=lease)
    assert await store.partial(S) is None
    # A late partial of a slow writer belongs to no turn, not even to the next one.
    await store.put_partial(lease, 2, b"late")
    assert await store.partial(S) is None
    await append(store, S, turn_started(2), lease=lease)

    assert await store.partial(S) is None


async def test_partial_answer_is_kept_if_others_write_during_the_turn(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    await store.put_partial(lease, 2, b"half")

    await append(store, S, said("queued"))
    await append(store, S, said("of the turn"), lease=lease)

    assert await store.partial(S) == (2, b"half")


async def test_partial_answer_is_kept_if_finishing_the_turn_fails(store: SessionStore) -> None:
    lease = await in_a_turn(store)
    await store.put_partial(lease, 2, b"half")

    with pytest.raises(InvalidParent):
        await append(store, S, turn_finished(), said("x", EntryId("s/99")), lease=lease)

    assert await store.partial(S) == (2, b"half")


@pytest.mark.needs("multi_stream_commit")
async def test_failed_multi_stream_commit_keeps_partial_answer_and_turn(
    store: SessionStore,
) -> None:
    lease = await in_a_turn(store)
    await store.put_partial(lease, 2, b"half")

    other = Write(stream=StreamId("gone"), entries=(said(),))
    end = Write(stream=S, entries=(turn_finished(),), lease=lease)
    with pytest.raises(SessionNotFound):
        await store.commit(Commit(writes=(end, other), at=START_MS))

    assert await store.partial(S) == (2, b"half")
    assert await store.notes(S, (TurnFinished.kind,)) == []
    (finished,) = await append(store, S, turn_finished(), lease=lease)
    assert await store.notes(S, (TurnFinished.kind,)) == [finished]


async def test_partial_answer_remains_after_its_writer_loses_lease(
    store: SessionStore, clock: ManualClock
) -> None:
    old = await in_a_turn(store)
    await store.put_partial(old, 2, b"half an ans")
    clock.advance(31)
    await store.acquire_lease(S, "recovery", TTL_MS)

    with pytest.raises(LeaseLost):
        await store.put_partial(old, 2, b"half an answer")

    assert await store.partial(S) == (2, b"half an ans")
