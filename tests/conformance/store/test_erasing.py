"""Erasing: the removed data, the remaining data, the errors; `verify` still accepts the log."""

from __future__ import annotations

import msgspec
import pytest

from perdure.errors import (
    EntryNotFound,
    Erased,
    LeaseLost,
    SessionHasForks,
    SessionNotFound,
    Unsupported,
)
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import LEAF, NewEntry
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.kinds import BranchSummary, Compaction
from perdure.session.messages import user
from perdure.session.notes import ImportSource, SessionExported
from perdure.session.search.values import SearchQuery
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import Certificate, EraseRequest, EraseScope, ForkPolicy
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    MINUTE_MS,
    S,
    append,
    append_one,
    create,
    fork,
    header,
    labelled,
    moved,
    replied,
    said,
    texts,
    turn_started,
)
from tests.fakes.clock import START_MS

pytestmark = pytest.mark.needs("erase")


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


async def bodies(store: SessionStore, stream: StreamId = S) -> list[bytes]:
    return [entry.body for entry in await store.entries(stream) if entry.kind != "content_erased"]


async def sound(store: SessionStore) -> int:
    """Check that the store is sound; return the number of erased entries."""
    found = await store.maintenance.verify()
    assert found.problems == ()
    return found.erased


# ---------------------------------------------------------------- one session


async def test_erased_session_has_no_entry_bodies_and_passes_verification(
    store: SessionStore,
) -> None:
    await create(store, header("s", title="Trip", cwd="/tmp"), said("a", alias="x"), replied("b"))
    await create(store, "t", said("stays"))

    certificate = await erase(store)

    assert await bodies(store) == [b"", b""]
    assert await sound(store) == 2
    assert texts(await store.entries(StreamId("t"))) == ["stays"]
    assert certificate.is_complete
    assert (certificate.entries, certificate.removed.foreign_ids) == (2, 1)


async def test_header_and_list_contain_no_data_of_an_erased_session(store: SessionStore) -> None:
    born = StreamHeader(S, START_MS, title="Trip", cwd="/x", metadata={"a": 1}, subject="ann")
    await create(store, born, said("a"))

    await erase(store)

    state = await store.state(S)
    assert state.header == StreamHeader(S, START_MS)
    assert (state.info.status, state.info.name, state.info.cwd) == ("erased", "", None)
    assert await store.sessions(scope="all") == []
    assert await store.aliases(S) == {}


async def test_erased_session_cannot_be_continued(store: SessionStore) -> None:
    await create(store, S, said("a"))
    lease = await store.acquire_lease(S, "me", MINUTE_MS)
    await append(store, S, turn_started(), lease=lease)
    await store.put_partial(lease, 0, b"half")

    certificate = await erase(store)

    assert certificate.removed.partial_answers == 1
    assert await store.partial(S) is None
    assert (await store.state(S)).open_turn is None
    for attempt in (
        append(store, S, said("b")),
        append(store, S, said("b"), lease=lease),
        store.acquire_lease(S, "you", MINUTE_MS),
        fork(store, S, "f"),
    ):
        with pytest.raises(Erased):
            await attempt
    with pytest.raises(LeaseLost):
        await store.renew_lease(lease, MINUTE_MS)
    assert await sound(store) == 2


async def test_erasure_certificate_lists_the_removed_contents(store: SessionStore) -> None:
    await create(store, S, said("hello"), replied("hi"))
    before = await store.state(S)

    certificate = await erase(store)

    (session,) = certificate.sessions
    assert (session.session, session.is_whole, session.erased) == (S, True, ((0, 1),))
    assert (session.entries, session.digests, session.head) == (2, 2, 2)
    assert session.hash_before == before.hash.hex()
    assert session.hash_after == (await store.state(S)).hash.hex() != session.hash_before
    assert (certificate.by, certificate.at, certificate.scope) == ("me", START_MS, "session")
    assert await store.retention.erasures() == [certificate]
    assert msgspec.json.decode(msgspec.json.encode(certificate), type=Certificate) == certificate


async def test_log_records_each_erasure_and_its_author(store: SessionStore) -> None:
    await create(store, S, said("a"))

    await erase(store)

    last = (await store.entries(S))[-1]
    assert last.kind == "content_erased"
    assert msgspec.json.decode(last.body) == {
        "certificate": "e1",
        "by": "me",
        "ranges": [[0, 0]],
        "is_whole": True,
    }


