"""A query finds the sessions whose name or id contains the query, in any store."""

from __future__ import annotations

import pytest

from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.info import is_found
from perdure.session.notes import SessionInfoChanged
from perdure.stores import name_parts
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import (
    S,
    append,
    create,
    erasure,
    fork,
    header,
    said,
    said_to_old_version,
)
from tests.fakes.clock import START_MS

NAMES = [f"Trip {number} to {'Straßburg' if number % 3 else 'Lyon'}" for number in range(40)]
QUERIES = [
    *("t", "zz", "7", "TRIP", "trip 1", "strassb", "n", "s1", "S3", "-", "lyon", "o l"),
    *("Trip 11 to Straßburg", "Trip 11 to Straßburg!", "to straßburg and on from there"),
]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read so few sessions per round that even a short list needs several rounds."""
    monkeypatch.setattr(name_parts, "FEW", 3)
    monkeypatch.setattr(name_parts, "GROWTH", 2)


async def filled(store: SessionStore) -> None:
    for number, name in enumerate(NAMES):
        title = name if number % 2 else None
        own = header(f"s{number}", title=title, cwd=f"/{number % 2}")
        await create(store, own, said(name, at=START_MS + number * 7 % 40))


async def ids(store: SessionStore, query: str) -> list[str]:
    return [info.id for info in await store.sessions(query=query)]


@pytest.mark.usefixtures("few")
async def test_paged_name_query_returns_the_same_sessions_as_a_scan(
    store: SessionStore,
) -> None:
    await filled(store)
    every = await store.sessions(limit=None)
    for query in QUERIES:
        for cwd in (None, "/1"):
            expected = [info for info in every if is_found(info, cwd, query)]
            assert await store.sessions(limit=None, query=query, cwd=cwd) == expected, query
            after, pages = None, 0
            while page := await store.sessions(limit=3, query=query, cwd=cwd, after=after):
                assert page == expected[3 * pages : 3 * pages + 3], query
                after, pages = (page[-1].updated_at, page[-1].id), pages + 1
            assert pages == -(-len(expected) // 3)


async def test_session_is_not_found_by_an_old_name(store: SessionStore) -> None:
    await create(store, "s")
    assert await ids(store, "first") == []
    await append(store, StreamId("s"), said("First words"))
    assert await ids(store, "first w") == ["s"]
    await append(store, StreamId("s"), said("Second words"))
    await append(store, StreamId("s"), new_side(SessionInfoChanged(title="Harbour plan")))
    assert await ids(store, "first") == await ids(store, "second") == []
    assert await ids(store, "OUR PLAN") == ["s"]
    await append(store, StreamId("s"), new_side(SessionInfoChanged(title="y" * 300 + " end")))
    assert await ids(store, "harbour") == []
    assert await ids(store, "y END") == ["s"]
    await append(store, StreamId("s"), new_side(SessionInfoChanged(title=None)))
    assert await ids(store, "first") == ["s"]
    assert (await store.maintenance.verify()).problems == ()


async def test_name_query_finds_a_fork_by_the_inherited_name(store: SessionStore) -> None:
    await create(store, header("origin", title="Harbour plan"), said("hello"))
    await fork(store, StreamId("origin"), "branch")
    assert sorted(await ids(store, "harbour")) == ["branch", "origin"]
    assert (await store.maintenance.verify()).problems == ()


@pytest.mark.needs("erase")
async def test_query_finds_no_session_that_was_erased(store: SessionStore) -> None:
    await create(store, header("gone", title="Harbour plan"), said("hello"))
    await create(store, header("stays", title="Harbour view"), said("hello"))
    await store.retention.erase(erasure("gone"))
    assert await ids(store, "harbour") == ["stays"]
    assert await ids(store, "gone") == []
    assert (await store.maintenance.verify()).problems == ()


KEY = "sk-ant-api03-QRSTUVWXYZabcdefghij"


async def test_api_key_in_an_old_name_is_masked_in_lists(
    store: SessionStore,
) -> None:
    await create(store, S)
    await said_to_old_version(store, f"use {KEY} please")
    await create(store, "new", said(f"use {KEY} please"))
    assert (await store.state(S)).info.first_text == f"use {KEY} please"
    infos = await store.sessions()
    assert [info.name for info in infos] == ["use [redacted] please"] * 2
    assert (await store.maintenance.verify()).problems == ()
    assert sorted(await ids(store, "PLEASE")) == ["new", "s"]
    assert await ids(store, "[redacted]") == ["new"]  # where it is stored
    assert await ids(store, KEY[:20]) == ["s"]


async def test_name_index_has_no_old_api_key_after_a_rename(
    store: SessionStore,
) -> None:
    await create(store, S)
    await said_to_old_version(store, f"use {KEY} please")
    await append(store, S, new_side(SessionInfoChanged(title="Harbour plan")))
    assert await ids(store, KEY[:20]) == await ids(store, "please") == []
    assert await ids(store, "harbour") == ["s"]
    assert (await store.maintenance.verify()).problems == ()


@pytest.mark.needs("erase")
@pytest.mark.parametrize("how", ["erased", "removed"])
async def test_name_index_has_no_old_api_key_after_erasure(store: SessionStore, how: str) -> None:
    await create(store, S)
    await said_to_old_version(store, f"use {KEY} please")
    if how == "removed":
        assert await store.retention.remove(S)
    else:
        await store.retention.erase(erasure("s"))
    assert await ids(store, KEY[:20]) == []
    assert (await store.maintenance.verify()).problems == ()
