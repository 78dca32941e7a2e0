"""Forks on backends that copy the entries of the origin: each copy has an id of its own."""

from __future__ import annotations

from typing import Literal

import pytest

from perdure.errors import (
    EntryNotFound,
    InvalidEntry,
    InvalidParent,
    LeafConflict,
    SessionExists,
    SessionNotFound,
)
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry, Sibling
from perdure.session.fold import labels_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint
from perdure.session.kinds import BranchSummary, Compaction
from perdure.session.notes import CompactionUndone
from perdure.stores.protocol import EMPTY, Commit, Write
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import (
    S,
    append,
    append_one,
    create,
    fork,
    header,
    ids,
    labelled,
    replied,
    said,
    texts,
    turn_started,
)
from tests.fakes.clock import START_MS

Scope = Literal["tree", "path"]
SCOPES: tuple[Scope, ...] = ("tree", "path")
F = StreamId("f")


@pytest.fixture(autouse=True)
def copying(store: SessionStore) -> None:
    """Skip the test on backends whose forks do not copy entries."""
    if store.capabilities.pointer_fork:
        pytest.skip("its forks share (test_forks)")


async def grown(store: SessionStore) -> StreamId:
    """Create a session with two branches below the root s/0.

    One branch is s/1 and s/3, the other is s/4 and s/5. The label of s/1 is s/2. The leaf is s/5.
    """
    return await create(
        store,
        header("s", title="Trip", cwd="/p"),
        said("root", alias="r1"),
        replied("left"),
        labelled("l", Sibling(1)),
        said("more left"),
        replied("right", Sibling(0)),
        said("more right"),
    )


async def test_fork_with_scope_path_copies_one_path(store: SessionStore) -> None:
    await grown(store)

    await fork(store, S, "f", said("on"), at=EntryId("s/3"), scope="path")

    assert texts(await store.tree(F)) == ["root", "left", "more left", "on"]
    assert ids(await store.tree(F)) == ["f/0", "f/1", "f/2", "f/4"]
    assert labels_of(await store.notes(F, ["label"])) == {"f/1": "l"}
    assert texts(await store.branch(F, (await store.state(F)).leaf))[-1] == "on"
    assert await store.aliases(F) == {"r1": "f/0"}
    with pytest.raises(EntryNotFound):
        await store.entry(F, EntryId("s/0"))
    with pytest.raises(InvalidParent):
        await append(store, F, said("x", EntryId("s/0")))
    assert (await store.maintenance.verify()).problems == ()


async def test_fork_with_scope_tree_copies_every_branch(
    store: SessionStore,
) -> None:
    await grown(store)

    await fork(store, S, "f", at=EntryId("s/1"))
    entry = await append_one(store, F, said("on"))

    assert texts(await store.tree(F)) == ["root", "left", "more left", "right", "more right", "on"]
    assert texts(await store.branch(F, entry.id)) == ["root", "left", "on"]


async def test_header_of_a_copied_fork_has_the_origin_as_parent(store: SessionStore) -> None:
    await grown(store)
    await fork(store, S, "f", said("own"))

    state = await store.state(F)

    assert (state.header.fork, state.header.parent, state.info.parent) == (None, "s", "s")
    assert (state.info.title, state.info.cwd, state.info.first_text) == ("Trip", "/p", "root")
    assert (state.info.messages, state.open_turn, state.epoch) == (6, None, 0)


async def test_commit_that_creates_a_fork_returns_only_new_entries(store: SessionStore) -> None:
    await grown(store)
    point = ForkPoint(S, EntryId("s/3"), 5, "path")
    write = Write(
        stream=F,
        create=header("f", fork=point),
        entries=(said("on", EntryId("s/1")), labelled("own", Sibling(0))),
    )
    commit = Commit(writes=(write,), at=START_MS, idempotency_key="k")

    first = await store.commit(commit)
    again = await store.commit(commit)

    assert [entry.about for entry in first.entries[0]] == [None, first.entries[0][0].id]
    assert texts(await store.branch(F, first.entries[0][0].id)) == ["root", "left", "on"]
    assert (again.entries, again.is_replay) == (first.entries, True)
    with pytest.raises(SessionExists):
        await store.commit(Commit(writes=(write,), at=START_MS))


