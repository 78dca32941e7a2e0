"""Reads across streams: find, lists, the feed, wake-ups and blobs; and namespace isolation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.errors import AmbiguousId, EntryNotFound, SessionNotFound
from perdure.session.codec import new_side
from perdure.session.entries import Sibling
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import SessionInfo
from perdure.session.ledger import ModelCalled, TurnStarted
from perdure.session.notes import SessionInfoChanged
from perdure.stores.protocol import EMPTY, Commit, Write
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    S,
    append,
    create,
    fork,
    header,
    ids,
    labelled,
    replied,
    said,
    texts,
)
from tests.fakes.clock import START_MS
from tests.fakes.samples import case


async def test_commits_succeed_after_many_lists_with_a_limit(store: SessionStore) -> None:
    for name in ("a", "b", "c"):
        await create(store, name)
    for number in range(12):  # more reads than a backend has readers
        assert len(await store.sessions(limit=1)) == 1
        (entry,) = await append(store, StreamId("a"), said(f"{number}"))
        for _ in range(4):
            assert (await store.state(StreamId("a"))).leaf == entry.id
            assert await store.entry(StreamId("a"), entry.id) == entry


# ---------------------------------------------------------------- find


async def test_stream_is_found_by_id_or_unique_prefix(store: SessionStore) -> None:
    await create(store, "alpha")
    await create(store, header("beta", kind="flow"))

    assert await store.find("alpha") == "alpha"
    assert await store.find("al") == "alpha"
    assert await store.find("b") == "beta"


async def test_prefix_that_matches_several_ids_is_ambiguous(store: SessionStore) -> None:
    for name in ("alb", "ala", "b"):
        await create(store, name)

    with pytest.raises(AmbiguousId) as refused:
        await store.find("al")

    assert refused.value.prefix == "al"
    assert refused.value.candidates == ("ala", "alb")


async def test_exact_id_is_preferred_to_a_longer_id(store: SessionStore) -> None:
    await create(store, "al")
    await create(store, "alpha")

    assert await store.find("al") == "al"


async def test_unknown_prefix_is_not_found(store: SessionStore) -> None:
    await create(store, "alpha")
    for prefix in ["", "AL", "lpha", "al%", "a_pha", "alphabet", "a*"]:
        with case(prefix):
            with pytest.raises(SessionNotFound) as refused:
                await store.find(prefix)

            assert refused.value.stream == prefix


# ---------------------------------------------------------------- notes of all sessions


async def test_entries_outside_the_tree_can_be_read_for_all_streams(
    store: SessionStore,
) -> None:
    for name in ("a", "b", "empty"):
        await create(store, name)
    await create(store, header("flow", kind="flow"))
    for name in ("a", "b", "a", "flow"):
        (entry,) = await append(store, StreamId(name), said("hello"))
        await append(store, StreamId(name), labelled(name, entry.id))
        await append(store, StreamId(name), new_side(SessionInfoChanged(title=name)))

    notes = await store.notes_of_all(("label", "session_info", "no such kind"))

    found = [(note.stream, note.seq, note.kind) for note in notes]
    alone = [
        (note.stream, note.seq, note.kind)
        for name in ("a", "b", "flow")
        for note in await store.notes(StreamId(name), ("label", "session_info"))
    ]
    assert sorted(found) == sorted(alone)
    assert [seq for stream, seq, _ in found if stream == "a"] == [1, 2, 4, 5]
    assert await store.notes_of_all(()) == []
    kinds = ("label", "session_info")
    some = await store.notes_of_all(kinds, [StreamId(each) for each in ("flow", "a", "no", "a")])
    assert {note.id for note in some} == {note.id for note in notes if note.stream != "b"}
    assert await store.notes_of_all(kinds, []) == []


async def test_model_calls_and_turn_starts_are_found_by_kind(
    store: SessionStore,
) -> None:
    await create(store, "a")
    lease = await store.acquire_lease(StreamId("a"), "me", 60_000)
    called = new_side(ModelCalled(call=1, model="m:m"))
    started = new_side(TurnStarted(number=1, agent="helper"))
    write = Write(stream=StreamId("a"), entries=(started, called), lease=lease)
    await store.commit(Commit(writes=(write,), at=START_MS))

    assert [note.seq for note in await store.notes_of_all(("model_called",))] == [1]
    assert [note.seq for note in await store.notes_of_all(("model_called", "turn_started"))] == [
        0,
        1,
    ]


# ---------------------------------------------------------------- lists


def names(infos: list[SessionInfo]) -> list[str]:
    return [info.id for info in infos]


async def test_sessions_are_listed_by_newest_activity(store: SessionStore) -> None:
    await create(store, header("a", created_at=100), said("x", at=300))
    await create(store, header("b", created_at=200))
    await create(store, header("c", created_at=100), replied("x", at=400))
    assert names(await store.sessions()) == ["c", "a", "b"]

    await append(store, StreamId("b"), said("now"), at=500)
    await append(store, StreamId("a"), labelled("looked at", None), at=600)
    await append(store, StreamId("a"), new_side(SessionInfoChanged(title="named")), at=700)

    assert names(await store.sessions()) == ["b", "c", "a"]


async def test_sessions_with_equal_times_are_listed_by_descending_id(store: SessionStore) -> None:
    for name in ("m", "z", "a", "B"):
        await create(store, name)

    assert names(await store.sessions()) == ["z", "m", "a", "B"]


async def test_list_returns_at_most_the_given_number_of_sessions(store: SessionStore) -> None:
    for number in range(60):
        await create(store, f"s{number:02}")

    assert len(await store.sessions()) == 50
    assert len(await store.sessions(limit=None)) == 60
    assert names(await store.sessions(limit=2)) == ["s59", "s58"]
    assert await store.sessions(limit=0) == []


async def test_default_session_list_omits_flows_and_role_sessions(
    store: SessionStore,
) -> None:
    await create(store, header("user"))
    await create(store, header("import", origin="import"))
    await create(store, header("role", origin="role"))
    await create(store, header("subagent", origin="subagent"))
    await create(store, header("flow", kind="flow"))

    assert names(await store.sessions()) == ["user", "import"]
    assert names(await store.sessions(scope="all")) == ["user", "subagent", "role", "import"]


async def test_list_can_be_filtered_by_folder(store: SessionStore) -> None:
    await create(store, header("a", cwd="/p"))
    await create(store, header("b", cwd="/p/q"))
    await create(store, header("c"))
    await create(store, header("d", cwd="/elsewhere"))
    await append(store, StreamId("d"), new_side(SessionInfoChanged(cwd="/p")))

    assert names(await store.sessions(cwd="/p")) == ["d", "a"]
    assert await store.sessions(cwd="/P") == await store.sessions(cwd="") == []


async def test_query_finds_names_and_ids_in_any_letter_case(store: SessionStore) -> None:
    await create(store, header("one", title="Über die ÄNDERUNG"))
    await create(store, "two", said("straße zum MEER"))
    await create(store, "Three")

    for query, found in {
        "änder": ["one"],
        "ÜBER": ["one"],
        "STRASSE": ["two"],
        "meer": ["two"],
        "tHRE": ["Three"],
        "e": ["two", "one", "Three"],
        "": ["two", "one", "Three"],
        "%": [],
        "_": [],
        "absent": [],
    }.items():
        assert names(await store.sessions(query=query)) == found, query


async def test_list_query_matches_the_displayed_session_name(store: SessionStore) -> None:
    await create(store, header("a", title="Trip"), said("hidden by the title"))
    await create(store, header("b", title="Old"))
    await append(store, StreamId("b"), new_side(SessionInfoChanged(title="New")))

    assert await store.sessions(query="hidden") == await store.sessions(query="old") == []
    assert names(await store.sessions(query="new")) == ["b"]


async def test_list_filters_are_applied_before_the_limit(store: SessionStore) -> None:
    await create(store, header("a", created_at=1, cwd="/p", title="sought"))
    for number in range(5):
        await create(store, header(f"z{number}", created_at=9))
        await create(store, header(f"y{number}", created_at=9, origin="role"))

    assert names(await store.sessions(limit=1, cwd="/p")) == ["a"]
    assert names(await store.sessions(limit=1, query="SOUGHT")) == ["a"]
    assert len(await store.sessions(limit=6)) == 6


# ---------------------------------------------------------------- the feed


@pytest.mark.needs("multi_stream_commit")
async def test_entries_of_all_streams_are_read_in_commit_order(
    store: SessionStore,
) -> None:
    await create(store, "a", said("1"), said("2"))
    await create(store, "b", said("3"))
    await append(store, StreamId("a"), labelled("x", None))
    writes = (
        Write(stream=StreamId("b"), entries=(said("4"),)),
        Write(stream=StreamId("a"), entries=(said("5"),)),
    )
    await store.commit(Commit(writes=writes, at=START_MS))

    feed = await store.feed(0)

    assert ids([item.entry for item in feed]) == ["a/0", "a/1", "b/0", "a/2", "b/1", "a/3"]
    positions = [item.position for item in feed]
    assert positions == sorted(set(positions))
    assert positions[0] > 0
    assert await store.position() == positions[-1]


async def test_entries_of_all_streams_can_be_read_after_any_position(store: SessionStore) -> None:
    await create(store, S, *(said(str(number)) for number in range(7)))
    whole = await store.feed(0)

    for index, item in enumerate(whole):
        assert await store.feed(item.position) == whole[index + 1 :]
        assert await store.feed(item.position, 2) == whole[index + 1 : index + 3]
    assert await store.feed(0, 3) == whole[:3]
    assert await store.feed(whole[-1].position + 100) == []


async def test_empty_namespace_is_at_position_zero(store: SessionStore) -> None:
    assert await store.position() == 0
    assert await store.feed(0) == []

    await create(store)
    assert await store.position() == 0


@pytest.mark.needs("pointer_fork")
async def test_fork_does_not_advance_the_store_position(store: SessionStore) -> None:
    await create(store, S, said("a"))
    before = await store.position()

    await fork(store, S, "f")

    assert await store.position() == before


# ---------------------------------------------------------------- wake-ups


async def woken(changes: AsyncIterator[None]) -> None:
    """Wait for a wake-up; a store that never sends a wake-up fails the test."""
    await asyncio.wait_for(anext(changes), 60)


async def test_commit_of_this_handle_wakes_a_waiter(store: SessionStore) -> None:
    changes = store.changes()

    await create(store)

    await woken(changes)


async def test_commit_of_another_handle_wakes_a_waiter(data: Data) -> None:
    here, there = await data.open(), await data.open()
    await create(there)
    changes = here.changes()
    waiting = asyncio.create_task(woken(changes))
    await asyncio.sleep(0)

    await append(there, S, said("a"))

    await waiting
    assert texts(await here.entries(S)) == ["a"]


async def test_reading_after_each_wake_up_misses_no_entry(data: Data) -> None:
    here, there = await data.open(), await data.open()
    await create(there)
    changes = here.changes()
    read: list[str] = []

    async def write() -> None:
        for number in range(20):
            await append(there, S, said(str(number)))
            await asyncio.sleep(0)

    writing = asyncio.create_task(write())
    after = 0
    while len(read) < 20:
        await woken(changes)
        for item in await here.feed(after):
            read += texts([item.entry])
            after = item.position
    await writing

    assert read == [str(number) for number in range(20)]


async def test_commit_wakes_every_task_that_waits_for_changes(store: SessionStore) -> None:
    waiters = [store.changes() for _ in range(3)]

    await create(store)

    await asyncio.gather(*(woken(changes) for changes in waiters))


# ---------------------------------------------------------------- blobs


def with_blobs(*contents: bytes, stream: str = "s") -> Commit:
    write = Write(stream=StreamId(stream), create=header(stream), entries=(said("see"),))
    return Commit(writes=(write,), at=START_MS, blobs=contents)


async def test_blob_can_be_read_by_its_hash(data: Data) -> None:
    store, other = await data.open(), await data.open()
    contents = (b"", b"\x00\xff" * 500, b"x" * 1_000_000)

    await store.commit(with_blobs(*contents))

    for content in contents:
        assert await other.blob(blob_hash(content)) == content
    assert (await store.maintenance.verify()).problems == ()


async def test_equal_blobs_are_stored_once(store: SessionStore) -> None:
    content = bytes(range(256)) * 400
    await store.commit(with_blobs(content))
    before = (await store.info()).payload_bytes

    await store.commit(with_blobs(content, content, stream="t"))

    assert (await store.info()).payload_bytes - before < 1000
    assert await store.blob(blob_hash(content)) == content


async def test_missing_blob_raises_not_found(store: SessionStore) -> None:
    await store.commit(with_blobs(b"here"))

    for digest in (blob_hash(b"absent"), "", "sha256-", "s/0"):
        with case(digest):
            with pytest.raises(EntryNotFound) as refused:
                await store.blob(digest)

            assert refused.value.entry == digest


# ---------------------------------------------------------------- namespaces


async def test_namespace_shows_no_data_of_another_namespace(data: Data) -> None:
    ours, theirs = await data.open("ours"), await data.open("theirs")
    secret = b"a secret content"
    await create(theirs, header("s", title="secret"), said("secret", alias="abc"))
    await create(theirs, "only-theirs", said("x"))
    await theirs.commit(with_blobs(secret, stream="t"))
    await create(ours, S, said("ours"))

    assert texts(await ours.entries(S)) == ["ours"]
    assert await ours.aliases(S) == {}
    assert names(await ours.sessions(scope="all", limit=None)) == ["s"]
    assert ids([item.entry for item in await ours.feed(0)]) == ["s/0"]
    assert await ours.sessions(query="secret") == []
    with pytest.raises(SessionNotFound):
        await ours.find("only")
    with pytest.raises(SessionNotFound):
        await ours.state(StreamId("only-theirs"))
    with pytest.raises(SessionNotFound):
        await append(ours, StreamId("only-theirs"), said("intruder"))
    with pytest.raises(EntryNotFound):
        await ours.blob(blob_hash(secret))
    assert (await ours.info()).streams == 1
    assert (await ours.maintenance.verify()).entries == 1
    assert await ours.position() == (await ours.feed(0))[-1].position


async def test_equal_stream_ids_in_two_namespaces_do_not_conflict(
    data: Data,
) -> None:
    ours, theirs = await data.open("ours"), await data.open("theirs")
    for store, word in ((ours, "o"), (theirs, "t")):
        await create(store, S, said(word), labelled(word, Sibling(0)))
    lease = await ours.acquire_lease(S, "me", 1000)

    await append(theirs, S, said("free"))
    await fork(theirs, S, "f", said("forked"))

    assert (await theirs.state(S)).epoch == 0
    assert (await theirs.acquire_lease(S, "you", 1000)).epoch == lease.epoch
    assert (await ours.state(S)).head == 1
    assert texts(await theirs.tree(StreamId("f"))) == ["t", "free", "forked"]
    for store in (ours, theirs):
        assert (await store.maintenance.verify()).problems == ()


async def test_namespace_names_are_matched_literally(data: Data) -> None:
    stores = [await data.open(name) for name in ("a", "A", "a/b", "ä", "%", "")]
    for number, store in enumerate(stores):
        await create(store, S, said(str(number)))

    for number, store in enumerate(stores):
        assert texts(await store.entries(S)) == [str(number)]
        assert (await store.info()).streams == 1


async def test_new_namespace_is_empty(data: Data) -> None:
    ours, theirs = await data.open("ours"), await data.open("theirs")
    await create(theirs, S, *(said(str(number)) for number in range(5)))

    assert await ours.position() == 0
    assert await ours.feed(0) == []
    with pytest.raises(SessionNotFound):
        await ours.entries(S, EMPTY)
