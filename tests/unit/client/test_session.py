"""Changes of a session through its handle."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from perdure.client.conversation.append import Item
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import (
    AlreadyAnswered,
    AmbiguousId,
    EntryNotFound,
    HeadConflict,
    IdempotencyMismatch,
    InvalidEntry,
    LeafConflict,
    TurnOpen,
)
from perdure.events.wire import wire
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import blob_hash
from perdure.session.kinds import Compaction, Custom, ModelChange
from perdure.session.ledger import TurnStarted
from perdure.session.messages import assistant, user
from perdure.session.notes import Answer, Question
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult, Write
from tests.fakes.clock import START_MS


@pytest.fixture
async def session(store: Store) -> Session:
    return await store.create(id="s", title="T", cwd="/work")


async def note(memory: MemoryStore, new: NewEntry) -> Entry:
    """Return a side entry that another writer appends."""
    write = Write(stream=(await memory.find("s")), entries=(new,))
    return (await memory.commit(Commit(writes=(write,), at=START_MS))).entries[0][0]


async def open_turn(memory: MemoryStore) -> None:
    lease = await memory.acquire_lease(await memory.find("s"), "engine", 60_000)
    write = Write(stream=lease.stream, entries=(new_side(TurnStarted(1, "a")),), lease=lease)
    await memory.commit(Commit(writes=(write,), at=START_MS))


# ---------------------------------------------------------------- appending


async def test_append_of_several_items_returns_a_list(
    session: Session,
) -> None:
    first = await session.append(user("a"))
    more = await session.append(assistant("b"), ModelChange("p:m"))
    assert first.message == user("a")
    assert [entry.parent_id for entry in (first, *more)] == [None, first.id, more[0].id]
    assert (session.head, session.leaf) == (2, more[1].id)


async def test_text_instead_of_a_message_is_rejected(session: Session) -> None:
    with pytest.raises(TypeError, match=r"user\('hello'\)"):
        await session.append(cast("Item", "hello"))
    assert await session.path() == []


async def test_append_without_items_is_rejected(session: Session) -> None:
    with pytest.raises(ValueError, match="nothing to append"):
        await session.append_many([])


async def test_parent_can_be_an_entry_or_an_entry_id(session: Session) -> None:
    root = await session.append(user("root"))
    await session.append(user("next"))
    for parent in (root, root.id):
        assert (await session.append(user("child"), parent=parent)).parent_id == root.id
    assert (await session.append(user("second root"), parent=None)).parent_id is None


async def test_later_items_have_previous_item_as_parent(session: Session) -> None:
    root, _ = await session.append(user("a"), user("b"))
    third, fourth = await session.append(user("c"), user("d"), parent=root)
    assert (third.parent_id, fourth.parent_id) == (root.id, third.id)


@pytest.mark.parametrize("reference", ["s/9", "0", "nobody/0", "x"])
async def test_unknown_parent_is_refused(session: Session, reference: str) -> None:
    with pytest.raises(EntryNotFound):
        await session.append(user("a"), parent=reference)


async def test_entry_outside_the_tree_cannot_be_a_parent(session: Session) -> None:
    entry = await session.append(user("a"))
    label = await session.label(entry, "x")
    with pytest.raises(InvalidEntry, match="is a note"):
        await session.append(user("b"), parent=label)


async def test_entry_object_of_another_store_is_rejected(store: Store, session: Session) -> None:
    first = await session.append(user("a"))
    note = await session.label(first, "x")
    other = msgspec.structs.replace(first, seq=note.seq)  # a note here
    absent = msgspec.structs.replace(first, seq=9)

    async def commit(parent: Entry) -> None:
        await store.commit([(session, [user("b")], {"parent": parent})])

    for entry, refusal in ((other, InvalidEntry), (absent, EntryNotFound)):
        for refused in (
            session.append(user("b"), parent=entry),
            commit(entry),
            session.label(entry, "L"),
            session.pin(entry),
            session.unpin(entry),
            session.branch(entry),
            session.branch_with_summary(entry, "left"),
            session.fork(entry),
        ):
            with pytest.raises(refusal):
                await refused
    assert (session.head, await session.labels()) == (note.seq, {first.id: "x"})


async def test_only_the_first_writer_with_an_expected_head_can_append(
    store: Store, session: Session
) -> None:
    other = await store.open("s")
    await session.append_many([user("a")], expected_head=session.head)
    with pytest.raises(HeadConflict) as conflict:
        await other.append_many([user("b")], expected_head=other.head)
    assert (conflict.value.expected, conflict.value.actual) == (-1, 0)
    assert len(await session.path()) == 1


async def test_expected_leaf_detects_new_messages_but_ignores_labels(
    session: Session,
) -> None:
    first = await session.append(user("a"))
    await session.label(first, "start")
    await session.append_many([user("b")], expected_leaf=first)
    with pytest.raises(LeafConflict):
        await session.append_many([user("c")], expected_leaf=first.id)
    await session.branch(None)
    await session.append_many([user("new root")], expected_leaf=None)


async def test_append_repeated_with_one_idempotency_key_is_stored_once(session: Session) -> None:
    first = await session.append_many([user("a"), user("b")], idempotency_key="k")
    await session.append(user("c"))
    assert await session.append_many([user("a"), user("b")], idempotency_key="k") == first
    assert (session.head, session.leaf) == (2, "s/2")
    with pytest.raises(IdempotencyMismatch):
        await session.append_many([user("other")], idempotency_key="k")


async def test_append_updates_the_handle_with_commits_of_other_handles(
    store: Store, session: Session
) -> None:
    other = await store.open("s")
    await other.append(user("first"))
    await other.rename("Renamed")
    assert session.head == -1
    await session.append(user("third"))
    assert (session.head, session.leaf, session.title) == (2, "s/2", "Renamed")


async def test_entry_appended_during_a_turn_is_queued(
    session: Session, memory: MemoryStore
) -> None:
    first = await session.append(user("a"))
    await open_turn(memory)
    waiting = await session.append(user("b"))
    assert (waiting.kind, waiting.lane) == ("queued", "side")
    assert session.leaf == first.id


# ---------------------------------------------------------------- labels, titles


async def test_branch_cannot_be_moved_during_a_turn(session: Session, memory: MemoryStore) -> None:
    entry = await session.append(user("a"))
    await session.append(user("b"))
    await open_turn(memory)
    with pytest.raises(TurnOpen):
        await session.branch(entry)


@pytest.mark.parametrize("reference", ["s/9", "0", "nobody"])
async def test_unknown_entry_cannot_be_branched_to_or_labelled(
    session: Session, reference: str
) -> None:
    await session.append(user("a"))
    with pytest.raises(EntryNotFound):
        await session.branch(reference)
    with pytest.raises(EntryNotFound):
        await session.label(reference, "x")
    with pytest.raises(EntryNotFound):
        await session.branch_with_summary(reference, "left")
    assert session.head == 0


async def test_entry_outside_the_tree_cannot_be_labelled_or_branched_to(session: Session) -> None:
    label = await session.label(await session.append(user("a")), "x")
    with pytest.raises(InvalidEntry):
        await session.label(label, "label of a label")
    with pytest.raises(InvalidEntry):
        await session.branch(label)


@pytest.mark.parametrize("nothing", [None, "", "  "])
async def test_label_and_title_can_be_removed(session: Session, nothing: str | None) -> None:
    entry = await session.append(user("a"))
    await session.label(entry, " start ")
    assert await session.labels() == {entry.id: "start"}
    await session.label(entry, nothing)
    assert await session.labels() == {}
    await session.rename(nothing)
    assert session.title is None
    assert (await session.info()).name == "a"


async def test_title_with_several_lines_is_stored_unchanged(
    session: Session,
) -> None:
    await session.rename("  Tide\n\n tables ")
    info = await session.info()
    assert (info.title, info.name) == ("Tide\n\n tables", "Tide tables")
    copy = await session.fork(title=" of\ntwo ")
    assert ((await copy.info()).title, copy.title) == ("of\ntwo", "of\ntwo")


# ---------------------------------------------------------------- compactions, ends, questions


async def test_compaction_can_be_undone_once(session: Session) -> None:
    _, kept = await session.append(user("a"), user("b"))
    compaction = await session.append(Compaction("summary", first_kept=kept.id))
    assert len((await session.context()).messages[0].merged) == 1
    assert await session.uncompact() is not None
    assert "summary" not in str(wire(await session.context()))
    assert await session.uncompact(compaction) is None


async def test_undo_without_a_compaction_is_rejected(session: Session) -> None:
    entry = await session.append(user("a"))
    with pytest.raises(InvalidEntry, match="no compaction"):
        await session.uncompact()
    with pytest.raises(InvalidEntry, match="no compaction"):
        await session.uncompact(entry)


async def test_session_ends_and_is_reopened(session: Session) -> None:
    assert await session.reopen() is None
    assert await session.end("done") is not None
    assert (await session.info()).status == "ended"
    assert await session.end() is None
    assert await session.reopen() is not None
    assert (await session.info()).status == "active"


async def test_session_cannot_end_during_a_turn(session: Session, memory: MemoryStore) -> None:
    await open_turn(memory)
    with pytest.raises(TurnOpen):
        await session.end()


async def test_question_is_open_until_it_is_answered(session: Session, memory: MemoryStore) -> None:
    asked = await session.append(user("a"))
    question = Question("interrupted", "go on?", ("yes", "no"))
    entry = await note(memory, new_side(question, asked.id))
    (open_question,) = await session.questions()
    assert open_question.id == entry.id
    assert (open_question.question, open_question.about) == (question, asked.id)
    answer = await session.answer(entry.id, "yes", by="me", note="sure")
    assert (answer.about, body_of(answer)) == (entry.id, Answer("yes", "me", "sure"))
    assert await session.questions() == []


async def test_only_the_first_answer_to_a_question_is_used(
    store: Store, session: Session, memory: MemoryStore
) -> None:
    question = await note(memory, new_side(Question("interrupted", "go on?", ("yes", "no"))))
    first = await session.answer(question, "yes", by="me")
    assert await session.answer(question, "yes", by="me") == first
    with pytest.raises(AlreadyAnswered) as late:
        await (await store.open("s")).answer(question.id, "no", by="you")
    assert (late.value.choice, late.value.by) == ("yes", "me")


@pytest.mark.parametrize("choice", ["yes", "no"])
async def test_later_answer_cannot_replace_an_answer_of_flow_consent(
    session: Session, memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    """The consent of a flow answers the question right before the handle commits its answer."""
    question = await note(memory, new_side(Question("interrupted", "go on?", ("yes", "no"))))
    commit, freed = memory.commit, list[Entry]()

    async def freed_before(asked: Commit) -> CommitResult:
        monkeypatch.undo()
        freed.append(await note(memory, new_side(Answer("yes", "me"), question.id)))
        return await commit(asked)

    monkeypatch.setattr(memory, "commit", freed_before)
    if choice == "yes":
        assert await session.answer(question, "yes", by="me") == freed[0]
        return
    with pytest.raises(AlreadyAnswered) as late:
        await session.answer(question, "no", by="you")
    assert (late.value.choice, late.value.by) == ("yes", "me")


async def test_only_an_offered_choice_is_accepted_as_answer(
    session: Session, memory: MemoryStore
) -> None:
    question = await note(memory, new_side(Question("interrupted", "go on?", ("yes", "no"))))
    with pytest.raises(InvalidEntry, match="yes, no"):
        await session.answer(question, "maybe", by="me")
    message = await session.append(user("a"))
    with pytest.raises(InvalidEntry, match="is not a question"):
        await session.answer(message, "yes", by="me")


async def test_fork_does_not_inherit_questions(session: Session, memory: MemoryStore) -> None:
    question = await note(memory, new_side(Question("interrupted", "go on?", ("yes",))))
    copy = await session.fork()
    assert await copy.questions() == []
    with pytest.raises(InvalidEntry, match="not a question of this session"):
        await copy.answer(question, "yes", by="me")


# ---------------------------------------------------------------- drafts


async def test_unsaved_session_supports_all_operations_of_a_session(store: Store) -> None:
    draft = await store.create(id="d", lazy=True, title="Draft")
    first = await draft.append(user("a"))
    await draft.label(first, "start")
    await draft.append(Custom("state", {"n": 1}))
    await draft.branch(first)
    await draft.branch_with_summary(None, "nothing yet")
    await draft.append(user("b"))
    await draft.rename("Better")
    assert draft.is_draft
    assert [entry.id for entry in await draft.path()] == ["d/4", "d/5"]
    before = (await draft.tree(), await draft.labels(), await draft.messages(), draft.title)
    log = [entry async for entry in draft.entries()]
    reply = await draft.append(assistant("c"))
    assert not draft.is_draft
    assert (reply.id, reply.parent_id) == ("d/7", "d/5")
    again = await store.open("d")
    assert [entry async for entry in again.entries()] == [*log, reply]
    await draft.branch("d/5")
    assert (await draft.labels(), draft.title) == (before[1], before[3])
    assert await draft.messages() == before[2]


async def test_unsaved_session_is_stored_on_request(store: Store) -> None:
    draft = await store.create(lazy=True)
    await draft.append(user("a"))
    await draft.flush()
    assert not draft.is_draft
    assert (await store.open(draft.id)).head == 0
    await draft.flush()


@pytest.mark.parametrize("item", [b"x", {"role": "user"}, None, 5])
async def test_append_of_a_value_that_is_not_a_message_raises_type_error(
    store: Store, item: Any
) -> None:
    session = await store.create()
    with pytest.raises(TypeError, match="append messages"):
        await session.append(item)
    assert session.head == -1


async def test_entry_search_accepts_a_seq_of_this_session_or_of_its_origin(store: Store) -> None:
    session = await store.create()
    entries = [await session.append(user(f"{n}")) for n in range(4)]
    fork = await session.fork(at=entries[2])
    own = await fork.append(user("own"))
    await fork.label(await fork.find("0"), "mine")
    await fork.label(await fork.find("↑0"), "shared")
    await fork.label(await fork.find("↑2"), "shared too")
    assert await fork.labels() == {
        own.id: "mine",
        entries[0].id: "shared",
        entries[2].id: "shared too",
    }
    for nowhere in ("77", "↑3", "9" * 5000, "↑x"):
        with pytest.raises(EntryNotFound):
            await fork.find(nowhere)


async def test_entry_search_accepts_a_label_that_only_one_entry_has(session: Session) -> None:
    one, two = await session.append_many([user("one"), user("two")])
    await session.label(one, "good start")
    assert await session.find("good start") == one.id
    with pytest.raises(EntryNotFound):
        await session.find("good")
    await session.label(two, "good start")
    with pytest.raises(AmbiguousId, match=r"'good start' .* \(0, 1\): use the number of one$"):
        await session.find("good start")
    await session.label(one, None)
    assert await session.find("good start") == two.id


async def test_entry_search_prefers_a_label_to_an_alias_prefix(session: Session) -> None:
    names = ["c30d", "c3", "d4"]
    texts = [user("one"), user("two"), user("three")]
    one, two, three = await session.append_many(texts, aliases=names)
    await session.label(three, "c30")
    assert await session.find("c30") == three.id
    await session.label(three, "c3")
    assert await session.find("c3") == two.id
    await session.label(three, f"{session.id}/0")
    assert await session.find(f"{session.id}/0") == await session.find("c30") == one.id


async def test_same_idempotency_key_with_another_parent_raises_mismatch(store: Store) -> None:
    session = await store.create()
    first = await session.append(user("one"))
    again = [user("two")]
    await session.append_many(again, parent=first, idempotency_key="k")
    with pytest.raises(IdempotencyMismatch):
        await session.append_many(again, parent=None, idempotency_key="k")


async def test_content_without_a_referring_entry_is_rejected(store: Store) -> None:
    for lazy in (False, True):
        session = await store.create(lazy=lazy)
        with pytest.raises(InvalidEntry, match="no entry of the commit names"):
            await session.append_many([user("look")], contents=(b"orphan",))
        assert session.head == -1
        named = Custom("x", {"of": blob_hash(b"picture")})
        (entry,) = await session.append_many([named], contents=(b"picture",))
        assert entry.seq == 0
