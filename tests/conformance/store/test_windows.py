"""A store's context window equals `fold.window_of` of the whole branch."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.errors import EntryNotFound, SessionNotFound
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import LEAF, Entry, NewEntry, ParentRef
from perdure.session.fold import BranchState, ContextWindow, end_of, undone_of, window_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import Compaction, ModelChange, ThinkingChange
from perdure.session.notes import CompactionUndone
from perdure.session.tree import branch_to
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Backend
from tests.conformance.store.building import (
    S,
    append,
    append_one,
    create,
    fork,
    ids,
    labelled,
    moved,
    replied,
    said,
    texts,
    unknown,
)


def compaction(first_kept: EntryId | None, parent: ParentRef = LEAF) -> NewEntry:
    return new_tree(Compaction("gist", first_kept), parent)


async def window_at_leaf(store: SessionStore, stream: StreamId = S) -> ContextWindow:
    return await store.context_window(stream, (await store.state(stream)).leaf)


async def window_by_definition(
    store: SessionStore, stream: StreamId, leaf: EntryId | None
) -> ContextWindow:
    by_id = {entry.id: entry for entry in await store.tree(stream)}
    undone = undone_of(await store.notes(stream, [CompactionUndone.kind]))
    return window_of(branch_to(leaf, by_id), undone)


async def test_window_without_a_compaction_is_the_whole_branch(store: SessionStore) -> None:
    entries = await append(store, await create(store), said("a"), labelled("x", None), said("b"))

    window = await window_at_leaf(store)

    assert window == ContextWindow(
        EntryId("s/2"), (entries[0], entries[2]), BranchState(), 0, frozenset()
    )


async def test_context_window_without_a_leaf_is_empty(store: SessionStore) -> None:
    await create(store, S, said("a"), moved(None))

    assert await window_at_leaf(store) == ContextWindow(None, (), BranchState(), 0)


async def test_window_begins_with_the_first_entry_a_compaction_keeps(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"), said("b"), said("c"), compaction(EntryId("s/1")), said("d"))

    window = await window_at_leaf(store)

    assert ids(list(window.entries)) == ["s/1", "s/2", "s/3", "s/4"]
    assert window.hidden == 1
    assert window.state.compaction is not None
    assert window.state.compaction.id == "s/3"


async def test_window_begins_at_a_compaction_without_kept_entries(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"), said("b"), moved(EntryId("s/0")), said("c"))
    for first_kept in (None, EntryId("s/1"), EntryId("s/99"), EntryId("gone/1"), EntryId("s/5")):
        entry = await append_one(store, S, compaction(first_kept, EntryId("s/3")))
        window = await store.context_window(S, entry.id)
        assert (ids(list(window.entries)), window.hidden) == ([entry.id], 2), first_kept


async def test_newest_compaction_replaces_earlier_compactions(
    store: SessionStore,
) -> None:
    await create(
        store,
        S,
        said("a"),
        said("b"),
        compaction(EntryId("s/1")),
        said("c"),
        compaction(EntryId("s/0")),
    )

    window = await window_at_leaf(store)

    assert (window.hidden, len(window.entries)) == (0, 5)


async def test_compaction_on_another_branch_hides_no_entry_of_this_branch(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"), said("b"), compaction(EntryId("s/1")))

    await append(store, S, said("c", EntryId("s/0")))

    assert texts(list((await window_at_leaf(store)).entries)) == ["a", "c"]


async def test_undone_compaction_restores_hidden_entries(store: SessionStore) -> None:
    await create(
        store,
        S,
        said("a"),
        said("b"),
        compaction(EntryId("s/1")),
        said("c"),
        compaction(EntryId("s/3")),
        said("d"),
    )

    await append(store, S, new_side(CompactionUndone(), EntryId("s/4")))
    once = await window_at_leaf(store)
    await append(store, S, new_side(CompactionUndone(), EntryId("s/2")))
    twice = await window_at_leaf(store)

    assert (once.hidden, once.undone) == (1, {"s/4"})
    assert once.state.compaction is not None
    assert once.state.compaction.id == "s/2"
    assert (twice.hidden, twice.undone) == (0, {"s/2", "s/4"})
    assert twice.state.compaction is None


async def test_settings_before_the_window_still_apply(store: SessionStore) -> None:
    await create(
        store,
        S,
        new_tree(ModelChange("a:b")),
        new_tree(ThinkingChange("high")),
        new_tree(ThinkingChange("low")),
        said("a"),
        compaction(None),
        replied("b"),
    )

    state = (await window_at_leaf(store)).state

    assert state.model_change is not None
    assert state.thinking_change is not None
    assert (state.model_change.id, state.thinking_change.id) == ("s/0", "s/2")


async def test_window_begins_at_a_compaction_of_unsupported_version(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"), NewEntry("compaction", b'{"gist":"x"}', 2), said("b"))

    window = await window_at_leaf(store)

    assert ids(list(window.entries)) == ["s/1", "s/2"]
    assert window == await window_by_definition(store, S, EntryId("s/2"))


# ---------------------------------------------------------------- any tree

# Numbers index the existing entries, modulo their number: every draw is valid.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["say", "say", "say", "on", "compact", "compact", "undo", "set", "move", "fork"]
        ),
        st.integers(0, 1000),
        st.integers(0, 1000),
    ),
    max_size=25,
)


async def grow(store: SessionStore, steps: list[tuple[str, int, int]]) -> list[StreamId]:
    """Create streams and entries according to `steps`; each stream is a fork of an earlier one."""
    streams = [await create(store)]
    for step, first, second in steps:
        stream = streams[-1]
        tree = await store.tree(stream)
        entry = tree[first % len(tree)].id if tree else None
        match step:
            case "say":
                await append(store, stream, said(str(first)))
            case "on":
                await append(store, stream, said(str(first), entry))
            case "compact":
                await append(store, stream, compaction(_kept(tree, first), _parent(tree, second)))
            case "undo":
                compactions = [e for e in tree if e.kind == Compaction.kind] or tree
                if compactions:
                    about = compactions[first % len(compactions)].id
                    await append(store, stream, new_side(CompactionUndone(), about))
            case "set":
                body = ModelChange("a:b") if second % 2 else ThinkingChange("low")
                await append(store, stream, new_tree(body, _parent(tree, first)), unknown())
            case "move":
                await append(store, stream, moved(_kept(tree, first)))
            case _:
                origin = streams[first % len(streams)]
                seen = await store.tree(origin)
                scope = "tree" if first % 2 else "path"
                name = f"f{len(streams)}"
                streams.append(await fork(store, origin, name, at=_kept(seen, second), scope=scope))
    return streams


def _kept(tree: list[Entry], number: int) -> EntryId | None:
    """Return an entry id from `tree`, or sometimes None."""
    choice = number % (len(tree) + 1)
    return tree[choice].id if choice < len(tree) else None


def _parent(tree: list[Entry], number: int) -> ParentRef:
    """Return usually the leaf; in other cases an entry id from `tree`, or None."""
    return LEAF if number % 3 else _kept(tree, number)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=max(4, settings().max_examples // 3),
)
@given(steps=STEPS)
async def test_windows_of_random_trees_match_a_reference_implementation(
    backend: Backend, steps: list[tuple[str, int, int]]
) -> None:
    data = backend.new()
    store = await data.open()

    for stream in await grow(store, steps):
        tree = await store.tree(stream)
        by_id = {entry.id: entry for entry in tree}
        for leaf in (None, *by_id):
            path = branch_to(leaf, by_id)
            assert await store.branch(stream, leaf) == path
            assert await store.branch(stream, leaf, limit=3) == path[-3:]
            messages = [entry for entry in path if entry.kind == "message"]
            assert await store.branch(stream, leaf, kind="message") == messages
            assert await store.branch(stream, leaf, kind="message", limit=2) == messages[-2:]
            window = await window_by_definition(store, stream, leaf)
            assert await store.context_window(stream, leaf) == window
            for limit in (1, 2, 5):
                assert await store.context_window(stream, leaf, limit) == end_of(window, limit)
        for limit in (1, 3, len(tree) + 1):
            assert await store.tree(stream, limit) == tree[-limit:]
    assert (await store.maintenance.verify()).problems == ()
    await data.close()


async def test_branch_entries_near_the_given_ids_are_returned(
    store: SessionStore,
) -> None:
    await create(store, S, *(said(str(n)) for n in range(6)), labelled("x", EntryId("s/2")))
    await append(store, S, *(said(str(n)) for n in range(6, 10)))
    await append(store, S, said("beside", EntryId("s/1")), said("more beside"))
    leaf = EntryId("s/10")
    assert (await store.branch(S, leaf))[-1].id == leaf

    async def depths(*seqs: int, reach: int) -> list[int]:
        places = [EntryId(f"s/{seq}") for seq in seqs]
        found = await store.around(S, leaf, places, reach)
        path = await store.branch(S, leaf)
        assert all(path[each.depth] == each.entry for each in found)
        return [each.depth for each in found]

    assert await depths(5, reach=2) == [3, 4, 5, 6, 7]
    assert await depths(10, 0, reach=1) == [0, 1, 8, 9]
    assert await depths(3, 4, 5, reach=2) == [1, 2, 3, 4, 5, 6, 7]
    assert await depths(11, 6, reach=3) == []  # of another branch, and no tree entry
    assert await depths(3, 99, reach=0) == [3]
    assert await store.around(S, leaf, [EntryId("nothing/1"), EntryId("no id")], 1) == []
    with pytest.raises(EntryNotFound):
        await store.around(S, EntryId("s/99"), [leaf], 1)


async def test_depth_of_an_entry_equals_its_index_on_the_branch(
    store: SessionStore,
) -> None:
    await create(store, S, *(said(str(n)) for n in range(4)))
    await append(store, S, said("b", EntryId("s/1")), said("c"), said("d"))
    await append(store, S, said("e", EntryId("s/2")), said("f", EntryId("s/6")))
    leaf = EntryId("s/8")
    path = await store.branch(S, leaf)
    found = await store.around(S, leaf, [each.id for each in path], 3)
    assert [each.entry for each in found] == path
    assert [each.depth for each in found] == list(range(len(path)))
    found = await store.around(S, leaf, [EntryId("s/3"), EntryId("s/4"), EntryId("s/1")], 0)
    assert [(each.depth, each.entry.id) for each in found] == [(1, "s/1"), (2, "s/4")]


async def test_visible_ids_include_ids_of_side_entries(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"), labelled("x", EntryId("s/0")))
    await create(store, StreamId("other"), said("b"))
    own = [EntryId("s/0"), EntryId("s/1")]
    others = [EntryId("s/2"), EntryId("other/0"), EntryId("none/0"), EntryId("no id")]
    assert await store.visible_ids(S, [*own, *others]) == set(own)
    assert await store.visible_ids(S, []) == frozenset()
    with pytest.raises(SessionNotFound):
        await store.visible_ids(StreamId("none"), own)
