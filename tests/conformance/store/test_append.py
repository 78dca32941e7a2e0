"""Rules 1, 2 and 3 of an append, all-or-nothing commits, and what is refused."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from perdure.errors import (
    HeadConflict,
    InvalidEntry,
    InvalidParent,
    LeafConflict,
    LeaseLost,
    SessionNotFound,
)
from perdure.session.codec import encode, new_side
from perdure.session.entries import LEAF, NewEntry, Sibling
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import Compaction
from perdure.session.notes import Adopted, CompactionUndone
from perdure.stores.protocol import EMPTY, Commit, Lease, SessionStore, Write
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    S,
    append,
    append_one,
    create,
    header,
    ids,
    labelled,
    moved,
    replied,
    said,
    texts,
    turn_started,
    unknown,
)
from tests.fakes.clock import START_MS

# ---------------------------------------------------------------- seq, time, shape


async def test_seq_is_dense_from_zero_in_commit_order(store: SessionStore) -> None:
    await create(store, S, said("a"), labelled("x", Sibling(0)))
    await append(store, S, said("b"))
    await append(store, S, labelled("y", None), said("c"), said("d"))

    log = await store.entries(S)

    assert [entry.seq for entry in log] == [0, 1, 2, 3, 4, 5]
    assert ids(log) == [f"s/{seq}" for seq in range(6)]
    assert (await store.state(S)).head == 5


async def test_a_commit_returns_what_can_be_read_back(store: SessionStore) -> None:
    await create(store)

    appended = await append(store, S, said("a"), labelled("x", Sibling(0)), replied("b"))

    assert appended == await store.entries(S)


async def test_entries_of_one_commit_are_consecutive_among_concurrent_writers(
    store: SessionStore,
) -> None:
    await create(store)

    commits = await asyncio.gather(
        *(append(store, S, *(said(f"{writer}:{n}") for n in range(5))) for writer in range(20))
    )

    for commit in commits:
        assert [entry.seq - commit[0].seq for entry in commit] == [0, 1, 2, 3, 4]
    assert [entry.seq for entry in await store.entries(S)] == list(range(100))


async def test_appends_of_one_writer_keep_their_order(store: SessionStore) -> None:
    await create(store)

    async def write(writer: int) -> None:
        for number in range(20):
            await append(store, S, said(f"{writer}:{number}"))

    await asyncio.gather(*(write(writer) for writer in range(4)))

    log = texts(await store.entries(S))
    for writer in range(4):
        own = [text for text in log if text.startswith(f"{writer}:")]
        assert own == [f"{writer}:{number}" for number in range(20)]


async def test_an_entry_has_the_commits_time_unless_it_brings_its_own(store: SessionStore) -> None:
    await create(store)

    entries = await append(store, S, said("now"), said("then", at=12_345), at=START_MS + 7)

    assert [entry.at for entry in entries] == [START_MS + 7, 12_345]


async def test_order_is_seq_and_never_time(store: SessionStore) -> None:
    await create(store, S, said("a", at=300), said("b", at=100), said("c", at=200))

    assert texts(await store.entries(S)) == ["a", "b", "c"]
    assert texts(await store.branch(S, EntryId("s/2"))) == ["a", "b", "c"]


async def test_bodies_kinds_and_versions_are_kept_as_given(store: SessionStore) -> None:
    await create(store)
    body = b'{ "x" : 1.0e2,\n "y":"\\u00e9" }'

    entry = await append_one(store, S, NewEntry("some_kind", body, 3))

    assert (entry.kind, entry.v, entry.body) == ("some_kind", 3, body)
    assert await store.entry(S, entry.id) == entry


# ---------------------------------------------------------------- parents and the leaf


async def test_a_tree_entry_hangs_from_the_leaf_and_becomes_the_leaf(store: SessionStore) -> None:
    await create(store)

    first, second = await append(store, S, said("a"), said("b"))
    third = await append_one(store, S, replied("c"))

    assert (first.parent_id, second.parent_id, third.parent_id) == (None, first.id, second.id)
    assert (await store.state(S)).leaf == third.id


async def test_side_entries_have_no_parent_and_leave_the_leaf(store: SessionStore) -> None:
    await create(store, S, said("a"))

    side = await append_one(store, S, labelled("x", EntryId("s/0")))
    after = await append_one(store, S, said("b"))

    assert (side.lane, side.parent_id, side.about) == ("side", None, "s/0")
    assert after.parent_id == "s/0"


async def test_a_named_parent_starts_a_branch_and_moves_the_leaf_there(store: SessionStore) -> None:
    await create(store, S, said("a"), said("b"))

    entry = await append_one(store, S, said("b2", EntryId("s/0")))

    assert entry.parent_id == "s/0"
    assert (await store.state(S)).leaf == entry.id
    assert texts(await store.branch(S, entry.id)) == ["a", "b2"]
    assert texts(await store.branch(S, EntryId("s/1"))) == ["a", "b"]


async def test_parent_none_makes_another_root(store: SessionStore) -> None:
    await create(store, S, said("a"))

    entry = await append_one(store, S, said("again", None))

    assert entry.parent_id is None
    assert texts(await store.branch(S, entry.id)) == ["again"]


async def test_siblings_of_a_write_can_be_parents_and_subjects(store: SessionStore) -> None:
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


async def test_an_entry_may_name_an_earlier_one_of_its_write_by_id(store: SessionStore) -> None:
    await create(store)

    entries = await append(store, S, said("a"), said("b", EntryId("s/0")), moved(EntryId("s/0")))

    assert entries[1].parent_id == "s/0"
    assert (await store.state(S)).leaf == "s/0"


async def test_a_leaf_entry_moves_the_leaf_to_its_target(store: SessionStore) -> None:
    await create(store, S, said("a"), said("b"))

    await append(store, S, moved(EntryId("s/0")), said("c"))

    assert texts(await store.branch(S, (await store.state(S)).leaf)) == ["a", "c"]


async def test_a_leaf_before_the_root_makes_the_next_entry_a_second_root(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"))

    await append(store, S, moved(None))
    state = await store.state(S)
    second = await append_one(store, S, said("b"))

    assert state.leaf is None
    assert second.parent_id is None
    assert [entry.parent_id for entry in await store.tree(S)] == [None, None]


@pytest.mark.parametrize("parent", ["s/9", "s/1", "other/0", "nonsense", "", "s/00", "s/2"])
async def test_a_parent_that_is_no_tree_entry_of_the_stream_is_refused(
    store: SessionStore, parent: str
) -> None:
    """s/9 does not exist, s/1 is a side entry, other/0 is not shared, s/2 is the entry itself."""
    await create(store, header("other"), said("elsewhere"))
    await create(store, S, said("a"), labelled("x", Sibling(0)))

    with pytest.raises(InvalidParent) as refused:
        await append(store, S, said("b", EntryId(parent)))

    assert (refused.value.parent, refused.value.stream) == (parent, "s")
    assert (await store.state(S)).head == 1


@pytest.mark.parametrize("target", ["s/9", "s/1", "other/0", "nonsense"])
async def test_a_leaf_whose_target_is_no_tree_entry_is_refused(
    store: SessionStore, target: str
) -> None:
    await create(store, header("other"), said("elsewhere"))
    await create(store, S, said("a"), labelled("x", Sibling(0)))

    with pytest.raises(InvalidParent):
        await append(store, S, moved(EntryId(target)))

    assert (await store.state(S)).leaf == "s/0"


async def test_a_side_sibling_cannot_be_a_parent(store: SessionStore) -> None:
    await create(store)

    with pytest.raises(InvalidParent):
        await append(store, S, labelled("x", None), said("a", Sibling(0)))


@pytest.mark.parametrize("index", [1, 2, 5, -1])
async def test_a_sibling_must_come_earlier_in_the_write(store: SessionStore, index: int) -> None:
    await create(store)

    with pytest.raises(InvalidEntry):
        await append(store, S, said("a"), said("b", Sibling(index)))
    with pytest.raises(InvalidEntry):
        await append(store, S, said("a"), labelled("x", Sibling(index)))

    assert await store.entries(S) == []


# ---------------------------------------------------------------- what an entry may be


REFUSED = {
    "a kind with a capital": NewEntry("Message", b"{}"),
    "a kind with a space": NewEntry("a b", b"{}"),
    "a kind with a line end": NewEntry("ab\n", b"{}"),
    "an empty kind": NewEntry("", b"{}"),
    "a kind of 65 characters": NewEntry("a" * 65, b"{}"),
    "version zero": NewEntry("some_kind", b"{}", 0),
    "a message beside the tree": NewEntry("message", said().body, lane="side"),
    "a label in the tree": NewEntry("label", b"{}"),
    "a side entry with a parent": NewEntry("note", b"{}", lane="side", parent=EntryId("s/0")),
    "a tree entry about something": NewEntry("note", b"{}", about=EntryId("s/0")),
    "about itself": labelled("x", EntryId("s/2")),
    "about an entry to come": labelled("x", EntryId("s/3")),
    "about no entry id": labelled("x", EntryId("over there")),
    "about two words": labelled("x", EntryId("a b/0")),
    "no body": NewEntry("some_kind", b""),
    "a body that is not JSON": NewEntry("some_kind", b"{"),
    "a body with more than JSON": NewEntry("some_kind", b"{} {}"),
    "a body nested too deep to read": NewEntry("some_kind", b"[" * 100_000 + b"]" * 100_000),
    "a message nested too deep to read": NewEntry("message", b'{"x":' * 100_000),
    "a body that is not UTF-8": NewEntry("some_kind", b'{"x":"\xff"}'),
    "a message without a role": NewEntry("message", b'{"parts":[]}'),
    "a message that is not JSON": NewEntry("message", b"hello"),
    "a message that is not UTF-8": NewEntry(
        "message", b'{"role":"user","parts":[],"later":"\xff"}'
    ),
    "a compaction without a summary": NewEntry("compaction", b"{}"),
    "a leaf without a target": NewEntry("leaf", b"{}", lane="side"),
    "a leaf of a newer version": NewEntry("leaf", b'{"target":null}', 2, lane="side"),
    "a time out of range": NewEntry("some_kind", b"{}", at=2**63),
    "an empty foreign id": NewEntry("some_kind", b"{}", alias=""),
    "a foreign id that is no text": NewEntry("some_kind", b"{}", alias="\ud800"),
}


@pytest.mark.parametrize("new", REFUSED.values(), ids=REFUSED.keys())
async def test_what_breaks_a_rule_of_the_log_is_refused(store: SessionStore, new: NewEntry) -> None:
    await create(store, S, said("a"))
    before = await store.state(S)

    with pytest.raises(InvalidEntry):
        await append(store, S, said("b"), new)

    assert await store.state(S) == before


async def test_unknown_kinds_may_use_either_lane(store: SessionStore) -> None:
    await create(store)

    tree, side = await append(
        store, S, unknown(), NewEntry("from_the_future", b"[]", 2, "side", about=Sibling(0))
    )

    assert (tree.lane, side.lane, side.about) == ("tree", "side", "s/0")


async def test_a_known_kind_of_a_newer_version_is_kept_as_it_is(store: SessionStore) -> None:
    await create(store)

    entry = await append_one(store, S, NewEntry("compaction", b'{"gist":1}', 2))

    assert await store.branch(S, entry.id) == [entry]


# ---------------------------------------------------------------- expectations


async def test_expected_head_lets_the_write_through_when_nobody_came_first(
    store: SessionStore,
) -> None:
    await create(store)

    await append(store, S, said("a"), expected_head=EMPTY)
    await append(store, S, said("b"), expected_head=0)

    assert texts(await store.entries(S)) == ["a", "b"]


async def test_expected_head_refuses_and_tells_the_head(store: SessionStore) -> None:
    await create(store, S, said("a"), said("b"))

    with pytest.raises(HeadConflict) as refused:
        await append(store, S, said("c"), expected_head=0)

    conflict = refused.value
    assert (conflict.stream, conflict.expected, conflict.actual) == ("s", 0, 1)
    assert (await store.state(S)).head == 1


async def test_of_many_writers_that_expect_the_same_head_one_wins(store: SessionStore) -> None:
    await create(store)

    async def race(writer: int) -> bool:
        try:
            await append(store, S, said(str(writer)), expected_head=EMPTY)
        except HeadConflict:
            return False
        return True

    assert sum(await asyncio.gather(*(race(writer) for writer in range(20)))) == 1
    assert (await store.state(S)).head == 0


async def test_expected_leaf_compares_the_branch_and_not_the_head(store: SessionStore) -> None:
    await create(store, S, said("a"), labelled("x", Sibling(0)))

    await append(store, S, said("b"), expected_leaf=EntryId("s/0"))

    with pytest.raises(LeafConflict) as refused:
        await append(store, S, said("c"), expected_leaf=EntryId("s/0"))
    assert (refused.value.expected, refused.value.actual) == ("s/0", "s/2")


async def test_expected_leaf_none_means_before_the_root(store: SessionStore) -> None:
    await create(store)
    await append(store, S, said("a"), expected_leaf=None)

    with pytest.raises(LeafConflict) as refused:
        await append(store, S, said("b"), expected_leaf=None)
    assert (refused.value.expected, refused.value.actual) == (None, "s/0")

    await append(store, S, moved(None))
    await append(store, S, said("second root"), expected_leaf=None)
    assert (await store.state(S)).leaf == "s/2"


async def test_a_write_may_only_check(store: SessionStore) -> None:
    await create(store, S, said("a"))
    before = await store.state(S)

    assert await append(store, S, expected_head=0) == []
    assert await append(store, S, expected_leaf=EntryId("s/0")) == []

    assert await store.state(S) == before
    with pytest.raises(HeadConflict):
        await append(store, S, expected_head=5)


async def test_a_write_without_entries_or_expectations_is_refused(store: SessionStore) -> None:
    await create(store)

    with pytest.raises(InvalidEntry):
        await append(store, S)
    with pytest.raises(InvalidEntry):
        await store.commit(Commit(writes=(), at=START_MS))


# ---------------------------------------------------------------- several streams at once


@pytest.mark.needs("multi_stream_commit")
async def test_a_commit_to_several_streams_returns_their_entries_in_the_order_of_the_writes(
    store: SessionStore,
) -> None:
    await create(store, "b", said("old"))
    writes = (
        Write(stream=StreamId("c"), create=header("c"), entries=(said("in c"),)),
        Write(stream=StreamId("b"), entries=(said("in b"), said("more in b"))),
        Write(stream=StreamId("a"), create=header("a")),
    )

    committed = await store.commit(Commit(writes=writes, at=START_MS))

    assert [ids(list(entries)) for entries in committed.entries] == [["c/0"], ["b/1", "b/2"], []]
    assert not committed.is_replay
    assert (await store.state(StreamId("a"))).head == EMPTY


_LOST = Lease(S, "nobody", 3, START_MS)

FAILING = {
    "an unknown stream": (Write(stream=StreamId("none"), entries=(said(),)), SessionNotFound),
    "a moved head": (Write(stream=S, entries=(said(),), expected_head=7), HeadConflict),
    "another leaf": (Write(stream=S, entries=(said(),), expected_leaf=None), LeafConflict),
    "a lost lease": (Write(stream=S, entries=(said(),), lease=_LOST), LeaseLost),
    "a wrong parent": (Write(stream=S, entries=(said("x", EntryId("s/7")),)), InvalidParent),
    "an invalid entry": (Write(stream=S, entries=(said(), turn_started())), InvalidEntry),
    "nothing to do": (Write(stream=S), InvalidEntry),
}


@pytest.mark.needs("multi_stream_commit")
@pytest.mark.parametrize(("failing", "error"), FAILING.values(), ids=FAILING.keys())
@pytest.mark.parametrize("is_first", [True, False])
async def test_when_one_write_fails_nothing_of_the_others_remains(
    store: SessionStore, failing: Write, error: type[Exception], is_first: bool
) -> None:
    await create(store, S, said("a", alias="foreign-a"))
    await create(store, "other", said("o"))
    states = [await store.state(S), await store.state(StreamId("other"))]
    fine = (
        Write(stream=StreamId("new"), create=header("new"), entries=(said("never"),)),
        Write(
            stream=StreamId("other"),
            entries=(said("never", alias="foreign-never"), labelled("never", Sibling(0))),
        ),
    )
    writes = (failing, *fine) if is_first else (*fine, failing)

    with pytest.raises(error):
        await store.commit(
            Commit(writes=writes, at=START_MS, idempotency_key="k", blobs=(b"never",))
        )

    assert [await store.state(S), await store.state(StreamId("other"))] == states
    assert await store.aliases(StreamId("other")) == {}
    assert await store.notes(StreamId("other"), ["label"]) == []
    assert [info.id for info in await store.sessions()] == ["s", "other"]
    assert await store.position() == (await store.feed(0))[-1].position
    assert len(await store.feed(0)) == 2
    with pytest.raises(SessionNotFound):
        await store.state(StreamId("new"))
    # Neither did the key stay behind: it is still free.
    await append(store, S, said("b"), key="k")
    await append(store, StreamId("other"), said("next"))
    assert (await store.verify()).problems == ()


async def test_two_writes_of_one_commit_cannot_be_of_one_stream(store: SessionStore) -> None:
    await create(store)
    write = Write(stream=S, entries=(said(),))

    with pytest.raises(InvalidEntry):
        await store.commit(Commit(writes=(write, write), at=START_MS))

    assert await store.entries(S) == []


async def test_an_entry_may_be_about_one_of_another_stream(store: SessionStore) -> None:
    await create(store, "other", said("o"))
    await create(store)

    entry = await append_one(store, S, new_side(CompactionUndone(), EntryId("other/0")))

    assert entry.about == "other/0"


async def test_two_handles_on_one_store_see_each_others_commits_at_once(data: Data) -> None:
    left, right = await data.open(), await data.open()
    await create(left, S, said("a"))

    await append(right, S, said("b"))
    await append(left, S, said("c"))

    assert texts(await left.entries(S)) == texts(await right.entries(S)) == ["a", "b", "c"]
    with pytest.raises(HeadConflict):
        await append(left, S, said("d"), expected_head=1)


async def test_many_handles_appending_at_once_lose_nothing(data: Data) -> None:
    stores = [await data.open() for _ in range(4)]
    await create(stores[0])

    async def write(writer: int) -> None:
        for number in range(25):
            await append(stores[writer], S, said(f"{writer}:{number}"))

    await asyncio.gather(*(write(writer) for writer in range(4)))

    log = await stores[0].entries(S)
    assert [entry.seq for entry in log] == list(range(100))
    assert [entry.parent_id for entry in log] == [None, *ids(log)[:-1]]
    assert (await stores[1].verify()).problems == ()


async def test_a_body_made_by_hand_is_the_same_as_one_from_the_codec(store: SessionStore) -> None:
    await create(store, S, said("a"))
    undone = Compaction("all of it", EntryId("s/0"))

    entries = await append(
        store,
        S,
        NewEntry("compaction", encode(undone), parent=LEAF),
        NewEntry("adopted", encode(Adopted(EntryId("s/0"))), lane="side", about=Sibling(0)),
    )

    assert msgspec.json.decode(entries[0].body, type=Compaction) == undone
    assert entries[1].about == "s/1"
