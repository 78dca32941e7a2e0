"""The rules of an append, without a store. The tests of backends are in tests/conformance/store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import (
    HeadConflict,
    InvalidEntry,
    InvalidParent,
    LeafConflict,
    LeaseLost,
    PerdureError,
    TurnOpen,
)
from perdure.session.codec import BODIES, body_of, new_side, new_tree
from perdure.session.entries import LEAF, NewEntry, ParentRef, Ref, Sibling
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint, StreamHeader, info_after, info_of
from perdure.session.kinds import OPAQUE
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import assistant, user
from perdure.session.notes import Label, LeafMoved, Queued
from perdure.stores.append_rules import (
    Admission,
    ForkOrigin,
    check_commit,
    initial_state,
    is_current,
    plan_append,
    state_after,
)
from perdure.stores.protocol import EMPTY, Commit, Lease, StreamState, Write

S = StreamId("s")
GENESIS = b"g" * 32
NEW = initial_state(StreamHeader(S, 5), GENESIS)
LEASE = Lease(S, "me", 2, 0)


def state_at(
    *, head: int = 4, leaf: str | None = "s/4", epoch: int = 2, open_turn: int | None = None
) -> StreamState:
    """Return a stream whose even entries are in the tree."""
    return StreamState(
        NEW.header, head, EntryId(leaf) if leaf else None, b"h" * 32, epoch, open_turn, NEW.info
    )


def sees(reference: EntryId) -> bool:
    """Return whether the entry is s/0, s/2, s/4, or o/1 of the fork's origin."""
    return reference in ("s/0", "s/2", "s/4", "o/1")


def admitted(
    *new: NewEntry, state: StreamState | None = None, lease: Lease | None = None
) -> Admission:
    write = Write(stream=S, entries=new, lease=lease)
    return plan_append(state_at() if state is None else state, write, 9, sees)


# ---------------------------------------------------------------- results of a write


def test_planned_append_contains_the_stream_state_after_the_append() -> None:
    state = state_at()

    admission = admitted(
        msgspec.structs.replace(new_tree(user("a")), alias="x"),
        new_side(Label("l"), Sibling(0)),
        new_tree(assistant("b"), alias="y"),
        new_side(LeafMoved(EntryId("s/5"))),
    )

    entries = admission.entries
    assert [entry.id for entry in entries] == ["s/5", "s/6", "s/7", "s/8"]
    assert [entry.parent_id for entry in entries] == ["s/4", None, "s/5", None]
    assert (admission.leaf, admission.open_turn, admission.epoch) == ("s/5", None, 0)
    assert admission.aliases == (("x", "s/5"), ("y", "s/7"))
    assert admission.info == info_after(state.info, entries)
    assert state_after(state, admission, b"n" * 32) == StreamState(
        state.header, 8, EntryId("s/5"), b"n" * 32, 2, None, admission.info
    )


def test_append_records_the_epoch_of_the_lease() -> None:
    assert admitted(new_tree(user("a")), lease=LEASE).epoch == 2


def test_empty_write_does_not_change_the_stream_state() -> None:
    state = state_at(open_turn=3)

    admission = admitted(state=state)

    assert state_after(state, admission, state.hash) == state


def test_all_valid_forms_of_a_parent_are_accepted() -> None:
    parents: list[ParentRef] = [EntryId("o/1"), EntryId("s/2"), None, Sibling(1), LEAF]

    admission = admitted(*(new_tree(user("x"), parent) for parent in parents))

    assert [e.parent_id for e in admission.entries] == ["o/1", "s/2", None, "s/6", "s/8"]


@pytest.mark.parametrize(
    "parent", ["s/1", "s/5", "s/6", "o/2", "o/1 ", "s/02", "s/-1", "s", "/0", "", "s/4\n"]
)
def test_parent_that_is_not_visible_is_rejected(parent: str) -> None:
    with pytest.raises(InvalidParent):
        admitted(new_tree(user("x"), EntryId(parent)))
    with pytest.raises(InvalidParent):
        admitted(new_side(LeafMoved(EntryId(parent))))


@pytest.mark.parametrize("about", ["s/0", "s/3", "o/7", "elsewhere/0"])
def test_entry_outside_the_tree_can_refer_to_any_earlier_entry(about: str) -> None:
    assert admitted(new_side(Label("x"), EntryId(about))).entries[0].about == about


@pytest.mark.parametrize("about", ["s/5", "s/99", "o/1 2", "a b/1", "o/1\n", "o\n/1", "s/01", "x"])
def test_entry_outside_the_tree_with_an_invalid_reference_is_rejected(about: str) -> None:
    with pytest.raises(InvalidEntry):
        admitted(new_side(Label("x"), EntryId(about)))


def test_entry_in_the_wrong_lane_is_rejected() -> None:
    for kind, body in BODIES.items():
        other = NewEntry(kind, b"{}", lane="side" if body.lane == "tree" else "tree")
        with pytest.raises(InvalidEntry, match="lane"):
            admitted(other, state=state_at(open_turn=3), lease=LEASE)