@pytest.mark.parametrize("scope", SCOPES)
async def test_references_in_copied_entries_point_to_the_copies(
    store: SessionStore, scope: Scope
) -> None:
    await create(store, S, said("a"), said("b"), labelled("x", None))
    await append(store, S, new_tree(BranchSummary("left it", EntryId("s/1"))))
    await append(store, S, new_tree(Compaction("gist", EntryId("s/1"))), said("c"))
    await append(store, S, new_side(CompactionUndone(), EntryId("s/4")))
    await append(store, S, new_tree(Compaction("more", EntryId("s/5"))))

    await fork(store, S, "f", scope=scope)
    window = await store.context_window(F, (await store.state(F)).leaf)
    origin = await store.context_window(S, (await store.state(S)).leaf)

    assert texts(list(window.entries)) == texts(list(origin.entries)) == ["c"]
    assert window.hidden == origin.hidden
    undone = await store.notes(F, ["compaction_undone"])
    assert [entry.about for entry in undone] == ["f/3"]
    assert b'"from_id":"f/1"' in (await store.entry(F, EntryId("f/2"))).body


async def test_copied_entry_has_no_source_position(store: SessionStore) -> None:
    body = b'{"role":"user","parts":[],"later":1.50,"source":{"part":0,"offset":1,"length":2}}'
    await create(store, S, NewEntry("message", body))

    await fork(store, S, "f")

    copy = await store.entry(F, EntryId("f/0"))
    assert copy.body == b'{"role":"user","parts":[],"later":1.50}'


async def test_fork_and_origin_do_not_share_later_entries(
    store: SessionStore,
) -> None:
    await grown(store)
    await fork(store, S, "f")
    await append(store, S, said("in s"), labelled("late", EntryId("s/0")))

    await append(store, F, said("in f"))

    assert "in s" not in texts(await store.tree(F))
    assert "in f" not in texts(await store.tree(S))
    assert "late" not in labels_of(await store.notes(F, ["label"])).values()


@pytest.mark.parametrize("scope", SCOPES)
async def test_fork_before_the_root_begins_with_a_new_root(
    store: SessionStore, scope: Scope
) -> None:
    await grown(store)
    await fork(store, S, "f", at=None, scope=scope)

    entry = await append_one(store, F, said("fresh"))

    assert entry.parent_id is None
    assert len(await store.tree(F)) == (6 if scope == "tree" else 1)


async def test_fork_at_earlier_head_does_not_see_later_entries(
    store: SessionStore,
) -> None:
    await grown(store)

    await fork(store, S, "f", at=EntryId("s/1"), head=1)

    assert texts(await store.tree(F)) == ["root", "left"]
    assert await store.notes(F, ["label"]) == []


async def test_open_turn_is_not_copied(store: SessionStore) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", 1000)
    await append(store, S, turn_started(), said("a"), lease=lease)

    await fork(store, S, "f")

    assert (await append_one(store, F, said("free"))).kind == "message"


async def test_rejected_fork_stores_nothing(store: SessionStore) -> None:
    await grown(store)
    wrong = (
        (ForkPoint(StreamId("gone"), None, EMPTY, "tree"), SessionNotFound),
        (ForkPoint(S, None, 6, "tree"), InvalidEntry),
        (ForkPoint(S, EntryId("s/2"), 5, "path"), InvalidParent),
        (ForkPoint(S, EntryId("s/3"), 2, "path"), InvalidParent),
    )
    for point, error in wrong:
        with pytest.raises(error):
            await create(store, header("f", fork=point))
    write = Write(
        stream=F,
        create=header("f", fork=ForkPoint(S, None, 5, "tree")),
        expected_leaf=EntryId("s/5"),
    )
    with pytest.raises(LeafConflict):
        await store.commit(Commit(writes=(write,), at=START_MS))

    with pytest.raises(SessionNotFound):
        await store.state(F)
