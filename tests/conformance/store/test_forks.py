"""A fork is a stream that refers to the first entries of another stream: all, or one path."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

import msgspec
import pytest

from perdure.errors import (
    AmbiguousId,
    EntryNotFound,
    InvalidEntry,
    InvalidParent,
    SessionNotFound,
)
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Sibling
from perdure.session.fold import labels_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint
from perdure.session.kinds import Compaction
from perdure.session.notes import CompactionUndone, SessionInfoChanged
from perdure.stores.protocol import EMPTY, Commit, Write
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Data
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
    turn_started,
)
from tests.fakes.clock import START_MS
from tests.fakes.samples import case

pytestmark = pytest.mark.needs("pointer_fork")

Scope = Literal["tree", "path"]
SCOPES: tuple[Scope, ...] = ("tree", "path")


async def grown(store: SessionStore) -> StreamId:
    """Create a session with two branches below the root s/0.

    One branch is s/1 and s/3, the other is s/4 and s/5. The label of s/1 is s/2. The leaf is s/5.
    """
    return await create(
        store,
        S,
        said("root"),
        replied("left"),
        labelled("l", Sibling(1)),
        said("more left"),
        replied("right", Sibling(0)),
        said("more right"),
    )


@pytest.mark.parametrize("scope", SCOPES)
async def test_fork_continues_from_the_fork_point_without_copies(
    store: SessionStore, scope: Scope
) -> None:
    await grown(store)

    await fork(store, S, "f", at=EntryId("s/3"), scope=scope)
    state = await store.state(StreamId("f"))
    entry = await append_one(store, StreamId("f"), said("in the fork"))

    assert (state.head, state.leaf) == (EMPTY, "s/3")
    assert (entry.id, entry.parent_id) == ("f/0", "s/3")
    assert await store.entries(StreamId("f")) == [entry]
    branch = await store.branch(StreamId("f"), entry.id)
    assert texts(branch) == ["root", "left", "more left", "in the fork"]
    assert ids(branch) == ["s/0", "s/1", "s/3", "f/0"]


@pytest.mark.parametrize("scope", SCOPES)
async def test_fork_and_origin_do_not_share_later_entries(
    store: SessionStore, scope: Scope
) -> None:
    await grown(store)
    await fork(store, S, "f", scope=scope)

    ours = await append_one(store, S, said("in the origin"))
    theirs = await append_one(store, StreamId("f"), said("in the fork"))

    assert ours.parent_id == theirs.parent_id == "s/5"
    assert "in the fork" not in texts(await store.tree(S))
    assert "in the origin" not in texts(await store.tree(StreamId("f")))
    for stream, foreign in ((S, theirs), (StreamId("f"), ours)):
        with pytest.raises(EntryNotFound):
            await store.entry(stream, foreign.id)
        with pytest.raises(EntryNotFound):
            await store.branch(stream, foreign.id)
        with pytest.raises(InvalidParent):
            await append(store, stream, said("x", foreign.id))
    assert (await store.maintenance.verify()).problems == ()


async def test_fork_with_scope_tree_sees_every_branch(store: SessionStore) -> None:
    await grown(store)
    await fork(store, S, "f", said("own"), at=EntryId("s/3"))
    await append(store, S, said("too late"))

    tree = await store.tree(StreamId("f"))

    assert ids(tree) == ["s/0", "s/1", "s/3", "s/4", "s/5", "f/0"]
    entry = await append_one(store, StreamId("f"), said("on the right", EntryId("s/4")))
    assert texts(await store.branch(StreamId("f"), entry.id)) == ["root", "right", "on the right"]
    await append(store, StreamId("f"), moved(EntryId("s/5")))
    assert (await store.state(StreamId("f"))).leaf == "s/5"


async def test_fork_with_scope_path_hides_other_branches(store: SessionStore) -> None:
    await grown(store)
    await fork(store, S, "f", said("own"), at=EntryId("s/3"), scope="path")
    f = StreamId("f")

    assert ids(await store.tree(f)) == ["s/0", "s/1", "s/3", "f/0"]
    assert texts([await store.entry(f, EntryId("s/1"))]) == ["left"]
    for hidden in (EntryId("s/4"), EntryId("s/5")):
        with pytest.raises(EntryNotFound):
            await store.entry(f, hidden)
        with pytest.raises(EntryNotFound):
            await store.branch(f, hidden)
        with pytest.raises(EntryNotFound):
            await store.resolve(f, hidden)
        with pytest.raises(InvalidParent):
            await append(store, f, said("x", hidden))
        with pytest.raises(InvalidParent):
            await append(store, f, moved(hidden))
    branched = await append_one(store, f, said("from the middle", EntryId("s/1")))
    assert texts(await store.branch(f, branched.id)) == ["root", "left", "from the middle"]


@pytest.mark.parametrize("scope", SCOPES)
async def test_fork_before_the_root_has_no_leaf(store: SessionStore, scope: Scope) -> None:
    await grown(store)
    await fork(store, S, "f", at=None, scope=scope)

    state = await store.state(StreamId("f"))
    entry = await append_one(store, StreamId("f"), said("fresh"))

    assert state.leaf is None
    assert entry.parent_id is None
    shared = 5 if scope == "tree" else 0
    assert len(await store.tree(StreamId("f"))) == shared + 1
    assert state.info.messages == shared


@pytest.mark.parametrize("scope", SCOPES)
async def test_empty_session_can_be_forked(store: SessionStore, scope: Scope) -> None:
    await create(store)

    await fork(store, S, "f", said("a"), scope=scope)

    assert texts(await store.tree(StreamId("f"))) == ["a"]
    assert (await store.maintenance.verify()).problems == ()


@pytest.mark.parametrize("scope", SCOPES)
async def test_fork_does_not_get_later_labels_of_the_origin(
    store: SessionStore, scope: Scope
) -> None:
    await grown(store)
    await fork(store, S, "f", scope=scope)
    await append(store, S, labelled("changed", EntryId("s/1")), labelled("late", EntryId("s/0")))
    await append(store, StreamId("f"), labelled("own", EntryId("s/4")))

    notes = await store.notes(StreamId("f"), ["label"])

    assert ids(notes) == ["s/2", "f/0"]
    assert labels_of(notes) == {"s/1": "l", "s/4": "own"}
    assert await store.entry(StreamId("f"), EntryId("s/2")) == notes[0]
    with pytest.raises(EntryNotFound):
        await store.entry(StreamId("f"), EntryId("s/6"))
    assert labels_of(await store.notes(S, ["label"])) == {"s/1": "changed", "s/0": "late"}


async def test_fork_at_earlier_head_does_not_see_later_entries(
    store: SessionStore,
) -> None:
    await grown(store)

    await fork(store, S, "f", at=EntryId("s/1"), head=1)

    f = StreamId("f")
    assert ids(await store.tree(f)) == ["s/0", "s/1"]
    assert await store.notes(f, ["label"]) == []
    assert (await store.state(f)).info.messages == 2
    with pytest.raises(EntryNotFound):
        await store.entry(f, EntryId("s/3"))
    assert (await store.maintenance.verify()).problems == ()


async def test_fork_of_a_fork_shares_entries_of_both_origins(store: SessionStore) -> None:
    await grown(store)
    await fork(store, S, "f", said("f0"), labelled("in f", Sibling(0)), at=EntryId("s/3"))
    await fork(store, StreamId("f"), "g", said("g0"))
    await append(store, S, said("late in s"), labelled("late", EntryId("s/0")))
    await append(store, StreamId("f"), said("late in f"), labelled("late", EntryId("s/0")))
    g = StreamId("g")

    leaf = (await store.state(g)).leaf
    assert texts(await store.branch(g, leaf)) == ["root", "left", "more left", "f0", "g0"]
    assert ids(await store.tree(g)) == ["s/0", "s/1", "s/3", "s/4", "s/5", "f/0", "g/0"]
    assert labels_of(await store.notes(g, ["label"])) == {"s/1": "l", "f/0": "in f"}
    entry = await append_one(store, g, said("back at the origin", EntryId("s/5")))
    assert texts(await store.branch(g, entry.id))[-2:] == ["more right", "back at the origin"]
    assert (await store.maintenance.verify()).problems == ()


async def test_path_through_two_forks_omits_other_branches(store: SessionStore) -> None:
    await grown(store)
    await fork(store, S, "f", said("f0"), said("f1"), said("f2", Sibling(0)), at=EntryId("s/3"))
    await fork(store, StreamId("f"), "g", said("g0"), at=EntryId("f/1"), scope="path")
    g = StreamId("g")

    assert ids(await store.tree(g)) == ["s/0", "s/1", "s/3", "f/0", "f/1", "g/0"]
    for hidden in ("f/2", "s/4"):
        with pytest.raises(EntryNotFound):
            await store.entry(g, EntryId(hidden))
        with pytest.raises(InvalidParent):
            await append(store, g, said("x", EntryId(hidden)))


async def test_fork_of_a_fork_keeps_other_branches_hidden(store: SessionStore) -> None:
    await grown(store)
    await fork(store, S, "f", said("f0"), at=EntryId("s/3"), scope="path")
    await fork(store, StreamId("f"), "g", said("g0"))

    assert ids(await store.tree(StreamId("g"))) == ["s/0", "s/1", "s/3", "f/0", "g/0"]
    with pytest.raises(EntryNotFound):
        await store.entry(StreamId("g"), EntryId("s/4"))


async def test_branch_through_a_chain_of_forks_is_read_as_one_branch(store: SessionStore) -> None:
    await create(store, S, said("0"))
    stream = S
    for number in range(1, 30):
        scope = SCOPES[number % 2]
        stream = await fork(store, stream, f"f{number}", said(str(number)), scope=scope)

    leaf = (await store.state(stream)).leaf
    assert texts(await store.branch(stream, leaf)) == [str(number) for number in range(30)]
    assert texts(await store.branch(stream, leaf, limit=3)) == ["27", "28", "29"]
    assert (await store.context_window(stream, leaf)).hidden == 0
    assert (await store.state(stream)).info.messages == 30
    assert (await store.maintenance.verify()).problems == ()


async def test_context_window_of_a_fork_includes_entries_of_its_origin(store: SessionStore) -> None:
    await create(store, S, said("a"), said("b"), said("c"))
    await append(store, S, new_tree(Compaction("gist", EntryId("s/1"))))
    await fork(store, S, "f", said("d"), scope="path")
    # Undone in the origin only, after the fork: the fork's context stays compacted.
    await append(store, S, new_side(CompactionUndone(), EntryId("s/3")))

    ours = await store.context_window(StreamId("f"), EntryId("f/0"))
    theirs = await store.context_window(S, EntryId("s/3"))

    assert (ours.hidden, texts(list(ours.entries))) == (1, ["b", "c", "d"])
    assert (theirs.hidden, texts(list(theirs.entries))) == (0, ["a", "b", "c"])
    assert theirs.undone == {"s/3"}
    await append(store, StreamId("f"), new_side(CompactionUndone(), EntryId("s/3")))
    assert (await store.context_window(StreamId("f"), EntryId("f/0"))).hidden == 0


@pytest.mark.parametrize("scope", SCOPES)
async def test_alias_of_the_origin_is_found_in_a_fork(store: SessionStore, scope: Scope) -> None:
    await create(
        store,
        S,
        said("a", alias="aaa1"),
        said("b", alias="bbb"),
        said("b again", alias="bbb"),
        said("beside", Sibling(0), alias="aaa2"),
    )
    await fork(store, S, "f", said("own", alias="aaa3"), at=EntryId("s/2"), scope=scope)
    await append(store, S, said("late", alias="bbbb"))
    f = StreamId("f")

    assert await store.find_entry(f, "bb") == await store.find_entry(f, "bbb") == "s/2"
    assert await store.find_entry(f, "s/1") == "s/1"
    assert await store.find_entry(f, "0") == await store.find_entry(f, "aaa3") == "f/0"
    with pytest.raises(AmbiguousId) as ambiguous:
        await store.find_entry(f, "aaa")
    candidates = ("aaa1", "aaa2", "aaa3") if scope == "tree" else ("aaa1", "aaa3")
    assert ambiguous.value.candidates == candidates
    assert await store.aliases(f) == {"aaa3": "f/0"}


async def test_alias_in_a_fork_overrides_the_alias_of_the_origin(
    store: SessionStore,
) -> None:
    await create(store, S, said("a", alias="same"))
    await fork(store, S, "f", said("b", alias="same"))

    assert await store.resolve(StreamId("f"), "same") == "f/0"
    assert await store.resolve(S, "same") == "s/0"


# ---------------------------------------------------------------- info


async def test_fork_inherits_title_folder_and_message_count_of_its_origin(
    store: SessionStore,
) -> None:
    await create(store, header("s", title="Trip", cwd="/p"), said("where to"), labelled("x", None))

    await fork(store, S, "f", replied("the sea"))
    info = (await store.state(StreamId("f"))).info

    assert (info.title, info.first_text, info.cwd, info.parent) == ("Trip", "where to", "/p", "s")
    assert (info.messages, info.entries, info.turns) == (2, 1, 0)


async def test_fork_can_have_its_own_name_and_folder(store: SessionStore) -> None:
    await create(store, header("s", title="Trip", cwd="/p"), said("where to"))
    point = ForkPoint(S, EntryId("s/0"), 0, "tree")

    await create(store, header("f", title="Other", cwd="/q", fork=point))
    await append(store, S, new_side(SessionInfoChanged(title="Renamed")))

    info = (await store.state(StreamId("f"))).info
    assert (info.title, info.cwd) == ("Other", "/q")


async def test_fork_with_scope_path_counts_the_messages_of_the_path(store: SessionStore) -> None:
    await grown(store)

    await fork(store, S, "left", at=EntryId("s/3"), scope="path")
    await fork(store, S, "root", at=EntryId("s/0"), scope="path")
    await fork(store, S, "whole", at=EntryId("s/0"))
    await fork(store, StreamId("left"), "again", said("x"), at=EntryId("s/1"), scope="path")

    for name, messages in (("left", 3), ("root", 1), ("whole", 5), ("again", 3)):
        assert (await store.state(StreamId(name))).info.messages == messages, name


async def test_fork_of_a_fork_counts_shared_messages(
    store: SessionStore,
) -> None:
    await grown(store)
    await fork(store, S, "f", said("f0"), said("f1"), at=EntryId("s/3"))

    await fork(store, StreamId("f"), "g", at=EntryId("f/0"), head=0)
    await fork(store, StreamId("f"), "h", at=EntryId("s/1"), head=EMPTY)

    assert (await store.state(StreamId("g"))).info.messages == 6
    assert (await store.state(StreamId("h"))).info.messages == 5
    assert ids(await store.tree(StreamId("h"))) == ["s/0", "s/1", "s/3", "s/4", "s/5"]
    assert (await store.maintenance.verify()).problems == ()


async def test_entry_count_of_a_fork_excludes_shared_entries(store: SessionStore) -> None:
    await grown(store)
    await fork(store, S, "f")

    assert (await store.state(StreamId("f"))).info.entries == 0
    assert len(await store.feed(0)) == 6


# ---------------------------------------------------------------- refusals, same commit, turns


async def test_fork_of_missing_session_is_rejected(store: SessionStore) -> None:
    point = ForkPoint(StreamId("gone"), None, EMPTY, "tree")

    with pytest.raises(SessionNotFound) as refused:
        await create(store, header("f", fork=point))

    assert refused.value.stream == "gone"


@pytest.mark.parametrize("head", [6, 99, -2])
async def test_fork_beyond_the_origins_head_is_rejected(store: SessionStore, head: int) -> None:
    await grown(store)

    with pytest.raises(InvalidEntry):
        await fork(store, S, "f", head=head)

    with pytest.raises(SessionNotFound):
        await store.state(StreamId("f"))


async def test_fork_at_an_invisible_entry_is_rejected(store: SessionStore) -> None:
    await grown(store)
    await create(store, "other", said("o"))
    for leaf, head in [("s/2", 5), ("s/9", 5), ("other/0", 5), ("s/3", 2)]:
        for scope in SCOPES:
            with case((leaf, head, scope)), pytest.raises(InvalidParent):
                await fork(store, S, "f", at=EntryId(leaf), head=head, scope=scope)


async def test_stream_can_be_created_and_forked_in_one_commit(store: SessionStore) -> None:
    await create(store, S, said("a"))
    f, new, g = StreamId("f"), StreamId("new"), StreamId("g")
    writes = (
        Write(stream=S, entries=(said("b"),)),
        Write(
            stream=f,
            create=header("f", fork=ForkPoint(S, EntryId("s/1"), 1, "tree")),
            entries=(said("c"),),
        ),
        Write(stream=new, create=header("new"), entries=(said("n"),)),
        Write(stream=g, create=header("g", fork=ForkPoint(new, EntryId("new/0"), 0, "path"))),
    )

    await store.commit(Commit(writes=writes, at=START_MS))

    assert texts(await store.branch(f, EntryId("f/0"))) == ["a", "b", "c"]
    assert texts(await store.branch(g, EntryId("new/0"))) == ["n"]
    assert (await store.maintenance.verify()).problems == ()


async def test_fork_inherits_no_open_turn_and_no_lease(store: SessionStore) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", 1000)
    await append(store, S, turn_started(), said("a"), lease=lease)

    await fork(store, S, "f")
    f = StreamId("f")
    state = await store.state(f)
    entry = await append_one(store, f, said("free"))

    assert (state.open_turn, state.epoch) == (None, 0)
    assert (entry.kind, entry.parent_id) == ("message", "s/1")
    assert ids(await store.notes(f, ["turn_started"])) == ["s/0"]
    assert (await store.acquire_lease(f, "you", 1000)).epoch == 1


async def test_fork_of_a_session_in_another_namespace_raises_not_found(data: Data) -> None:
    ours, theirs = await data.open("ours"), await data.open("theirs")
    await create(ours, S, said("secret"))

    with pytest.raises(SessionNotFound):
        await create(theirs, header("f", fork=ForkPoint(S, EntryId("s/0"), 0, "tree")))


async def test_header_of_a_fork_contains_its_fork_point(store: SessionStore) -> None:
    await grown(store)
    await fork(store, S, "f", at=EntryId("s/1"), scope="path")

    state = await store.state(StreamId("f"))

    assert state.header.fork == ForkPoint(S, EntryId("s/1"), 5, "path")
    assert msgspec.structs.replace(state.header, fork=None) == header("f")


@pytest.mark.parametrize("scope", SCOPES)
async def test_visible_ids_match_the_entries_that_can_be_read(
    store: SessionStore, scope: Scope
) -> None:
    await grown(store)
    await fork(store, S, "f", said("f0"), at=EntryId("s/3"), scope=scope)
    await fork(store, StreamId("f"), "g", said("g0"))
    await append(store, S, said("late in s"))
    every = [EntryId(f"{stream}/{seq}") for stream in ("s", "f", "g") for seq in range(8)]
    for stream in map(StreamId, ("s", "f", "g")):
        found: set[EntryId] = set()
        for each in every:
            with suppress(EntryNotFound):
                found.add((await store.entry(stream, each)).id)
        assert await store.visible_ids(stream, every) == found
        assert {entry.id for entry in await store.tree(stream)} <= found


@pytest.mark.parametrize("scope", SCOPES)
async def test_lookup_of_entries_in_a_fork_omits_other_branches(
    store: SessionStore, scope: Scope
) -> None:
    await grown(store)
    await fork(store, S, "f", said("f0"), said("f1"), at=EntryId("s/3"), scope=scope)
    f, leaf = StreamId("f"), EntryId("f/1")
    sought = [EntryId("s/1"), EntryId("s/5"), EntryId("f/0")]
    found = await store.around(f, leaf, sought, 0)
    assert [(each.depth, each.entry.id) for each in found] == [(1, "s/1"), (3, "f/0")]
    with pytest.raises(EntryNotFound):
        await store.around(S, leaf, sought, 0)
