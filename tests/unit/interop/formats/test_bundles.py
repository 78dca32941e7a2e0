"""The final state of a bundle, and the bundles of single branches."""

from __future__ import annotations

from perdure.interop.formats import native
from perdure.interop.formats.bundles import branch_of, cut_to, leaf_of, moved_to, standing_of
from perdure.session.codec import Unknown, readable
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction
from perdure.session.ledger import TurnStarted
from perdure.session.messages import assistant, user
from perdure.session.notes import (
    CompactionUndone,
    Label,
    LeafMoved,
    SessionInfoChanged,
    SessionStarted,
)
from tests.fakes.bundles import Making


def branching() -> tuple[Making, list[EntryId]]:
    """Return two branches below the first message, with notes; the leaf is on the second."""
    making = Making()
    making.note(SessionStarted(system_prompt="Be kind."))
    first = making.say(user("one"))
    left = making.say(assistant("left"))
    making.note(Label("old"), left)
    right = making.say(assistant("right"), parent=first)
    making.note(TurnStarted(1, "a"))
    making.note(Label("new"), right)
    last = making.say(Compaction("so far", first_kept=right))
    making.note(CompactionUndone(), last)
    making.note(SessionInfoChanged(title="  A\nday ", cwd="/srv/b"))
    return making, [first, left, right, last]


def test_session_state_is_computed_from_exported_entries() -> None:
    making, (first, left, right, last) = branching()
    standing = standing_of(making.made())
    assert (standing.leaf, standing.title, standing.cwd) == (last, "A\nday", "/srv/b")
    assert standing.labels == {left: "old", right: "new"}
    assert standing.undone == {last}
    assert standing.system_prompt == "Be kind."
    making.note(LeafMoved(first))
    assert leaf_of(making.entries) == first
    making.note(SessionInfoChanged(title=None))
    assert standing_of(making.made()).title is None


def test_move_to_the_current_leaf_appends_no_entry() -> None:
    making, (first, _, _, last) = branching()
    bundle = making.made()
    assert moved_to(bundle, last) is bundle
    moved = moved_to(bundle, first)
    assert leaf_of(moved.entries) == first
    assert moved.entries[:-1] == bundle.entries
    assert [entry.seq for entry in moved.entries] == list(range(len(moved.entries)))


def test_branch_cut_from_a_session_gets_new_entry_numbers() -> None:
    making, (first, left, _, last) = branching()
    making.aliases = {"f": first, "l": left}
    cut = cut_to(making.made(), last)
    assert [entry.seq for entry in cut.entries] == list(range(len(cut.entries)))
    tree = [entry for entry in cut.entries if entry.lane == "tree"]
    assert [entry.id for entry in tree] == [e.id for e in branch_of(cut, leaf_of(cut.entries))]
    assert len(tree) == len(branch_of(making.made(), last)) == 3
    assert list(standing_of(cut).labels.values()) == ["new"]
    assert standing_of(cut).undone == {tree[-1].id}
    compaction = readable(tree[-1])
    assert isinstance(compaction, Compaction)
    assert compaction.first_kept == tree[1].id
    assert list(cut.aliases) == ["f"]
    assert not any(entry.kind == TurnStarted.kind for entry in cut.entries)
    again = native.parse(native.write_bundle(cut), "cut")
    assert again.entries == cut.entries


def test_branch_before_root_is_empty() -> None:
    making, _ = branching()
    cut = cut_to(making.made(), None)
    assert not any(entry.lane == "tree" for entry in cut.entries)


def test_unreadable_entries_of_an_exported_session_cause_no_error() -> None:
    making = Making()
    making.raw("compaction", b'{"summary":1}')
    assert isinstance(readable(making.entries[0]), Unknown)
