"""Creating, finding and listing sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.store import Store
from perdure.errors import SessionExists, SessionNotFound, StoreUnavailable, WrongArgument
from perdure.session.messages import assistant, user
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import START_MS, ManualClock


async def test_session_is_stored_immediately_with_its_arguments(
    store: Store, memory: MemoryStore, tmp_path: Path
) -> None:
    session = await store.create(id="s", title="Trip", cwd=tmp_path, metadata={"a": [1]})
    header = (await memory.state(session.id)).header
    assert (header.id, header.title, header.cwd) == ("s", "Trip", str(tmp_path))
    assert (header.metadata, header.origin, header.created_at) == ({"a": [1]}, "user", START_MS)
    assert (session.id, session.title, session.head, session.leaf) == ("s", "Trip", -1, None)
    assert (await store.open("s")).metadata == {"a": [1]}
    assert (await store.create()).metadata == {}
    assert not session.is_draft


async def test_folder_is_stored_as_absolute_path(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = await store.create(cwd=".")
    assert (await session.info()).cwd == str(tmp_path)


@pytest.mark.parametrize("lazy", [False, True])
async def test_chosen_id_that_already_exists_is_rejected_immediately(
    store: Store, lazy: bool
) -> None:
    await store.create(id="s")
    with pytest.raises(SessionExists):
        await store.create(id="s", lazy=lazy)


@pytest.mark.parametrize("lazy", [False, True])
async def test_invalid_id_raises_value_error(store: Store, lazy: bool) -> None:
    with pytest.raises(WrongArgument, match="cannot be a session id"):
        await store.create(id="a/b", lazy=lazy)


async def test_unsaved_session_without_an_answer_is_not_stored(
    store: Store,
) -> None:
    draft = await store.create(lazy=True, title="never")
    await draft.append(user("hello?"))
    assert draft.is_draft
    assert await store.recent(scope="all") == []
    with pytest.raises(SessionNotFound):
        await store.open(draft.id)


async def test_open_requires_complete_session_id(store: Store) -> None:
    await store.create(id="abc1")
    assert (await store.open("abc1")).id == "abc1"
    for other in ("abc", "x", ""):
        with pytest.raises(SessionNotFound):
            await store.open(other)


async def test_sessions_are_listed_by_their_newest_activity(
    store: Store, clock: ManualClock
) -> None:
    old = await store.create(id="old", cwd="/a")
    clock.advance(1)
    await store.create(id="new", cwd="/b", title="Second")
    assert [info.id for info in await store.recent()] == ["new", "old"]
    clock.advance(1)
    await old.append(user("again"))
    assert [info.id for info in await store.recent()] == ["old", "new"]
    assert [info.id for info in await store.recent(1)] == ["old"]
    assert [info.id for info in await store.recent(cwd="/b/.")] == ["new"]
    assert [info.id for info in await store.recent(query="sEC")] == ["new"]


async def test_reading_or_renaming_a_session_does_not_change_its_activity_time(
    store: Store, clock: ManualClock
) -> None:
    session = await store.create()
    first = await session.append(user("hi"))
    clock.advance(10)
    await session.label(first, "start")
    await session.rename("Named")
    await session.branch(None)
    assert (await session.info()).updated_at == START_MS


async def test_sessions_of_roles_and_subagents_are_listed_only_on_request(store: Store) -> None:
    await store.create(id="mine")
    await store.create(id="theirs", origin="subagent")
    assert [info.id for info in await store.recent()] == ["mine"]
    assert {info.id for info in await store.recent(scope="all")} == {"mine", "theirs"}


async def test_continue_recent_opens_the_newest_session(store: Store, clock: ManualClock) -> None:
    await store.create(id="here", cwd="/here")
    clock.advance(1)
    await store.create(id="there", cwd="/there")
    assert (await store.continue_recent()).id == "there"
    assert (await store.continue_recent(cwd="/here")).id == "here"


async def test_continuing_in_a_folder_without_sessions_starts_an_unsaved_session(
    store: Store,
) -> None:
    await store.create(id="elsewhere", cwd="/elsewhere")
    session = await store.continue_recent(cwd="/here")
    assert session.is_draft
    assert len(await store.recent()) == 1
    await session.append(user("a"))
    await session.append(assistant("b"))
    assert (await store.continue_recent(cwd="/here")).id == session.id


async def test_store_is_verified_and_its_info_is_returned(store: Store) -> None:
    session = await store.create()
    await session.append(user("a"))
    assert (await store.verify()).is_ok
    assert (await store.info()).entries == 1


async def test_search_with_an_empty_filter_list_matches_nothing(store: Store) -> None:
    session = await store.create(subject="ana")
    await session.append(user("the tide table"))
    assert len(await store.search("tide", sessions=[session.id])) == 1
    assert len(await store.search("tide", sessions=None)) == 1
    assert await store.search("tide", sessions=[]) == []
    assert await store.search("tide", roles=[]) == []
    assert await store.search("tide", tools=[]) == []


async def test_append_to_a_closed_store_raises_store_unavailable(store: Store) -> None:
    async with store:
        session = await store.create()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await session.append(user("late"))


async def test_error_for_an_id_prefix_suggests_store_find(
    store: Store,
) -> None:
    await store.create(id="trip-one")
    told = r"^no session 'trip' here; ids must be complete: Store\.find\('trip'\) "
    with pytest.raises(SessionNotFound, match=told):
        await store.open("trip")
    await store.create(id="trip-two")
    with pytest.raises(SessionNotFound, match=told):
        await store.open("trip")
    with pytest.raises(SessionNotFound, match=r"lists them$"):
        await store.open("rip")
    assert (await store.open_or_create("trip")).id == "trip"