async def test_second_erasure_gives_the_same_certificate(store: SessionStore) -> None:
    await create(store, S, said("a"))
    first = await erase(store)

    assert await erase(store, id="e2") == first
    assert await store.retention.erasures() == [first]


async def test_clients_cannot_append_erasure_entries(store: SessionStore) -> None:
    await create(store, S, said("a"))
    await erase(store)
    claim = (await store.entries(S))[-1]
    await create(store, "t", said("a"))

    with pytest.raises(Exception, match="only an erasure"):
        await append(store, StreamId("t"), NewEntry(claim.kind, claim.body, lane="side"))


async def test_missing_session_cannot_be_erased(store: SessionStore) -> None:
    with pytest.raises(SessionNotFound):
        await erase(store, "nobody")


async def test_erasure_keeps_idempotency_keys_of_other_sessions(
    store: SessionStore,
) -> None:
    await create(store, S)
    await create(store, "t")
    await append(store, S, said("a"), key="k1")
    await append(store, StreamId("t"), said("b"), key="k2")
    writes = tuple(Write(stream=StreamId(id_), entries=(said("c"),)) for id_ in ("t", "s"))
    await store.commit(Commit(writes=writes, at=START_MS + 5, idempotency_key="k3"))

    certificate = await erase(store)

    assert certificate.removed.idempotency_keys == 2
    await append(store, StreamId("t"), said("b"), key="k2")
    assert len(await store.entries(StreamId("t"))) == 2  # the key was known
    await append(store, StreamId("t"), said("new"), key="k3")
    assert len(await store.entries(StreamId("t"))) == 3


async def test_erasure_keeps_the_key_of_a_commit_between_two_of_the_session(
    store: SessionStore,
) -> None:
    other = StreamId("t")
    await create(store, S)
    await create(store, "t")
    await append(store, S, said("a"), at=START_MS)
    await append(store, other, said("b"), key="k", at=START_MS)
    await append(store, S, said("c"), at=START_MS + 1)

    certificate = await erase(store)

    assert certificate.removed.idempotency_keys == 0
    await append(store, other, said("b"), key="k", at=START_MS)
    assert texts(await store.entries(other)) == ["b"]


async def test_erasure_removes_contents_unless_shared(store: SessionStore) -> None:
    own, shared = b"own" * 100, b"shared" * 100
    for stream, contents in (("s", (own, shared)), ("t", (shared,))):
        named = tuple(new_tree(user(f"see {blob_hash(content)}"), LEAF) for content in contents)
        write = Write(stream=StreamId(stream), create=header(stream), entries=named)
        await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))

    certificate = await erase(store)

    assert (certificate.removed.contents, certificate.removed.content_bytes) == (1, len(own))
    assert await store.blob(blob_hash(shared)) == shared
    with pytest.raises(EntryNotFound):
        await store.blob(blob_hash(own))


async def test_erasure_certificate_lists_the_copies_outside_the_store(store: SessionStore) -> None:
    source = ImportSource("pi", "old.jsonl", blob_hash(b""), 0, 0, 1, 1)
    exported = SessionExported("/tmp/trip.yaml", "workflow")
    await create(store, S, said("a"), new_side(source), new_side(exported))

    certificate = await erase(store)

    named = {copy.kind: copy.what for copy in certificate.copies}
    assert "old.jsonl" in named["original"]
    assert "/tmp/trip.yaml" in named["export"]
    (kept,) = await store.retention.erasures()
    assert b"trip.yaml" not in msgspec.json.encode(kept)
    assert [copy.kind for copy in kept.copies] == [copy.kind for copy in certificate.copies]


async def test_search_finds_no_text_of_an_erased_session(store: SessionStore) -> None:
    born = header("s", title="marmalade")
    await create(store, born, said("marmalade"), labelled("marmalade", EntryId("s/0")))
    await create(store, "t", said("marmalade too"))
    assert len(await store.search.hits(SearchQuery(text="marmalade"))) == 4

    await erase(store)

    hits = await store.search.hits(SearchQuery(text="marmalade"))
    assert [hit.stream for hit in hits] == ["t"]
    assert await sound(store) == 2


