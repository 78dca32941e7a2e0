"""Rules 1 and 2 of an append: parents, references within one write, and the leaf."""

from __future__ import annotations

import pytest

from perdure.errors import (
    InvalidEntry,
    InvalidParent,
)
from perdure.session.entries import Sibling
from perdure.session.ids import EntryId
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import (
    S,
    append,
    append_one,
    create,
    header,
    labelled,
    moved,
    replied,
    said,
    texts,
)
from tests.fakes.samples import case


async def test_new_tree_entry_becomes_the_leaf(store: SessionStore) -> None:
    await create(store)

    first, second = await append(store, S, said("a"), said("b"))
    third = await append_one(store, S, replied("c"))

    assert (first.parent_id, second.parent_id, third.parent_id) == (None, first.id, second.id)
    assert (await store.state(S)).leaf == third.id


async def test_entry_outside_the_tree_does_not_change_the_leaf(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"))

    side = await append_one(store, S, labelled("x", EntryId("s/0")))
    after = await append_one(store, S, said("b"))

    assert (side.lane, side.parent_id, side.about) == ("side", None, "s/0")
    assert after.parent_id == "s/0"


async def test_entry_with_an_earlier_parent_starts_a_new_branch(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"), said("b"))

    entry = await append_one(store, S, said("b2", EntryId("s/0")))

    assert entry.parent_id == "s/0"
    assert (await store.state(S)).leaf == entry.id
    assert texts(await store.branch(S, entry.id)) == ["a", "b2"]
    assert texts(await store.branch(S, EntryId("s/1"))) == ["a", "b"]


async def test_entry_with_parent_none_becomes_another_root(store: SessionStore) -> None:
    await create(store, S, said("a"))

    entry = await append_one(store, S, said("again", None))

    assert entry.parent_id is None
    assert texts(await store.branch(S, entry.id)) == ["again"]


async def test_entry_can_refer_to_an_earlier_entry_by_index(store: SessionStore) -> None:
    await create(store)

    entries = await append(
        store,
        S,
        said("root"),
        said("left", Sibling(0)),
        said("right", Sibling(0)),
        labelled("l", Sibling(1)),
        labelled("about the label", Sibling(3)),
    )

    assert [entry.parent_id for entry in entries[:3]] == [None, "s/0", "s/0"]
    assert [entry.about for entry in entries[3:]] == ["s/1", "s/3"]


async def test_entry_can_refer_to_an_earlier_entry_by_id(store: SessionStore) -> None:
    await create(store)

    entries = await append(store, S, said("a"), said("b", EntryId("s/0")), moved(EntryId("s/0")))

    assert entries[1].parent_id == "s/0"
    assert (await store.state(S)).leaf == "s/0"


async def test_entry_of_kind_leaf_makes_its_target_the_current_leaf(store: SessionStore) -> None:
    await create(store, S, said("a"), said("b"))

    await append(store, S, moved(EntryId("s/0")), said("c"))

    assert texts(await store.branch(S, (await store.state(S)).leaf)) == ["a", "c"]


async def test_entry_appended_without_a_leaf_becomes_a_root(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"))

    await append(store, S, moved(None))
    state = await store.state(S)
    second = await append_one(store, S, said("b"))

    assert state.leaf is None
    assert second.parent_id is None
    assert [entry.parent_id for entry in await store.tree(S)] == [None, None]


async def test_parent_outside_tree_of_stream_is_rejected(store: SessionStore) -> None:
    """s/9 does not exist, s/1 is a side entry, other/0 is not shared, s/2 is the entry itself."""
    await create(store, header("other"), said("elsewhere"))
    await create(store, S, said("a"), labelled("x", Sibling(0)))
    for parent in ["s/9", "s/1", "other/0", "nonsense", "", "s/00", "s/2"]:
        with case(parent):
            with pytest.raises(InvalidParent) as refused:
                await append(store, S, said("b", EntryId(parent)))

            assert (refused.value.parent, refused.value.stream) == (parent, "s")
            assert (await store.state(S)).head == 1


async def test_leaf_entry_with_a_target_outside_the_tree_is_rejected(store: SessionStore) -> None:
    await create(store, header("other"), said("elsewhere"))
    await create(store, S, said("a"), labelled("x", Sibling(0)))

    for target in ("s/9", "s/1", "other/0", "nonsense"):
        with case(target):
            with pytest.raises(InvalidParent):
                await append(store, S, moved(EntryId(target)))

            assert (await store.state(S)).leaf == "s/0"


async def test_parent_outside_the_tree_in_the_same_write_is_rejected(
    store: SessionStore,
) -> None:
    await create(store)

    for parent in (Sibling(0), EntryId("s/0")):
        with case(parent), pytest.raises(InvalidParent):
            await append(store, S, labelled("x", None), said("a", parent))
    with pytest.raises(InvalidParent):
        await append(store, S, labelled("x", None), moved(EntryId("s/0")))


async def test_entry_that_refers_to_a_later_entry_is_rejected(store: SessionStore) -> None:
    await create(store)

    for index in (1, 2, 5, -1):
        with case(index):
            with pytest.raises(InvalidEntry):
                await append(store, S, said("a"), said("b", Sibling(index)))
            with pytest.raises(InvalidEntry):
                await append(store, S, said("a"), labelled("x", Sibling(index)))

            assert await store.entries(S) == []
