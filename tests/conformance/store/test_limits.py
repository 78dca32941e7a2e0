"""Retention and quotas, on every backend that supports them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest

from perdure.client.clock import Outside
from perdure.client.store import Store
from perdure.errors import QuotaExceeded, SessionNotFound, StoreUnavailable, Unsupported
from perdure.session.codec import new_side, new_tree
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import ModelChange
from perdure.session.ledger import TurnRequested
from perdure.session.messages import user
from perdure.session.notes import Answer, Question, QuestionWithdrawn
from perdure.session.search.values import SearchQuery
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.policy import Retention, expiring
from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    MINUTE_MS,
    S,
    append,
    create,
    erasure,
    fork,
    header,
    replied,
    said,
    texts,
    turn_started,
)
from tests.fakes.clock import START_MS, ManualClock, SeededRandom

T = StreamId("t")


@pytest.fixture
def retaining(store: SessionStore) -> SessionStore:
    return store


@pytest.fixture
def limiting(store: SessionStore) -> SessionStore:
    return store


# ---------------------------------------------------------------- retention


async def test_writability_check_does_not_change_the_store(
    retaining: SessionStore, data: Data
) -> None:
    await create(retaining)

    async def figures() -> tuple[int, int, int]:
        info = await retaining.info()
        return info.streams, info.entries, await retaining.position()

    before = await figures()

    await retaining.maintenance.check_writable()
    assert await retaining.retention.policy() == Retention()
    await retaining.retention.set_policy(Retention(max_idle_s=60))
    await retaining.maintenance.check_writable()

    assert await retaining.retention.policy() == Retention(max_idle_s=60)
    assert await figures() == before
    assert (await retaining.maintenance.verify()).is_ok
    await retaining.close()
    with pytest.raises(StoreUnavailable):
        await retaining.maintenance.check_writable()


async def test_retention_policy_is_stored_and_read_back(
    retaining: SessionStore, data: Data
) -> None:
    assert await retaining.retention.policy() == Retention()

    await retaining.retention.set_policy(Retention(max_idle_s=60, max_bytes=5))

    assert await retaining.retention.policy() == Retention(max_idle_s=60, max_bytes=5)
    other = await data.open("other")
    assert await other.retention.policy() == Retention()


async def test_removed_session_leaves_no_data(store: SessionStore, retaining: SessionStore) -> None:
    await create(store, T, said("stays, marmalade"))
    await create(store, header("s", title="marmalade"), said("marmalade", alias="x"))
    await append(store, S, new_tree(ModelChange("m:1")), replied("marmalade"), key="k")
    newest = await store.position()

    assert await retaining.retention.remove(S)

    with pytest.raises(SessionNotFound):
        await store.state(S)
    assert [each.entry.stream for each in await store.feed(0)] == ["t"]
    hits = await store.search.hits(SearchQuery(text="marmalade"))
    assert [hit.stream for hit in hits] == ["t"]
    assert (await store.maintenance.verify()).problems == ()
    assert await store.retention.erasures() == []
    await create(store, S, said("another"))
    await append(store, T, said("b"), key="k")
    assert (await store.feed(0))[-1].position > newest
    assert texts(await store.entries(S)) == ["another"]
    assert (await store.maintenance.verify()).problems == ()


async def test_session_with_another_head_than_expected_is_not_removed(
    store: SessionStore, retaining: SessionStore
) -> None:
    await create(store, S, said("a"), said("b"))
    (held,) = await retaining.retention.holdings()
    head = held.entries - 1
    assert head == (await store.state(S)).head
    await append(store, S, said("c"))
    assert not await retaining.retention.remove(S, expected_head=head)
    assert texts(await store.entries(S)) == ["a", "b", "c"]
    assert await retaining.retention.remove(S, expected_head=head + 1)


async def test_session_in_use_is_not_removed(store: SessionStore, retaining: SessionStore) -> None:
    for name in ("forked", "turn", "requested", "asked", "led", "answered", "withdrawn"):
        await create(store, name, said("a"))
    await fork(store, StreamId("forked"), "f")
    lease = await store.acquire_lease(StreamId("turn"), "me", MINUTE_MS)
    await append(store, StreamId("turn"), turn_started(), lease=lease)
    await store.release_lease(lease)
    await append(store, StreamId("requested"), new_side(TurnRequested(user("later"), MINUTE_MS)))
    await store.acquire_lease(StreamId("led"), "me", MINUTE_MS)
    question = Question("interrupted", "go on?", ("yes", "no"))
    for name in ("asked", "answered", "withdrawn"):
        await append(store, StreamId(name), new_side(question))
    withdrawal = new_side(QuestionWithdrawn("aborted"), EntryId("withdrawn/1"))
    await append(store, StreamId("withdrawn"), withdrawal)
    await append(store, StreamId("answered"), new_side(Answer("yes", "me"), EntryId("answered/1")))

    held = {each.stream: (each.hold, each.forks) for each in await retaining.retention.holdings()}

    sharing = ("f",) if store.capabilities.pointer_fork else ()
    assert held == {
        "forked": (None, sharing),
        "f": (None, ()),
        "turn": ("turn", ()),
        "requested": ("turn", ()),
        "led": ("lease", ()),
        "asked": ("question", ()),
        "answered": (None, ()),
        "withdrawn": (None, ()),
    }
    for name in ("turn", "requested", "led", "asked"):
        assert not await retaining.retention.remove(StreamId(name))
    assert await retaining.retention.remove(StreamId("forked")) is (not sharing)
    assert await retaining.retention.remove(StreamId("answered"))
    assert await retaining.retention.remove(StreamId("withdrawn"))
    assert await retaining.retention.remove(StreamId("f"))
    if sharing:
        assert await retaining.retention.remove(StreamId("forked"))
    assert (await store.maintenance.verify()).problems == ()


async def test_large_session_is_removed_in_steps_and_its_space_is_freed(
    store: SessionStore, retaining: SessionStore
) -> None:
    await create(store, T, said("stays"))
    chance = Random(0)
    for _ in range(3):
        await (append if await _is_there(store) else create)(
            store, S, *[said(chance.randbytes(1_500).hex()) for _ in range(400)]
        )
    before = (await store.info()).size_bytes

    plan = expiring(await retaining.retention.holdings(), Retention(max_bytes=1_000), START_MS)
    assert [(each.stream, each.why) for each in plan.expiring] == [("s", "bytes")]
    assert await retaining.retention.remove(S)
    await retaining.retention.give_back()

    assert (await store.info()).size_bytes < before - 2_000_000
    assert (await store.maintenance.verify()).problems == ()


async def _is_there(store: SessionStore) -> bool:
    return S in {info.id for info in await store.sessions()}


async def test_old_idempotency_keys_are_deleted(
    store: SessionStore, retaining: SessionStore
) -> None:
    await create(store, S)
    await append(store, S, said("old"), key="old", at=START_MS + 4)
    await append(store, S, said("new"), key="new", at=START_MS + 5)

    assert await retaining.retention.forget_keys(START_MS + 5) == 1

    await append(store, S, said("old"), key="old")
    await append(store, S, said("new"), key="new")
    assert texts(await store.entries(S)) == ["old", "new", "old"]


async def test_backup_at_the_same_path_replaces_the_earlier_one(store: SessionStore) -> None:
    try:
        await store.retention.remember_backup(Backup("/b/one", 1))
    except Unsupported:
        pytest.skip("it has no backups")
    for at, path in ((2, "/b/two"), (3, "/b/one")):
        await store.retention.remember_backup(Backup(path, at))
    assert await store.retention.backups() == [Backup("/b/two", 2), Backup("/b/one", 3)]


# ---------------------------------------------------------------- quotas


async def test_commit_over_quota_is_rejected_as_whole(
    store: SessionStore, limiting: SessionStore
) -> None:
    await create(store, S, said("a"))
    await limiting.retention.set_quota(Quota(max_entries=3, max_sessions=2))

    await append(store, S, said("b"), said("c"))
    with pytest.raises(QuotaExceeded) as refused:
        await append(store, S, said("d"))
    assert refused.value.quota == "entries"
    await create(store, T)
    with pytest.raises(QuotaExceeded) as refused:
        await create(store, "u")
    assert refused.value.quota == "sessions"

    assert texts(await store.entries(S)) == ["a", "b", "c"]
    assert (await limiting.retention.quota())[1].entries == 3
    assert (await store.maintenance.verify()).problems == ()
    await limiting.retention.set_quota(Quota())
    await append(store, S, said("d"))


async def test_byte_quota_counts_equal_contents_once(
    store: SessionStore, limiting: SessionStore
) -> None:
    await create(store, S)
    await limiting.retention.set_quota(Quota(max_bytes=100_000))
    content = bytes(range(256)) * 4

    for _ in range(2):
        write = Write(stream=S, entries=(said("a"),))
        await store.commit(Commit(writes=(write,), at=START_MS, blobs=(content,)))

    used = (await limiting.retention.quota())[1]
    await limiting.retention.set_quota(Quota())
    assert (await limiting.retention.quota())[1] == used
    assert 0 < used.bytes < 2 * len(content)


async def test_erased_content_does_not_count_in_quota(
    store: SessionStore, limiting: SessionStore
) -> None:
    await limiting.retention.set_quota(Quota(max_entries=3, max_sessions=1))
    await create(store, S, said("a"), said("b"), said("c"))

    await store.retention.erase(erasure(S))

    assert (await limiting.retention.quota())[1].sessions == 0
    await create(store, T, said("a"))
    used = (await limiting.retention.quota())[1]
    await limiting.retention.set_quota(Quota())
    assert (await limiting.retention.quota())[1] == used


async def test_removed_session_does_not_count_in_quota(
    store: SessionStore, limiting: SessionStore, retaining: SessionStore
) -> None:
    await create(store, S, said("a"), said("b"))
    await limiting.retention.set_quota(Quota(max_entries=2))

    await retaining.retention.remove(S)

    assert (await limiting.retention.quota())[1] == Usage(0, 0, 0)


@pytest.mark.needs("erase")
async def test_removed_session_that_was_erased_before_is_subtracted_once_from_usage(
    store: SessionStore, limiting: SessionStore, retaining: SessionStore
) -> None:
    for stream in (S, T):
        await create(store, stream, said("a"))
    await limiting.retention.set_quota(Quota(max_sessions=2))

    await store.retention.erase(erasure(S))
    assert await retaining.retention.remove(S, is_erased=True)

    assert (await limiting.retention.quota())[1].sessions == 1


async def test_quota_does_not_apply_to_other_namespaces(
    data: Data, store: SessionStore, limiting: SessionStore
) -> None:
    await create(store, S)
    await limiting.retention.set_quota(Quota(max_entries=0))
    again, other = await data.open(), await data.open("other")

    with pytest.raises(QuotaExceeded):
        await append(again, S, said("a"))
    await create(other, S, said("a"))


async def test_full_session_quota_still_allows_appends_to_existing_sessions(
    store: SessionStore, limiting: SessionStore
) -> None:
    await create(store, S)
    await create(store, T)

    await limiting.retention.set_quota(Quota(max_sessions=1))

    await append(store, S, said("goes on"))
    with pytest.raises(QuotaExceeded):
        await create(store, "u")


@pytest.mark.needs("erase")
async def test_memory_stream_does_not_count_as_session(store: SessionStore) -> None:
    handle = Store(store, Outside(ManualClock(), SeededRandom(3)))
    await create(store, S, said("a"))
    await create(store, T, said("a"))
    await store.retention.set_quota(Quota(max_sessions=1))

    await handle.memory.remember("likes tea", subject="ana")

    assert (await store.retention.quota())[1].sessions == 2
    with pytest.raises(QuotaExceeded):
        await create(store, "u")
    await handle.erase(subject="ana")
    assert (await store.retention.quota())[1].sessions == 2
    await store.retention.set_quota(Quota())
    assert (await store.retention.quota())[1].sessions == 2
    assert (await store.maintenance.verify()).problems == ()


async def test_concurrent_commits_never_exceed_quota(
    data: Data, store: SessionStore, limiting: SessionStore
) -> None:
    others = [store, await data.open(), await data.open()]
    for number in range(len(others)):
        await create(store, f"s{number}")
    await limiting.retention.set_quota(Quota(max_entries=10))

    async def fill(number: int) -> int:
        added = 0
        for _ in range(8):
            with suppress(QuotaExceeded):
                await append(others[number], StreamId(f"s{number}"), said("a"))
                added += 1
        return added

    added = await asyncio.gather(*map(fill, range(len(others))))

    assert sum(added) == 10
    assert (await limiting.retention.quota())[1].entries == 10
    assert sum([len(await store.entries(StreamId(f"s{n}"))) for n in range(len(others))]) == 10
