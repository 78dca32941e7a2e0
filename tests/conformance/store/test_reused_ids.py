"""The id of an erased session stays reserved, unless the caller asks to reuse the id."""

from __future__ import annotations

import asyncio

import pytest

from perdure.client.clock import Outside
from perdure.client.store import Store
from perdure.errors import Erased, LeaseHeld, LeaseLost, SessionExists, SessionNotFound
from perdure.session.codec import new_tree
from perdure.session.messages import assistant, user
from perdure.session.notes import Label
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock, SeededRandom


@pytest.fixture
def handle(store: SessionStore) -> Store:
    return Store(store, Outside(ManualClock(), SeededRandom(5)))


async def erased(handle: Store, id: str) -> str:
    """Create a session with this id and erase it; return the id of its erasure certificate."""
    session = await handle.create(id=id, title="secret title", subject="ana")
    await session.append(user("secret"), assistant("words"))
    await session.label(f"{id}/0", "secret label")
    await session.append_many([user("again")], idempotency_key="key")
    return (await handle.erase(id)).id


async def test_id_of_an_erased_session_is_reserved(handle: Store) -> None:
    await erased(handle, "chat")
    for lazy in (False, True):
        with pytest.raises(SessionExists, match="was erased and its id is reserved") as refused:
            await handle.create(id="chat", lazy=lazy)
        assert refused.value.is_erased


@pytest.mark.parametrize("lazy", [False, True])
async def test_session_with_reused_id_is_empty_at_first(handle: Store, lazy: bool) -> None:
    certificate = await erased(handle, "chat")
    await handle.create(id="chat.other")
    position = await handle.backend.position()
    session = await handle.create(id="chat", reuse_erased=True, lazy=lazy)
    assert (session.head, session.leaf, session.title) == (-1, None, None)
    entries = await session.append(user("new"), assistant("start"))
    assert [entry.id for entry in entries] == ["chat/0", "chat/1"]
    await session.append_many([user("again")], idempotency_key="key")
    assert await session.labels() == {}
    assert (await session.info()).messages == 3
    again = await handle.open("chat")
    assert [message.text for message in await again.messages()] == ["new", "start", "again"]
    fed = [each.entry.id for each in await handle.backend.feed(position)]
    assert fed == ["chat/0", "chat/1", "chat/2"]
    verified = await handle.verify()
    assert (verified.problems, verified.is_ok) == ((), True)
    assert [done.id for done in await handle.erasures()] == [certificate]
    assert Label.kind not in str(await handle.backend.entries(session.id))


async def test_second_erasure_returns_first_certificate(handle: Store) -> None:
    certificate = await erased(handle, "chat")
    assert (await handle.erase("chat")).id == certificate
    with pytest.raises(SessionNotFound):
        await handle.erase("cha")
    assert [done.id for done in await handle.erasures()] == [certificate]


async def test_use_of_an_erased_session_handle_is_rejected(handle: Store) -> None:
    session = await handle.create(id="chat")
    await session.append(user("secret"), assistant("words"))
    await handle.erase("chat")
    gone = Erased if handle.backend.capabilities.erase else SessionNotFound
    with pytest.raises(gone):
        await session.messages()
    with pytest.raises(gone):
        await session.append(user("more"))


async def test_reuse_of_id_of_existing_session_is_rejected(handle: Store) -> None:
    session = await handle.create(id="chat")
    await session.append(user("keep me"))
    with pytest.raises(SessionExists):
        await handle.create(id="chat", reuse_erased=True)
    assert [message.text for message in await session.messages()] == ["keep me"]
    assert (await handle.create(id="never", reuse_erased=True)).id == "never"


async def test_only_one_of_two_concurrent_id_reuses_succeeds(handle: Store) -> None:
    await erased(handle, "chat")
    made = await asyncio.gather(
        *(handle.create(id="chat", reuse_erased=True) for _ in range(4)), return_exceptions=True
    )
    refused = [each for each in made if isinstance(each, BaseException)]
    assert {type(each) for each in refused} == {SessionExists}, refused
    assert len(refused) == 3


async def test_reused_id_can_be_erased_and_reused_again(handle: Store) -> None:
    for number in range(3):
        session = await handle.create(id="chat", reuse_erased=True)
        await session.append(user(f"round {number}"))
        await handle.erase("chat")
    assert len(await handle.erasures()) == 3
    assert (await handle.verify()).is_ok


async def test_id_of_an_erased_session_with_forks_cannot_be_reused(handle: Store) -> None:
    if not handle.backend.capabilities.pointer_fork:
        pytest.skip("forks are copies here: nothing of the erased session stays")
    session = await handle.create(id="chat")
    await session.append(user("shared"))
    fork = await session.fork(id="fork")
    await handle.erase("chat", forks="keep")
    with pytest.raises(SessionExists):
        await handle.create(id="chat", reuse_erased=True)
    assert [message.text for message in await fork.messages()] == ["shared"]


@pytest.mark.parametrize("lazy", [False, True])
async def test_old_leases_are_invalid_after_an_id_is_reused(
    store: SessionStore, clock: ManualClock, lazy: bool
) -> None:
    handle = Store(store, Outside(clock, SeededRandom(5)))
    for _ in range(2):
        session = await handle.create(id="chat", reuse_erased=True)
        await session.append(user("secret"))
        old = await store.acquire_lease(session.id, "stopped", 1_000)
        await store.release_lease(old)
        await handle.erase("chat")
        clock.set_time_of_day(clock.now_ms() + 60_000)
        again = await handle.create(id="chat", reuse_erased=True, lazy=lazy)
        await again.append(user("new"), assistant("start"))
        new = await store.acquire_lease(again.id, "running", 60_000)
        assert new.epoch > old.epoch
        late = Write(stream=again.id, entries=(new_tree(user("late")),), lease=old)
        with pytest.raises(LeaseLost):
            await store.commit(Commit(writes=(late,), at=1))
        with pytest.raises(LeaseLost):
            await store.renew_lease(old, 60_000)
        await store.release_lease(old)
        with pytest.raises(LeaseHeld):
            await store.acquire_lease(again.id, "other", 1_000)
        assert (await handle.verify()).is_ok
        await store.release_lease(new)
        await handle.erase("chat")