async def test_positions_of_erased_entries_are_not_reused(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"))
    await create(store, "t", said("b"))
    await erase(store)
    newest = await store.position()
    await append(store, StreamId("t"), said("c"))

    feed = await store.feed(0)

    assert [(each.entry.stream, each.entry.kind) for each in feed] == [
        ("t", "message"),
        ("s", "content_erased"),
        ("t", "message"),
    ]
    assert feed[-1].position > newest


# ---------------------------------------------------------------- forks


async def test_erasure_is_rejected_if_session_has_forks(store: SessionStore) -> None:
    await create(store, S, said("a"))
    await fork(store, S, "f")

    with pytest.raises(SessionHasForks) as refused:
        await erase(store)

    assert refused.value.forks == ("f",)
    assert await sound(store) == 0


async def test_forks_keep_shared_entries_on_request(store: SessionStore) -> None:
    await create(store, S, said("a"), replied("b"), said("c"), labelled("here", EntryId("s/1")))
    f = await fork(store, S, "f", said("of f"), at=EntryId("s/1"), scope="path")
    window = await store.context_window(f, EntryId("f/0"))

    certificate = await erase(store, forks="keep")

    assert texts(await store.branch(f, EntryId("f/0"))) == ["a", "b", "of f"]
    assert await store.context_window(f, EntryId("f/0")) == window
    assert [note.kind for note in await store.notes(f, ("label",))] == ["label"]
    assert [bool(body) for body in await bodies(store)] == [True, True, False, True]
    (session,) = certificate.sessions
    assert (session.erased, session.kept) == (((2, 2),), ((0, 1), (3, 3)))
    assert session.kept_for == ("f",)
    assert [copy.session for copy in certificate.copies if copy.kind == "fork"] == ["f"]
    assert await sound(store) == 1
    await append(store, f, said("goes on"))
    await fork(store, f, "g")


async def test_entries_kept_for_a_fork_are_erased_with_the_fork(store: SessionStore) -> None:
    await create(store, S, said("a"), replied("b"))
    f = await fork(store, S, "f", at=EntryId("s/0"), scope="path")
    g = await fork(store, f, "g", said("of g"))
    await erase(store, forks="keep")
    await erase(store, f, forks="keep", id="e2")
    assert texts(await store.branch(g, EntryId("g/0"))) == ["a", "of g"]

    await erase(store, forks="erase", id="e3")

    assert await bodies(store) == [b"", b""]
    assert await bodies(store, g) == [b""]
    assert await sound(store) == 3


async def test_forks_are_erased_on_request(store: SessionStore) -> None:
    await create(store, S, said("a"))
    f = await fork(store, S, "f", said("b"))
    g = await fork(store, f, "g", said("c"))

    certificate = await erase(store, forks="erase")

    assert {session.session for session in certificate.sessions} == {"s", "f", "g"}
    assert await bodies(store, g) == [b""]
    assert await sound(store) == 3


async def test_erasing_a_fork_keeps_entries_shared_with_another_fork(store: SessionStore) -> None:
    await create(store, S, said("a"), said("b"))
    f = await fork(store, S, "f", said("c"), said("d"))
    g = await fork(store, f, "g", said("e"), at=EntryId("f/0"), scope="path")

    await erase(store, f, forks="keep")

    assert texts(await store.branch(g, EntryId("g/0"))) == ["a", "b", "c", "e"]
    assert [bool(body) for body in await bodies(store, f)] == [True, False]
    assert await sound(store) == 1


async def test_erasure_of_a_session_includes_its_child_sessions(store: SessionStore) -> None:
    await create(store, S, said("a"))
    child = StreamHeader(StreamId("c"), START_MS, origin="subagent", parent=S)
    await create(store, child, said("b"))
    other = StreamHeader(StreamId("o"), START_MS, parent=S)
    await create(store, other, said("c"))

    with pytest.raises(SessionHasForks):
        await erase(store)
    certificate = await erase(store, forks="keep")

    assert {session.session for session in certificate.sessions} == {"s", "c"}
    assert texts(await store.entries(StreamId("o"))) == ["c"]


# ---------------------------------------------------------------- summaries


async def test_summary_of_an_erased_branch_is_erased_in_forks(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"), said("secret plan"))
    told = new_tree(BranchSummary("there was a secret plan", EntryId("s/0")), EntryId("s/0"))
    await append(store, S, told, said("goes on"))
    f = await fork(store, S, "f", at=EntryId("s/3"), scope="path")

    await erase(store, forks="keep")

    assert [bool(body) for body in await bodies(store)] == [True, False, False, True]
    assert texts([e for e in await store.branch(f, EntryId("s/3")) if not e.is_erased]) == [
        "a",
        "goes on",
    ]
    assert await sound(store) == 2


async def test_summary_based_on_an_erased_summary_is_erased(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"), said("secret"))
    told = new_tree(BranchSummary("a secret", EntryId("s/0")), EntryId("s/0"))
    await append(store, S, told, said("b"))
    f = await fork(store, S, "f", at=EntryId("s/3"), scope="path")
    short = new_tree(Compaction("all of it, and a secret", first_kept=EntryId("s/3")))
    await append(store, f, short, said("c"))

    certificate = await erase(store, forks="keep")

    of_fork = {session.session: session for session in certificate.sessions}[f]
    assert (of_fork.is_whole, of_fork.erased) == (False, ((0, 0),))
    window = await store.context_window(f, EntryId("f/1"))
    assert window.state.compaction is None
    assert texts([e for e in window.entries if not e.is_erased]) == ["a", "b", "c"]
    assert await sound(store) == 3


async def test_summary_of_entries_kept_by_a_fork_is_not_erased(store: SessionStore) -> None:
    await create(store, S, said("a"), said("b"))
    short = new_tree(Compaction("a and b", first_kept=EntryId("s/1")))
    await append(store, S, short, said("c"), said("d"))
    f = await fork(store, S, "f", at=EntryId("s/3"), scope="path")

    await erase(store, forks="keep")

    window = await store.context_window(f, EntryId("s/3"))
    assert window.state.compaction is not None
    assert not window.state.compaction.is_erased


# ---------------------------------------------------------------- subject, namespace


async def test_erasing_a_subject_erases_all_sessions_of_the_subject(store: SessionStore) -> None:
    await create(store, StreamHeader(S, START_MS, subject="ann"), said("a"))
    await fork(store, S, "f", said("b"))
    await create(store, StreamHeader(StreamId("t"), START_MS, subject="bob"), said("c"))

    certificate = await erase(store, "ann", scope="subject")

    assert {session.session for session in certificate.sessions} == {"s", "f"}
    assert b"ann" not in msgspec.json.encode(await store.retention.erasures())
    assert await store.sessions(subject="ann", scope="all") == []
    assert (await store.state(S)).info.subject is None
    assert [info.subject for info in await store.sessions()] == ["bob"]
    assert texts(await store.entries(StreamId("t"))) == ["c"]
    assert await sound(store) == 2
    again = await erase(store, "ann", scope="subject", id="e2")
    assert again.sessions == ()


async def test_erasing_a_namespace_leaves_other_namespaces_unchanged(data: Data) -> None:
    here, there = await data.open("here"), await data.open("there")
    for store in (here, there):
        await create(store, S, said("a"))
        await create(store, "t", said("b"))

    certificate = await erase(here, None, scope="namespace")

    assert len(certificate.sessions) == 2
    assert await sound(here) == 2
    assert await sound(there) == 0
    assert texts(await there.entries(S)) == ["a"]
    assert await there.retention.erasures() == []


async def test_unused_namespace_can_be_erased(store: SessionStore) -> None:
    certificate = await erase(store, None, scope="namespace")

    assert (certificate.sessions, certificate.is_complete) == ((), True)
    assert await store.retention.erasures() == [certificate]


async def test_large_session_is_erased_completely(
    store: SessionStore,
) -> None:
    await create(store, S)
    for _ in range(4):
        await append(store, S, *[said("x" * 2_000) for _ in range(200)])
    await append(store, S, moved(EntryId("s/3")))

    certificate = await erase(store)

    assert certificate.entries == 800
    assert await sound(store) == 800
    await append_one(store, await create(store, "t"), said("b"))


async def test_erasure_certificate_lists_backups(store: SessionStore) -> None:
    try:
        await store.retention.remember_backup(Backup("/b/one", 0))
    except Unsupported:
        pytest.skip("it has no backups")
    await create(store, S, said("a"))
    for at, path in ((1, "/b/one"), (2, "/b/two"), (3, "/b/one")):
        await store.retention.remember_backup(Backup(path, at))
    assert await store.retention.backups() == [Backup("/b/two", 2), Backup("/b/one", 3)]

    certificate = await erase(store)

    named = [copy.what for copy in certificate.copies if copy.at is not None]
    assert named == ["the backup /b/two", "the backup /b/one"]
