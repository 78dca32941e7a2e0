"""Creating streams, their state and info, and reading one stream's log."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.errors import EntryNotFound, SessionExists, SessionNotFound
from perdure.session.codec import new_side
from perdure.session.entries import NewEntry, Sibling
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import SessionInfo, StreamHeader
from perdure.session.notes import (
    SessionEnded,
    SessionInfoChanged,
    SessionReopened,
)
from perdure.session.tree import branch_to
from perdure.stores.chain import HASH_BYTES, genesis_hash
from perdure.stores.protocol import EMPTY, Commit, StreamState, Write
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
    moved,
    replied,
    said,
    texts,
    unknown,
)
from tests.fakes.clock import START_MS
from tests.fakes.samples import case

NOWHERE = StreamId("nowhere")

# ---------------------------------------------------------------- creating


async def test_new_stream_is_empty_and_has_no_leaf(store: SessionStore) -> None:
    new = StreamHeader(
        S, START_MS, origin="role", cwd="/p", title=" A  trip ", metadata={"a": [1, None]}
    )

    await create(store, new)

    assert await store.state(S) == StreamState(
        header=new,
        head=EMPTY,
        leaf=None,
        hash=genesis_hash(new),
        epoch=0,
        open_turn=None,
        info=SessionInfo(
            id=S,
            kind="session",
            origin="role",
            created_at=START_MS,
            updated_at=START_MS,
            title="A  trip",
            cwd="/p",
            metadata={"a": [1, None]},
        ),
    )
    assert await store.entries(S) == await store.tree(S) == []


async def test_session_header_is_stored_with_all_fields(store: SessionStore) -> None:
    new = StreamHeader(
        StreamId("Flow.1:a@b_c-d"),
        5,
        kind="flow",
        origin="subagent",
        cwd="",
        title="",
        parent=StreamId("p"),
        metadata={"nested": {"ü": "\u2028"}, "n": 1.5},
    )

    await create(store, new)

    assert (await store.state(new.id)).header == new


async def test_client_chosen_id_that_exists_is_rejected(store: SessionStore) -> None:
    await create(store, header("s", title="mine"), said("a"))
    before = await store.state(S)

    with pytest.raises(SessionExists) as refused:
        await create(store, header("s", title="yours"), said("b"))

    assert refused.value.stream == "s"
    assert await store.state(S) == before


async def test_invalid_stream_id_is_rejected(store: SessionStore) -> None:
    for name in ["", "a/b", "a b", "-a", "a\n", "ü", "a" * 129]:
        with case(name):
            with pytest.raises(ValueError, match="cannot be a session id"):
                await create(store, header(name))

            assert await store.sessions(scope="all") == []


async def test_header_with_other_stream_id_is_rejected(store: SessionStore) -> None:
    write = Write(stream=S, create=header("t"))

    with pytest.raises(ValueError, match="cannot create"):
        await store.commit(Commit(writes=(write,), at=START_MS))


async def test_ids_are_case_sensitive(store: SessionStore) -> None:
    await create(store, "abc", said("lower"))
    await create(store, "ABC", said("upper"))

    assert texts(await store.entries(StreamId("abc"))) == ["lower"]
    assert texts(await store.entries(StreamId("ABC"))) == ["upper"]


async def test_append_to_missing_stream_is_rejected(store: SessionStore) -> None:
    with pytest.raises(SessionNotFound) as refused:
        await append(store, NOWHERE, said("a"))

    assert refused.value.stream == "nowhere"


async def test_every_read_of_missing_stream_raises_session_not_found(store: SessionStore) -> None:
    entry = EntryId("nowhere/0")
    for reading in (
        store.state(NOWHERE),
        store.entries(NOWHERE),
        store.entry(NOWHERE, entry),
        store.branch(NOWHERE, None),
        store.branch(NOWHERE, entry),
        store.context_window(NOWHERE, None),
        store.context_window(NOWHERE, entry),
        store.tree(NOWHERE),
        store.notes(NOWHERE, ["label"]),
        store.tail(NOWHERE, 0),
        store.tail(NOWHERE, 1, ["label"]),
        store.resolve(NOWHERE, "0"),
    ):
        with pytest.raises(SessionNotFound):
            await reading


# ---------------------------------------------------------------- state and info


async def test_state_is_current_after_every_commit(store: SessionStore) -> None:
    await create(store)
    hashes = {(await store.state(S)).hash}

    for number in range(3):
        await append(store, S, said(str(number)))
        state = await store.state(S)
        hashes.add(state.hash)
        assert (state.head, state.leaf) == (number, f"s/{number}")

    assert {len(hash_) for hash_ in hashes} == {HASH_BYTES}
    assert len(hashes) == 4


async def test_info_has_current_counts_and_names_after_each_append(store: SessionStore) -> None:
    await create(store, header("s", cwd="/old"))

    await append(
        store,
        S,
        replied("Welcome", at=START_MS + 1),
        said("Where   to?\nThe sea", at=START_MS + 2),
        labelled("x", Sibling(1)),
        unknown(),
    )
    await append(store, S, new_side(SessionInfoChanged(cwd="/new")), at=START_MS + 9)
    info = (await store.state(S)).info

    assert (info.messages, info.entries, info.updated_at) == (2, 5, START_MS + 2)
    assert (info.title, info.name, info.cwd) == (None, "Where to? The sea", "/new")
    assert [info] == await store.sessions()


async def test_info_has_the_subject_and_metadata_of_the_header(store: SessionStore) -> None:
    ana = StreamHeader(S, START_MS, subject="ana", metadata={"plan": "pro", "seats": [1, {"n": 2}]})
    await create(store, ana, said("a"))
    await create(store, StreamHeader(StreamId("t"), START_MS, metadata={"plan": "pro"}), said("b"))
    await create(store, StreamHeader(StreamId("u"), START_MS, subject="bob"), said("c"))

    async def found(**filters: Any) -> list[str]:
        return [info.id for info in await store.sessions(**filters)]

    info = (await store.state(S)).info
    assert (info.subject, info.metadata) == ("ana", {"plan": "pro", "seats": [1, {"n": 2}]})
    assert await store.sessions(subject="ana") == [info]
    assert sorted(await found(metadata={"plan": "pro"})) == ["s", "t"]
    assert await found(metadata={"plan": "pro", "seats": [1, {"n": 2}]}) == ["s"]
    assert await found(subject="bob", metadata={"plan": "pro"}) == []
    assert await found(subject="an") == await found(metadata={"plan": None}) == []
    await append(store, S, said("more"))
    assert (await store.sessions(limit=1, subject="ana"))[0].metadata == ana.metadata


async def test_title_can_be_set_and_cleared(store: SessionStore) -> None:
    await create(store, header("s", title="first"), said("hello"))

    await append(store, S, new_side(SessionInfoChanged(title="second")))
    assert (await store.state(S)).info.name == "second"
    await append(store, S, new_side(SessionInfoChanged(title=None)))
    assert (await store.state(S)).info.name == "hello"


async def test_session_status_shows_ending_and_reopening(store: SessionStore) -> None:
    await create(store, S, said("a"))

    await append(store, S, new_side(SessionEnded()))
    ended = (await store.state(S)).info.status
    await append(store, S, new_side(SessionReopened()))

    assert (ended, (await store.state(S)).info.status) == ("ended", "active")


# ---------------------------------------------------------------- the log of one stream


async def test_entries_are_read_after_a_given_seq_up_to_a_limit(store: SessionStore) -> None:
    await create(store, S, *(said(str(number)) for number in range(6)))

    assert texts(await store.entries(S, 3)) == ["4", "5"]
    assert texts(await store.entries(S, 0, 2)) == ["1", "2"]
    assert texts(await store.entries(S, EMPTY, 1)) == ["0"]
    assert await store.entries(S, 5) == []
    assert await store.entries(S, 99) == []
    assert await store.entries(S, 0, 0) == []


async def test_tail_returns_the_newest_entries_with_state_and_notes(
    store: SessionStore,
) -> None:
    await create(store, S, said("0"), labelled("one", EntryId("s/0")), said("2"))

    state, entries, notes = await store.tail(S, 2, ["label", "leaf"])
    assert state == await store.state(S)
    assert entries == await store.entries(S, 0)
    assert notes == await store.notes(S, ["label"])
    assert (await store.tail(S, 9))[1:] == (await store.entries(S), [])
    assert (await store.tail(S, 0, ["label"]))[1:] == ([], notes)


async def test_newest_entries_of_a_fork_include_inherited_labels(
    store: SessionStore,
) -> None:
    await create(store, S, said("0"), labelled("one", EntryId("s/0")))
    forked = await fork(store, S, "f", labelled("two", EntryId("s/0")))
    state, entries, notes = await store.tail(forked, 5, ["label"])
    assert (state.header.id, entries) == (forked, await store.entries(forked))
    assert notes == await store.notes(forked, ["label"])


async def test_reading_log_by_pages_returns_each_entry_once(store: SessionStore) -> None:
    await create(store, S, *(said(str(number)) for number in range(10)))

    pages: list[str] = []
    after = EMPTY
    while page := await store.entries(S, after, 3):
        pages += texts(page)
        after = page[-1].seq

    assert pages == [str(number) for number in range(10)]


async def test_entry_can_be_read_by_its_id(store: SessionStore) -> None:
    await create(store, "other", said("o"))
    tree, side = await append(store, await create(store), said("a"), labelled("x", Sibling(0)))

    assert await store.entry(S, tree.id) == tree
    assert await store.entry(S, side.id) == side
    for missing in ("s/2", "other/0", "0", "", "s/-1", "s/00"):
        with pytest.raises(EntryNotFound) as refused:
            await store.entry(S, EntryId(missing))
        assert (refused.value.entry, refused.value.stream) == (missing, "s")


async def test_branch_is_the_path_from_the_root_to_the_leaf(store: SessionStore) -> None:
    await create(
        store,
        S,
        said("root"),
        said("left", Sibling(0)),
        labelled("x", Sibling(0)),
        said("right", Sibling(0)),
        said("more right"),
    )

    assert texts(await store.branch(S, EntryId("s/1"))) == ["root", "left"]
    assert texts(await store.branch(S, EntryId("s/4"))) == ["root", "right", "more right"]
    assert texts(await store.branch(S, EntryId("s/0"))) == ["root"]
    assert await store.branch(S, None) == []


async def test_read_of_a_branch_can_be_limited_by_number_and_kind(
    store: SessionStore,
) -> None:
    await create(
        store, S, said("a"), unknown(), said("b"), unknown(kind="other"), said("c"), unknown()
    )
    leaf = EntryId("s/5")

    assert [entry.seq for entry in await store.branch(S, leaf, limit=2)] == [4, 5]
    assert [entry.seq for entry in await store.branch(S, leaf, limit=99)] == [0, 1, 2, 3, 4, 5]
    assert await store.branch(S, leaf, limit=0) == []
    assert texts(await store.branch(S, leaf, kind="message")) == ["a", "b", "c"]
    assert texts(await store.branch(S, leaf, kind="message", limit=2)) == ["b", "c"]
    assert [entry.seq for entry in await store.branch(S, leaf, kind="other", limit=5)] == [3]
    assert await store.branch(S, leaf, kind="absent") == []


async def test_branch_of_a_leaf_outside_the_tree_raises_not_found(
    store: SessionStore,
) -> None:
    await create(store, "other", said("o"))
    await create(store, S, said("a"), labelled("x", Sibling(0)))
    for leaf in ["s/2", "s/1", "other/0", "nonsense", ""]:
        with case(leaf):
            with pytest.raises(EntryNotFound):
                await store.branch(S, EntryId(leaf))
            with pytest.raises(EntryNotFound):
                await store.context_window(S, EntryId(leaf))


async def test_tree_contains_all_tree_entries_in_log_order(store: SessionStore) -> None:
    await create(store, S, said("a"), labelled("x", Sibling(0)), said("b"))
    await append(store, S, moved(EntryId("s/0")), said("c"), said("root", None))

    tree = await store.tree(S)

    assert texts(tree) == ["a", "b", "c", "root"]
    assert await store.branch(S, EntryId("s/4")) == branch_to(
        EntryId("s/4"), {entry.id: entry for entry in tree}
    )


async def test_entries_outside_the_tree_are_returned_by_kind_in_log_order(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"))
    await append(
        store,
        S,
        labelled("one", EntryId("s/0")),
        new_side(SessionEnded()),
        said("b"),
        new_side(SessionReopened()),
        labelled(None, EntryId("s/0")),
    )
    # A tree entry of a kind asked for is no note.
    await append(store, S, unknown(kind="odd"), NewEntry("odd", b"1", lane="side"))

    assert ids(await store.notes(S, ["label"])) == ["s/1", "s/5"]
    assert ids(await store.notes(S, ("session_reopened", "label"))) == ["s/1", "s/4", "s/5"]
    assert ids(await store.notes(S, ["odd"])) == ["s/7"]
    assert await store.notes(S, []) == await store.notes(S, ["message"]) == []


# ---------------------------------------------------------------- references


async def test_reference_can_be_id_seq_or_alias(store: SessionStore) -> None:
    await create(store, S, said("a", alias="a1b2c3d4"), labelled("x", Sibling(0)), said("b"))

    assert await store.find_entry(S, "s/0") == "s/0"
    assert await store.find_entry(S, "1") == "s/1"
    assert await store.find_entry(S, "a1b2c3d4") == "s/0"
    assert await store.find_entry(S, "a1") == "s/0"


async def test_unknown_reference_raises_not_found(store: SessionStore) -> None:
    await create(store, S, said("a", alias="a1b2c3d4"), said("b"))
    for reference in ["", "s/3", "9", "007", "-1", "b", "A1", "%", "a_", "1b"]:
        with case(reference):
            with pytest.raises(EntryNotFound) as refused:
                await store.find_entry(S, reference)

            assert (refused.value.entry, refused.value.stream) == (reference, "s")


async def test_prefix_that_matches_several_aliases_is_ambiguous(store: SessionStore) -> None:
    await create(store, S, said("a", alias="abc1"), said("b", alias="abc2"), said("c", alias="abd"))

    with pytest.raises(Exception, match="ambiguous") as refused:
        await store.find_entry(S, "abc")

    assert vars(refused.value) == {"prefix": "abc", "candidates": ("abc1", "abc2")}
    assert await store.find_entry(S, "abd") == await store.find_entry(S, "2") == "s/2"


async def test_exact_alias_is_preferred_to_a_longer_alias(store: SessionStore) -> None:
    await create(store, S, said("a", alias="ab"), said("b", alias="abc"))

    assert await store.find_entry(S, "ab") == "s/0"
    assert await store.find_entry(S, "abc") == "s/1"


async def test_numeric_reference_is_resolved_as_seq_then_as_alias(
    store: SessionStore,
) -> None:
    await create(store, S, said("a", alias="1"), said("b", alias="77"))

    assert await store.find_entry(S, "1") == "s/1"
    assert await store.find_entry(S, "77") == "s/1"
    with pytest.raises(EntryNotFound):
        await store.find_entry(S, "7")
    with pytest.raises(EntryNotFound):
        await store.find_entry(S, "9" * 5000)


async def test_alias_given_twice_resolves_to_last_entry(store: SessionStore) -> None:
    await create(store, S, said("a", alias="twice"), said("b", alias="twice"), said("c"))

    assert await store.resolve(S, "twice") == await store.find_entry(S, "tw") == "s/1"
    assert await store.aliases(S) == {"twice": "s/1"}


async def test_alias_of_another_log_is_not_found(store: SessionStore) -> None:
    await create(store, "other", said("o", alias="o1"))
    await create(store, S, said("a", alias="ä/ 1"))
    side = msgspec.structs.replace(labelled("x", None), alias="l1")
    await append_one(store, S, side)

    assert await store.aliases(S) == {"ä/ 1": "s/0", "l1": "s/1"}
    assert await store.resolve(S, "ä/ 1") == "s/0"
