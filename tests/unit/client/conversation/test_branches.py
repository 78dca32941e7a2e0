"""A session continues from another entry, or in a fork."""

from __future__ import annotations

import pytest

from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import EntryNotFound, SessionExists
from perdure.session.codec import body_of
from perdure.session.kinds import BranchSummary
from perdure.session.messages import assistant, user
from tests.fakes.clock import START_MS, ManualClock


@pytest.fixture
async def session(store: Store) -> Session:
    return await store.create(id="s", title="T", cwd="/work")


async def test_moving_to_the_current_leaf_changes_nothing(session: Session) -> None:
    entry = await session.append(user("a"))
    assert await session.branch(entry) is None
    assert session.head == 0


async def test_branch_starts_from_the_newest_leaf_in_the_store(
    store: Store, session: Session
) -> None:
    first = await session.append(user("a"))
    await (await store.open("s")).append(user("b"))
    assert session.leaf == first.id
    assert await session.branch(first) is not None
    assert session.leaf == first.id
    assert [entry.id for entry in await session.path()] == [first.id]


@pytest.mark.parametrize("is_root", [True, False])
async def test_summary_is_the_first_entry_of_the_new_branch(
    session: Session, is_root: bool
) -> None:
    first = await session.append(user("a"))
    await session.append(user("b"))
    start = None if is_root else first.id
    entry = await session.branch_with_summary(start, "we tried b")
    assert entry.parent_id == start
    assert body_of(entry) == BranchSummary("we tried b", start)
    assert session.leaf == entry.id


async def test_fork_of_the_tree_shares_every_branch(session: Session) -> None:
    first = await session.append(user("a"))
    await session.append(user("b"))
    await session.branch(first)
    third = await session.append(user("c"))
    copy = await session.fork(id="copy")
    assert (copy.id, copy.head, copy.leaf) == ("copy", -1, third.id)
    assert [node.entry.id for node in (await copy.tree())[0].children] == ["s/1", third.id]
    assert (await copy.append(user("d"))).id == "copy/0"
    assert len(await session.path()) == 2


async def test_fork_at_an_entry_shares_only_the_path_of_that_entry(session: Session) -> None:
    first = await session.append(user("a"))
    await session.append(user("b"))
    copy = await session.fork(at=first, title="Other way", cwd="/tmp")
    assert [entry.id for entry in await copy.path()] == [first.id]
    assert (await copy.tree())[0].children == ()
    info = await copy.info()
    assert (info.parent, info.title, info.cwd) == ("s", "Other way", "/tmp")
    with pytest.raises(EntryNotFound):
        await copy.branch("s/1")


async def test_fork_inherits_session_fields_that_are_not_given(
    session: Session, clock: ManualClock
) -> None:
    await session.append(user("a"))
    clock.advance(5)
    info = await (await session.fork()).info()
    assert (info.title, info.cwd, info.origin) == ("T", "/work", "user")
    assert info.created_at == START_MS + 5000


async def test_fork_inherits_the_labels_at_the_time_of_forking(session: Session) -> None:
    entry = await session.append(user("a"))
    await session.label(entry, "before")
    copy = await session.fork()
    await session.label(entry, "after")
    assert await copy.labels() == {entry.id: "before"}
    await copy.label(entry, "mine")
    assert await session.labels() == {entry.id: "after"}


async def test_id_of_fork_must_be_unused(session: Session) -> None:
    with pytest.raises(SessionExists):
        await session.fork(id="s")


async def test_unsaved_session_is_stored_before_it_is_forked(store: Store) -> None:
    draft = await store.create(id="d", lazy=True)
    entry = await draft.append(user("a"))
    copy = await draft.fork(at=entry)
    assert not draft.is_draft
    await copy.append(assistant("reply"))
    assert [e.id for e in await copy.path()] == ["d/0", f"{copy.id}/0"]
    assert len(await draft.path()) == 1
