"""Lists, idle sessions and open questions match a scan of all streams, on every backend."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings

from perdure.session.codec import new_side
from perdure.session.ids import EntryId, StreamId
from perdure.session.notes import (
    Answer,
)
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Backend
from tests.conformance.store.building import (
    TTL_MS,
    append,
    create,
    fork,
    header,
    said,
    turn_finished,
    turn_started,
)
from tests.conformance.store.scanned import ASKED, STEPS, carried_out
from tests.fakes.clock import ManualClock


@pytest.mark.full_only
@pytest.mark.hypothesis
def test_session_lists_match_a_full_scan_after_random_operations(backend: Backend) -> None:
    @settings(max_examples=max(3, settings().max_examples // 8), deadline=None)
    @given(STEPS)
    def any_steps(steps: list[tuple[str, int]]) -> None:
        asyncio.run(carried_out(backend, steps))

    any_steps()


async def test_session_lists_match_a_full_scan_after_every_operation(
    backend: Backend,
) -> None:
    acts = "create create ask say move ask close fork flow end ask withdraw reopen name erase"
    steps = [(act, number) for number, act in enumerate(acts.split())]
    await carried_out(backend, [*steps, ("create", 7), ("remove", 5), ("say", 1)])


async def test_open_turns_are_listed_with_current_lease_owners(
    store: SessionStore, clock: ManualClock
) -> None:
    for stream in ("idle", "runs", "expired", "free", "ended"):
        await create(store, stream, said("a"))
    await create(store, header("flow", kind="flow"))
    leases = {
        each: await store.acquire_lease(StreamId(each), f"of {each}", TTL_MS)
        for each in ("runs", "expired", "free", "ended", "flow")
    }
    for each, lease in leases.items():
        await append(store, StreamId(each), turn_started(), lease=lease)
    await append(store, StreamId("ended"), turn_finished(), lease=leases["ended"])
    await store.release_lease(leases["free"])
    clock.advance(TTL_MS + 1)
    await store.renew_lease(leases["runs"], TTL_MS)

    turns = await store.open_turns()

    held = {turn.info.id: turn.holder for turn in turns}
    assert held == {"runs": "of runs", "expired": None, "free": None}
    listed = {info.id: info for info in await store.sessions()}
    assert [turn.info for turn in turns] == [listed[turn.info.id] for turn in turns]


async def test_answer_in_a_fork_leaves_the_original_question_open(store: SessionStore) -> None:
    await create(store, "s", said("a"))
    (asked,) = await append(store, StreamId("s"), new_side(ASKED))
    if not store.capabilities.pointer_fork:
        pytest.skip("its forks are copies, with questions of their own")
    await fork(store, StreamId("s"), "f")
    await append(store, StreamId("f"), new_side(Answer("allow", "me"), EntryId(asked.id)))

    assert await store.open_of_all("question") == [asked]
    assert (await store.maintenance.verify()).problems == ()


async def test_folder_filter_that_cannot_be_encoded_returns_no_sessions(
    store: SessionStore,
) -> None:
    await create(store, header("s", cwd="/a"))
    assert await store.sessions(cwd="/\udcff") == []
    assert await store.sessions(cwd="/a\0") == []