def test_entry_in_an_unknown_lane_is_rejected() -> None:
    with pytest.raises(InvalidEntry, match="lane"):
        admitted(msgspec.structs.replace(new_tree(user("x")), lane="middle"))


def test_unreadable_entry_body_is_accepted_only_in_a_newer_version() -> None:
    assert admitted(NewEntry("label", b'{"text":7}', 2, "side")).entries[0].v == 2
    with pytest.raises(InvalidEntry):
        admitted(NewEntry("label", b'{"text":7}', 1, "side"))
    with pytest.raises(InvalidEntry):
        admitted(NewEntry("label", b"{}", 0, "side"))


# ---------------------------------------------------------------- leases and turns


@pytest.mark.parametrize(
    ("epoch", "now", "is_so"), [(2, 2, True), (1, 2, False), (3, 2, False), (0, 0, False)]
)
def test_lease_is_current_while_its_epoch_is_the_newest(epoch: int, now: int, is_so: bool) -> None:
    assert is_current(Lease(S, "me", epoch, 0), state_at(epoch=now)) == is_so


def test_lease_is_valid_only_for_its_stream() -> None:
    assert not is_current(Lease(StreamId("t"), "me", 2, 2**60), state_at())


def test_lost_lease_is_reported_before_a_head_conflict() -> None:
    write = Write(stream=S, expected_head=1, lease=Lease(S, "me", 1, 0))
    with pytest.raises(LeaseLost):
        plan_append(state_at(), write, 9, sees)
    with pytest.raises(HeadConflict):
        plan_append(state_at(), Write(stream=S, expected_head=1, expected_leaf=None), 9, sees)
    with pytest.raises(LeafConflict):
        plan_append(state_at(), Write(stream=S, expected_head=4, expected_leaf=None), 9, sees)


START, FINISH = new_side(TurnStarted(1, "a")), new_side(TurnFinished("stop"))


@pytest.mark.parametrize(
    ("new", "open_turn", "lease", "outcome"),
    [
        (START, None, LEASE, 5),
        (START, None, None, InvalidEntry),
        (START, 3, LEASE, TurnOpen),
        (START, 3, None, InvalidEntry),
        (FINISH, 3, LEASE, None),
        (FINISH, 3, None, InvalidEntry),
        (FINISH, None, LEASE, InvalidEntry),
        (new_side(LeafMoved(None)), 3, LEASE, 3),
        (new_side(LeafMoved(None)), 3, None, TurnOpen),
        (new_side(Label("x")), 3, None, 3),
    ],
)
def test_turn_entries_update_the_open_turn_of_the_stream(
    new: NewEntry,
    open_turn: int | None,
    lease: Lease | None,
    outcome: int | type[PerdureError] | None,
) -> None:
    state = state_at(open_turn=open_turn)
    if isinstance(outcome, type):
        with pytest.raises(outcome):
            admitted(new, state=state, lease=lease)
    else:
        assert admitted(new, state=state, lease=lease).open_turn == outcome


def test_tree_entries_during_turn_are_queued_unchanged() -> None:
    body = b'{"role":"user","parts":[] , "z":1e0}'

    admission = admitted(NewEntry("message", body), state=state_at(open_turn=3))

    (entry,) = admission.entries
    assert (entry.kind, entry.lane, admission.leaf) == ("queued", "side", "s/4")
    queued = body_of(entry)
    assert isinstance(queued, Queued)
    assert bytes(queued.entry_body) == body
    assert admission.info.messages == 0
    with pytest.raises(InvalidEntry):
        admitted(NewEntry(OPAQUE, b"{}"), state=state_at(open_turn=3))


# ---------------------------------------------------------------- new streams


def test_new_stream_has_no_leaf() -> None:
    header = StreamHeader(S, 5, title="x")

    assert initial_state(header, GENESIS) == StreamState(
        header, EMPTY, None, GENESIS, 0, None, info_of(header)
    )


def fork_at(leaf: str | None, head: int, stream: str = "o") -> StreamHeader:
    point = ForkPoint(StreamId(stream), EntryId(leaf) if leaf else None, head, "tree")
    return StreamHeader(StreamId("f"), 5, fork=point)


def shared(messages: int = 3) -> ForkOrigin:
    info = msgspec.structs.replace(NEW.info, title="T", first_text="hi", messages=9, cwd="/p")
    return ForkOrigin(info, 4, GENESIS, messages)


def test_new_fork_inherits_the_session_info_of_the_origin() -> None:
    state = initial_state(fork_at("o/1", 4), GENESIS, shared(), sees)

    assert (state.head, state.leaf, state.epoch, state.open_turn) == (EMPTY, "o/1", 0, None)
    info = state.info
    assert (info.messages, info.entries, info.title, info.cwd) == (3, 0, "T", "/p")
    assert (info.first_text, info.parent) == ("hi", "o")


def test_fork_before_the_root_counts_no_messages() -> None:
    info = initial_state(fork_at(None, 4), GENESIS, shared(0), sees).info

    assert (info.messages, info.first_text) == (0, None)


