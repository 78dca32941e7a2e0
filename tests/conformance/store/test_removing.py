"""Erasure on backends that can only remove a session as a whole."""

from __future__ import annotations

import pytest

from perdure.errors import EntryNotFound, SessionHasForks, SessionNotFound
from perdure.session.codec import new_tree
from perdure.session.entries import LEAF
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.messages import MediaPart, user
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.erase import Certificate, EraseRequest, EraseScope, ForkPolicy
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import (
    MINUTE_MS,
    S,
    append,
    create,
    fork,
    header,
    replied,
    said,
    texts,
    turn_started,
)
from tests.fakes.clock import START_MS


@pytest.fixture(autouse=True)
def removes(store: SessionStore) -> None:
    if store.capabilities.erase:
        pytest.skip("it erases what is in a stream that stays (test_erasing)")


async def erase(
    store: SessionStore,
    name: str | None = S,
    *,
    scope: EraseScope = "session",
    forks: ForkPolicy = "refuse",
    id: str = "e1",
) -> Certificate:
    request = EraseRequest(id=id, scope=scope, by="me", at=START_MS, name=name, forks=forks)
    return await store.retention.erase(request)


async def test_removal_deletes_a_session_and_leaves_other_sessions_unchanged(
    store: SessionStore,
) -> None:
    await create(store, S, said("a", alias="x"), replied("b"))
    await create(store, "t", said("stays"))

    certificate = await erase(store)

    with pytest.raises(SessionNotFound):
        await store.state(S)
    assert [info.id for info in await store.sessions(scope="all")] == ["t"]
    assert texts(await store.entries(StreamId("t"))) == ["stays"]
    (session,) = certificate.sessions
    assert (session.erased, session.digests, session.hash_after) == (((0, 1),), 0, None)
    assert certificate.is_complete
    assert (await store.maintenance.verify()).problems == ()
    assert await store.retention.erasures() == [certificate]
    assert await erase(store, id="e2") == certificate


async def test_removal_deletes_all_unshared_data_of_a_session(
    store: SessionStore,
) -> None:
    own, shared = b"own" * 100, b"shared" * 100
    for stream, contents in (("s", (own, shared)), ("t", (shared,))):
        named = tuple(new_tree(user(f"see {blob_hash(content)}"), LEAF) for content in contents)
        write = Write(stream=StreamId(stream), create=header(stream), entries=named)
        await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))
    await append(store, S, said("keyed"), key="k")
    lease = await store.acquire_lease(S, "me", MINUTE_MS)
    await append(store, S, turn_started(), lease=lease)
    await store.put_partial(lease, 0, b"half")

    removed = (await erase(store)).removed

    assert (removed.contents, removed.content_bytes) == (1, len(own))
    assert (removed.partial_answers, removed.idempotency_keys) == (1, 1)
    assert await store.blob(blob_hash(shared)) == shared
    with pytest.raises(EntryNotFound):
        await store.blob(blob_hash(own))
    await append(store, StreamId("t"), said("new"), key="k")


async def test_removal_keeps_pictures_of_other_sessions(store: SessionStore) -> None:
    own, shared = b"\x89PNG own", b"\x89PNG shared"
    for stream, contents in (("s", (own, shared)), ("t", (shared,))):
        shown = [MediaPart("image/png", f"media://{blob_hash(c)}", len(c)) for c in contents]
        new = (new_tree(user("look", *shown), LEAF),)
        write = Write(stream=StreamId(stream), create=header(stream), entries=new)
        await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))

    removed = (await erase(store)).removed

    assert (removed.contents, removed.content_bytes) == (1, len(own))
    assert await store.blob(blob_hash(shared)) == shared
    with pytest.raises(EntryNotFound):
        await store.blob(blob_hash(own))


async def test_id_of_a_removed_session_can_be_reused(
    store: SessionStore,
) -> None:
    await create(store, S, said("old"), said("older"))
    await create(store, "t", said("b"))
    before = await store.position()
    await erase(store)

    await create(store, S, said("new"))

    feed = await store.feed(0)
    assert [(each.entry.stream, *texts([each.entry])) for each in feed] == [
        ("t", "b"),
        ("s", "new"),
    ]
    assert feed[-1].position > before
    assert (await store.maintenance.verify()).problems == ()


async def test_copied_fork_is_kept_when_the_origin_is_removed(store: SessionStore) -> None:
    await create(store, S, said("a"))
    f = await fork(store, S, "f", said("b"))
    with pytest.raises(SessionHasForks):
        await erase(store)

    certificate = await erase(store, forks="keep")

    assert [copy.session for copy in certificate.copies if copy.kind == "fork"] == ["f"]
    assert texts(await store.branch(f, EntryId("f/1"))) == ["a", "b"]
    assert (await store.maintenance.verify()).problems == ()


async def test_removal_by_subject_deletes_all_its_sessions(store: SessionStore) -> None:
    await create(store, StreamHeader(S, START_MS, subject="ann"), said("a"))
    await fork(store, S, "f", said("b"))
    child = StreamHeader(StreamId("c"), START_MS, origin="subagent", parent=S)
    await create(store, child, said("c"))
    await create(store, StreamHeader(StreamId("t"), START_MS, subject="bob"), said("d"))

    certificate = await erase(store, "ann", scope="subject")

    assert {session.session for session in certificate.sessions} == {"s", "f", "c"}
    assert [info.id for info in await store.sessions(scope="all")] == ["t"]
