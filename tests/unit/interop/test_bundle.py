from __future__ import annotations

from typing import Literal

import pytest

from perdure.errors import SessionNotFound
from perdure.interop.bundle import bundle_of
from perdure.session.codec import body_of, new_side, new_tree
from perdure.session.entries import Entry
from perdure.session.fold import labels_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.kinds import Compaction
from perdure.session.messages import user
from perdure.session.notes import ImportSource, Label, LeafMoved, SessionInfoChanged, source_of
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import START_MS
from tests.fakes.sources import empty_store, imported, pi_file
from tests.fakes.streams import append, create, say

S, FORK, SECOND = StreamId("s"), StreamId("fork"), StreamId("second")


async def fork(
    store: MemoryStore,
    origin: StreamId,
    into: StreamId,
    at: EntryId | None,
    *,
    scope: Literal["tree", "path"] = "path",
    title: str | None = None,
) -> None:
    point = ForkPoint(origin, at, (await store.state(origin)).head, scope)
    header = StreamHeader(into, START_MS + 1, fork=point, title=title)
    await store.commit(Commit(writes=(Write(stream=into, create=header),), at=START_MS))


def texts(entries: tuple[Entry, ...]) -> list[str]:
    return [entry.message.text for entry in entries if entry.message is not None]


async def test_exported_session_contains_all_entries_aliases_and_blobs() -> None:
    store = empty_store()
    stream = (await imported(store, pi_file("v3.jsonl"))).session
    bundle = await bundle_of(store, stream)
    assert bundle.header == (await store.state(stream)).header
    assert list(bundle.entries) == await store.entries(stream)
    assert bundle.aliases == await store.aliases(stream)
    assert pi_file("v3.jsonl") in bundle.blobs
    assert len(bundle.blobs) == 2


async def test_text_that_resembles_a_blob_name_adds_no_blob() -> None:
    store = empty_store()
    await create(store)
    await say(store, "sha256-" + "0" * 64)
    assert (await bundle_of(store, S)).blobs == ()


async def test_missing_session_raises_not_found() -> None:
    with pytest.raises(SessionNotFound):
        await bundle_of(empty_store(), S)


async def test_path_fork_is_exported_without_other_branches() -> None:
    store = empty_store()
    await create(store)
    one, two = await say(store, "one", "two")
    await append(store, new_side(LeafMoved(one.id)), new_tree(user("other branch")))
    await append(store, new_side(Label("first"), one.id), new_side(Label("second"), two.id))
    await fork(store, S, FORK, one.id)
    await say(store, "mine", stream=FORK)
    bundle = await bundle_of(store, FORK)
    assert texts(bundle.entries) == ["one", "mine"]
    assert labels_of(bundle.entries) == {"fork/0": "first"}
    assert [entry.seq for entry in bundle.entries] == [0, 1, 2]
    assert bundle.entries[-1].parent_id == "fork/0"
    assert bundle.header.fork is None
    assert bundle.header.parent == S


async def test_exported_tree_fork_has_the_fork_point_as_leaf() -> None:
    store = empty_store()
    await create(store)
    one, _two = await say(store, "one", "two")
    await fork(store, S, FORK, one.id, scope="tree")
    bundle = await bundle_of(store, FORK)
    assert texts(bundle.entries) == ["one", "two"]
    assert body_of(bundle.entries[-1]) == LeafMoved(EntryId("fork/0"))


async def test_references_to_shared_entries_are_renamed() -> None:
    store = empty_store()
    await create(store)
    (one,) = await say(store, "one")
    (compaction,) = await append(store, new_tree(Compaction("sum", one.id)))
    await fork(store, S, FORK, compaction.id)
    bundle = await bundle_of(store, FORK)
    assert body_of(bundle.entries[1]) == Compaction("sum", EntryId("fork/0"))


async def test_fork_of_a_fork_is_exported_as_one_log() -> None:
    store = empty_store()
    await create(store)
    (one,) = await say(store, "one")
    await fork(store, S, FORK, one.id)
    (two,) = await say(store, "two", stream=FORK)
    await fork(store, FORK, SECOND, two.id)
    await say(store, "three", stream=SECOND)
    bundle = await bundle_of(store, SECOND)
    assert texts(bundle.entries) == ["one", "two", "three"]
    assert [entry.parent_id for entry in bundle.entries] == [None, "second/0", "second/1"]


async def test_fork_inherits_the_title_at_its_fork_point() -> None:
    store = empty_store()
    await create(store)
    (one,) = await say(store, "one")
    await append(store, new_side(SessionInfoChanged(title="Before", cwd="/x")))
    await fork(store, S, FORK, one.id)
    await append(store, new_side(SessionInfoChanged(title="After")))
    await append(store, new_side(SessionInfoChanged(title="Own")), stream=FORK)
    bundle = await bundle_of(store, FORK)
    assert (bundle.header.title, bundle.header.cwd) == ("Before", "/x")
    await fork(store, S, SECOND, one.id, title="Given")
    assert (await bundle_of(store, SECOND)).header.title == "Given"


async def test_session_of_a_path_fork_is_exported_without_the_imported_file() -> None:
    store = empty_store()
    origin = (await imported(store, pi_file("v3.jsonl"))).session
    await fork(store, origin, FORK, await store.resolve(origin, "b0000003"))
    bundle = await bundle_of(store, FORK)
    assert all(source_of(entry.body) is None for entry in bundle.entries)
    assert pi_file("v3.jsonl") not in bundle.blobs
    assert set(bundle.aliases) == {"b0000001", "b0000002", "b0000003"}


async def test_exported_tree_fork_contains_the_import_original() -> None:
    store = empty_store()
    origin = (await imported(store, pi_file("v3.jsonl"))).session
    await fork(store, origin, FORK, (await store.state(origin)).leaf, scope="tree")
    bundle = await bundle_of(store, FORK)
    [part] = [entry for entry in bundle.entries if entry.kind == ImportSource.kind]
    sources = [source_of(entry.body) for entry in bundle.entries]
    assert {source.part for source in sources if source is not None} == {part.seq}
    assert pi_file("v3.jsonl") in bundle.blobs