@pytest.mark.parametrize("head", [-2, 5, 99])
def test_fork_point_must_be_between_root_and_head(head: int) -> None:
    with pytest.raises(InvalidEntry):
        initial_state(fork_at(None, head), GENESIS, shared(), sees)


@pytest.mark.parametrize(("leaf", "head"), [("o/2", 4), ("o/1", 0), ("nonsense", 4)])
def test_fork_leaf_must_be_visible_at_fork_point(leaf: str, head: int) -> None:
    with pytest.raises(InvalidParent):
        initial_state(fork_at(leaf, head), GENESIS, shared(), sees)


def test_commit_needs_nonempty_writes_to_distinct_streams() -> None:
    write = Write(stream=S, entries=(new_tree(user("x")),))
    for writes in ((), (Write(stream=S),), (write, write), (Write(stream=S, lease=LEASE),)):
        with pytest.raises(InvalidEntry):
            check_commit(Commit(writes=writes, at=1))
    with pytest.raises(InvalidEntry):
        check_commit(Commit(writes=(write,), at=2**60))
    with pytest.raises(ValueError, match="session id"):
        check_commit(
            Commit(writes=(Write(stream=S, create=StreamHeader(StreamId("a b"), 1)),), at=1)
        )
    for fine in (
        write,
        Write(stream=S, create=StreamHeader(S, 1)),
        Write(stream=S, expected_head=3),
        Write(stream=S, expected_leaf=None),
    ):
        check_commit(Commit(writes=(fine,), at=1))


# ---------------------------------------------------------------- arbitrary input

REFERENCES = st.sampled_from(["s/0", "s/1", "s/4", "s/5", "s/6", "o/1", "o/2", "a b/1", ""])
PARENTS: st.SearchStrategy[ParentRef] = st.one_of(
    st.just(LEAF), st.none(), REFERENCES.map(EntryId), st.integers(-1, 3).map(Sibling)
)
ABOUTS: st.SearchStrategy[Ref | None] = st.one_of(
    st.none(), REFERENCES.map(EntryId), st.integers(-1, 3).map(Sibling)
)
ANYTHING = st.builds(
    NewEntry,
    kind=st.sampled_from([*BODIES, "message", OPAQUE, "unknown", "Bad kind"]),
    body=st.sampled_from([b"{}", b"", b"\xff", b'{"target":"s/0"}', new_tree(user("x")).body])
    | st.binary(max_size=6),
    v=st.integers(0, 2),
    lane=st.sampled_from(["tree", "side"]),
    parent=PARENTS,
    about=ABOUTS,
    at=st.none() | st.integers(),
    alias=st.none() | st.text(max_size=3),
)


@given(
    new=st.lists(ANYTHING, max_size=4),
    open_turn=st.sampled_from([None, 3]),
    lease=st.sampled_from([None, LEASE, Lease(S, "old", 1, 0)]),
)
def test_any_write_is_rejected_or_gives_valid_entries(
    new: list[NewEntry], open_turn: int | None, lease: Lease | None
) -> None:
    state = state_at(open_turn=open_turn)
    try:
        admission = admitted(*new, state=state, lease=lease)
    except (InvalidEntry, InvalidParent, TurnOpen, LeaseLost):
        return
    entries = admission.entries
    assert [entry.seq for entry in entries] == list(range(5, 5 + len(new)))
    tree = [entry for entry in entries if entry.lane == "tree"]
    for entry in tree:
        parent = entry.parent_id
        assert parent is None or sees(parent) or any(parent == other.id for other in tree)
    assert admission.leaf is None or sees(admission.leaf) or admission.leaf in {e.id for e in tree}
    assert all(entry.about is None or "\n" not in entry.about for entry in entries)
    if open_turn is not None and lease is None:
        assert not tree
        assert admission.open_turn == open_turn
    for asked, entry in zip(new, entries, strict=True):
        if entry.kind != "queued" or asked.kind == "queued":
            assert (entry.kind, entry.v, entry.lane, entry.body) == (
                asked.kind,
                asked.v,
                asked.lane,
                asked.body,
            )


NOT_TEXT: Any = 5


@pytest.mark.parametrize(
    "header",
    [
        StreamHeader(S, 5, subject=NOT_TEXT),
        StreamHeader(S, 5, title=NOT_TEXT),
        StreamHeader(S, 5, cwd=NOT_TEXT),
        StreamHeader(S, NOT_TEXT, origin=NOT_TEXT),
        StreamHeader(S, 5, title="\udcff"),
    ],
)
def test_header_that_cannot_be_decoded_is_rejected(header: StreamHeader) -> None:
    with pytest.raises(InvalidEntry):
        check_commit(Commit(writes=(Write(stream=S, create=header),), at=1))


@pytest.mark.parametrize("key", [b"x", 5, "\udcff", ""])
def test_idempotency_key_must_be_text(key: Any) -> None:
    write = Write(stream=S, create=StreamHeader(S, 5))
    with pytest.raises(InvalidEntry, match="an idempotency key is text, not"):
        check_commit(Commit(writes=(write,), at=1, idempotency_key=key))
