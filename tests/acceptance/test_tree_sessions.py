"""Tree sessions as in Operator and pi, but without the faults that the specification lists.

Source: the specification operator-pi, section 7 for the scenarios and section 2 for the semantics.
A second handle on the same data stands for a program that is started again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import EntryNotFound
from perdure.session.codec import body_of
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId
from perdure.session.kinds import Compaction, Custom, CustomMessage, ModelChange, ThinkingChange
from perdure.session.messages import TextPart, assistant, user
from perdure.session.tree import TreeNode
from perdure.stores.protocol import Commit, Write
from tests.fakes.places import PLACES, Place


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(request.param, tmp_path)
    yield place
    await place.close()


@pytest.fixture
async def store(place: Place) -> Store:
    return await place.open()


@pytest.fixture
async def session(store: Store) -> Session:
    return await store.create(id="s")


async def reopened(place: Place, session: Session) -> Session:
    return await (await place.open()).open(session.id)


async def ids(session: Session) -> list[str]:
    return [entry.id for entry in await session.path()]


async def context_texts(session: Session) -> list[str]:
    return [each.message.text for each in (await session.context()).messages]


def shape(nodes: tuple[TreeNode, ...]) -> object:
    return [{node.entry.id: shape(node.children)} for node in nodes]


# ---------------------------------------------------------------- the tree


async def test_each_appended_entry_becomes_a_child_of_the_previous_entry(session: Session) -> None:
    entries = await session.append(user("a"), ThinkingChange("high"), ModelChange("p:m"))
    entries.append(await session.append(user("b")))
    assert [entry.parent_id for entry in entries] == [None, "s/0", "s/1", "s/2"]


async def test_branch_is_added_as_a_sibling_of_the_existing_child(session: Session) -> None:
    a, b = await session.append(user("a"), assistant("b"))
    await session.branch(a)
    c = await session.append(user("c"))
    assert c.parent_id == a.id
    assert shape(await session.tree()) == [{a.id: [{b.id: []}, {c.id: []}]}]


async def test_three_branches_at_one_entry_are_three_children_oldest_first(
    session: Session,
) -> None:
    root = await session.append(user("root"))
    for text in "abc":
        await session.branch(root)
        await session.append(user(text))
    (node,) = await session.tree()
    assert [child.entry.message for child in node.children] == [user("a"), user("b"), user("c")]


async def test_unknown_entry_ids_are_refused_and_change_nothing(session: Session) -> None:
    await session.append(user("a"))
    for act in (session.branch("nope"), session.label("nope", "x"), session.fork(at="nope")):
        with pytest.raises(EntryNotFound):
            await act
    assert (await session.info()).entries == 1


async def test_branch_before_the_root_starts_a_second_root(session: Session) -> None:
    await session.append(user("first"))
    await session.branch(None)
    assert await context_texts(session) == []
    second = await session.append(user("second"))
    assert second.parent_id is None
    assert len(await session.tree()) == 2
    assert await context_texts(session) == ["second"]


async def test_context_before_the_first_entry_is_empty(session: Session) -> None:
    await session.append(user("a"), ModelChange("p:m"), ThinkingChange("high"))
    await session.branch(None)
    context = await session.context()
    assert (context.messages, context.model, context.thinking_level) == ((), None, None)


async def test_summary_of_the_abandoned_branch_is_first_on_the_new_branch(session: Session) -> None:
    a, _ = await session.append(user("a"), assistant("tried"))
    await session.branch_with_summary(a, "tried and failed")
    told = " ".join(await context_texts(session))
    assert "tried and failed" in told
    assert len(await session.path()) == 2


async def test_newest_compaction_applies_only_on_its_branch(session: Session) -> None:
    a, b = await session.append(user("question one"), assistant("answer one"))
    first = await session.append(Compaction("summary one", first_kept=b.id))
    await session.append(Compaction("summary two", first_kept=b.id))
    told = " ".join(await context_texts(session))
    assert "summary two" in told
    assert "summary one" not in told
    assert "question one" not in told
    await session.branch(first)
    assert "summary one" in " ".join(await context_texts(session))
    await session.branch(a)
    await session.append(assistant("other answer"))
    assert await context_texts(session) == ["question one", "other answer"]


async def test_context_contains_messages_of_extensions_but_not_their_state(
    session: Session,
) -> None:
    await session.append(
        Custom("todo", {"open": 3}),
        CustomMessage("note", (TextPart("shown to the model"),), is_displayed=False),
        CustomMessage("shell", (TextPart("private"),), in_context=False),
    )
    assert await context_texts(session) == ["shown to the model"]
    assert len(await session.path()) == 3


# ---------------------------------------------------------------- started again


async def test_selected_branch_survives_reopening_without_an_append(
    place: Place, session: Session
) -> None:
    a, _ = await session.append(user("a"), assistant("b"))
    await session.branch(a)
    again = await reopened(place, session)
    assert (again.leaf, await ids(again)) == (a.id, [a.id])
    assert (await again.append(user("c"))).parent_id == a.id


async def test_branch_before_the_root_survives_reopening(place: Place, session: Session) -> None:
    await session.append(user("a"), assistant("b"))
    await session.branch(None)
    again = await reopened(place, session)
    assert again.leaf is None
    assert await again.path() == []
    assert (await again.append(user("c"))).parent_id is None


async def test_labels_are_set_and_removed_and_never_reach_the_context(
    place: Place, session: Session
) -> None:
    a, b = await session.append(user("a"), assistant("b"))
    for text in ("one", "two", "three", None):
        await session.label(a, text)
    await session.label(b, "kept")
    again = await reopened(place, session)
    assert await again.labels() == {b.id: "kept"}
    assert await context_texts(again) == ["a", "b"]
    assert await ids(again) == [a.id, b.id]


async def test_session_title_can_be_set_on_any_branch_and_removed(
    place: Place, session: Session
) -> None:
    a, _ = await session.append(user("the first question"), assistant("b"))
    await session.rename("  Named  ")
    await session.branch(a)
    again = await reopened(place, session)
    assert (await again.info()).name == "Named"
    await again.rename(None)
    info = await (await reopened(place, session)).info()
    assert (info.title, info.name) == (None, "the first question")


async def test_append_uses_the_leaf_that_another_handle_set(place: Place, session: Session) -> None:
    other = await reopened(place, session)
    a, b = await session.append(user("a"), assistant("b"))
    await other.branch(a)
    assert (await session.append(user("c"))).parent_id == a.id
    assert (await other.append(user("d"))).parent_id != b.id


# ---------------------------------------------------------------- forks


async def test_fork_keeps_only_the_labels_of_its_path(session: Session) -> None:
    a, b, c = await session.append(user("a"), assistant("b"), user("c"))
    for entry, text in ((a, "start"), (b, "middle"), (c, "end")):
        await session.label(entry, text)
    copy = await session.fork(at=b)
    on_path = {entry.id for entry in await copy.path()}
    labels = {entry: text for entry, text in (await copy.labels()).items() if entry in on_path}
    assert labels == {a.id: "start", b.id: "middle"}
    (root,) = await copy.tree()
    assert (root.label, root.children[0].label) == ("start", "middle")


async def test_fork_contains_the_messages_before_and_after_a_label(
    place: Place, session: Session
) -> None:
    a = await session.append(user("a"))
    await session.label(a, "labelled between two messages")
    await session.append(assistant("b"), user("c"), assistant("d"))
    copy = await session.fork(at=session.leaf)
    again = await reopened(place, copy)
    assert await context_texts(again) == ["a", "b", "c", "d"]
    assert len(await again.tree()) == 1


async def test_fork_and_origin_append_entries_with_distinct_ids(
    place: Place, session: Session
) -> None:
    a, _ = await session.append(user("a"), assistant("b"))
    copy = await session.fork(at=a)
    mine = await session.append(user("mine"))
    theirs = await copy.append(user("theirs"))
    assert mine.id != theirs.id
    assert (await copy.info()).entries == 1
    assert [m.text for m in await copy.messages()] == ["a", "theirs"]
    assert [m.text for m in await session.messages()] == ["a", "b", "mine"]
    every_id = [entry.id for each in (session, copy) async for entry in each.entries()]
    assert len(every_id) == len(set(every_id))
    assert (await reopened(place, copy)).leaf == theirs.id


async def test_fork_of_a_fork_sees_the_whole_path(place: Place, session: Session) -> None:
    await session.append(user("a"), assistant("b"))
    child = await session.fork()
    await child.append(user("c"), assistant("d"))
    grandchild = await child.fork(at="s/1")
    await grandchild.append(user("e"))
    deep = await (await reopened(place, grandchild)).fork()
    assert [m.text for m in await deep.messages()] == ["a", "b", "e"]


async def test_fork_of_an_unsaved_session_stores_no_entry_twice(
    store: Store,
) -> None:
    draft = await store.create(lazy=True)
    a = await draft.append(user("a"))
    copy = await draft.fork(at=a)
    assert len(await store.recent()) == 2
    await copy.append(assistant("first reply"))
    assert [m.text for m in await copy.messages()] == ["a", "first reply"]
    assert [entry.seq async for entry in copy.entries()] == [0]


async def test_continue_recent_finds_a_fork_in_its_new_folder(
    store: Store, session: Session, tmp_path: Path
) -> None:
    await session.append(user("a"), assistant("b"))
    copy = await session.fork(cwd=tmp_path)
    assert (await store.continue_recent(cwd=tmp_path)).id == copy.id
    assert (await copy.info()).parent == session.id


# ---------------------------------------------------------------- drafts, lists


async def test_session_without_an_answer_is_not_stored(place: Place, store: Store) -> None:
    draft = await store.create(lazy=True, title="T")
    await draft.append(user("a"))
    await draft.append(user("b"))
    assert await (await place.open()).recent(scope="all") == []


async def test_entries_of_a_draft_are_stored_once_with_the_first_answer(
    place: Place, store: Store
) -> None:
    draft = await store.create(lazy=True, title="T")
    await draft.append(user("a"), user("b"))
    await draft.append(assistant("c"))
    await draft.append(user("d"))
    again = await reopened(place, draft)
    assert [m.text for m in await again.messages()] == ["a", "b", "c", "d"]
    assert (await again.info()).title == "T"
    assert (await (await place.open()).verify()).is_ok


async def test_continue_recent_opens_the_newest_session_of_the_given_folder(
    place: Place, store: Store
) -> None:
    for folder in ("/one", "/two", "/one"):
        place.clock.advance(1)
        session = await store.create(cwd=folder)
        await session.append(user(folder))
        place.clock.advance(1)
    (await store.open((await store.recent())[1].id)).title  # noqa: B018 - looking is no activity
    other = await place.open()
    assert (await other.continue_recent()).id == session.id
    assert (await (await other.continue_recent(cwd="/two")).info()).cwd == "/two"
    assert (await other.continue_recent(cwd="/three")).is_draft


async def test_session_row_shows_counts_name_and_update_time(
    place: Place, session: Session
) -> None:
    place.clock.advance(60)
    await session.append(user("What is it?"), assistant("This."), ModelChange("p:m"))
    told_at = place.clock.now_ms()
    place.clock.advance(60)
    await session.label("s/0", "x")
    info = await (await reopened(place, session)).info()
    assert (info.messages, info.entries, info.name) == (2, 4, "What is it?")
    assert info.updated_at == told_at


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    "text", ["a\u2028b\u2029c\u0085d", "\x00\x1f", "💾 ünï", "line\nline\r\n", "\ufeff"]
)
async def test_every_character_survives_a_round_trip(
    place: Place, session: Session, text: str
) -> None:
    await session.append(user(text), assistant(text))
    await session.label("s/0", text.replace("\0", "").strip() or "x")
    again = await reopened(place, session)
    assert [m.text for m in await again.messages()] == [text, text]


async def test_unknown_kinds_and_fields_are_stored_unchanged(
    place: Place, store: Store, session: Session
) -> None:
    body = b'{"answer": 42.0, "nested":{"z":1,"a":null}}'
    new = (
        NewEntry("hologram", body, 3),
        NewEntry("message", b'{"role":"user","parts":[],"mood":"good"}'),
    )
    write = Write(stream=StreamId(session.id), entries=new)
    await store.backend.commit(Commit(writes=(write,), at=place.clock.now_ms()))
    child = await session.append(user("after it"))
    again = await reopened(place, session)
    entries: list[Entry] = await again.path()
    assert [entry.body for entry in entries[:2]] == [each.body for each in new]
    assert entries[2] == child
    assert getattr(body_of(entries[0]), "raw", None) == body
    assert await context_texts(again) == ["after it"]
