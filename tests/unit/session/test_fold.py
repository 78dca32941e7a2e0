from __future__ import annotations

from msgspec.structs import replace

from perdure.session.codec import encode, new_side
from perdure.session.entries import Entry
from perdure.session.fold import first_kept_by, labels_of, state_after, undone_of, window_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import Compaction, ModelChange, ThinkingChange
from perdure.session.messages import user
from perdure.session.notes import CompactionUndone, Label, SideBody
from tests.fakes.tree_log import TreeLog


def side_entry(body: SideBody, about: str | None, seq: int = 9) -> Entry:
    new = new_side(body)
    place = None if about is None else EntryId(about)
    return Entry(StreamId("s"), seq, "side", None, place, 0, new.kind, new.v, new.body)


def labels_after(*said: tuple[str | None, str | None]) -> dict[EntryId, str]:
    return labels_of(side_entry(Label(text), about) for about, text in said)


def test_last_label_of_an_entry_replaces_earlier_labels() -> None:
    assert labels_after(("s/1", "a"), ("s/2", "b"), ("s/1", "c")) == {"s/1": "c", "s/2": "b"}
    assert labels_after(("s/1", "a"), ("s/1", None)) == {}
    assert labels_after(("s/1", "a"), ("s/1", "")) == {}
    assert labels_after(("s/1", None), (None, "x")) == {}


def test_unreadable_label_entry_changes_no_label() -> None:
    good = side_entry(Label("a"), "s/1")
    damaged = Entry(StreamId("s"), 10, "side", None, EntryId("s/1"), 0, "label", 1, b"{")
    newer = Entry(StreamId("s"), 11, "side", None, EntryId("s/1"), 0, "label", 99, b"{}")
    assert labels_of([good, damaged, newer]) == {"s/1": "a"}


def test_compaction_is_undone_only_if_an_undo_entry_refers_to_it() -> None:
    undone = [side_entry(CompactionUndone(), "s/4"), side_entry(CompactionUndone(), None)]
    assert undone_of([*undone, side_entry(Label("x"), "s/5")]) == {"s/4"}


def test_empty_branch_has_an_empty_window() -> None:
    window = window_of([])
    assert (window.leaf, window.entries, window.hidden) == (None, (), 0)


def test_window_without_compaction_is_the_whole_branch() -> None:
    log = TreeLog()
    log.extend(user("a"), user("b"))
    assert log.window().entries == tuple(log.entries)
    assert log.window().hidden == 0


def test_window_starts_at_first_kept_entry() -> None:
    log = TreeLog()
    _, kept = log.extend(user("a"), user("b"))
    compacted = log.append(Compaction("so far", first_kept=kept))
    log.append(user("c"))
    window = log.window()
    assert [entry.seq for entry in window.entries] == [1, 2, 3]
    assert window.hidden == 1
    assert window.state.compaction is not None
    assert window.state.compaction.id == compacted


def test_window_begins_at_a_compaction_without_kept_entries() -> None:
    for first_kept in (None, EntryId("s/9"), EntryId("s/2"), EntryId("elsewhere/0")):
        log = TreeLog()
        log.extend(user("a"), user("b"), Compaction("so far", first_kept=first_kept), user("c"))
        assert [entry.seq for entry in log.window().entries] == [2, 3]


def test_second_compaction_can_restore_entries_hidden_by_the_first() -> None:
    log = TreeLog()
    first, second = log.extend(user("a"), user("b"))
    log.extend(Compaction("one", first_kept=second), user("c"), Compaction("two", first_kept=first))
    assert [entry.seq for entry in log.window().entries] == [0, 1, 2, 3, 4]


def test_erased_compaction_hides_no_entry() -> None:
    log = TreeLog()
    log.extend(user("a"), user("b"))
    erased = log.append(Compaction("so far"))
    log.append(user("c"))
    path = [replace(each, body=b"") if each.id == erased else each for each in log.entries]
    window = window_of(path)
    assert [entry.seq for entry in window.entries] == [0, 1, 2, 3]
    assert (window.state.compaction, window.undone) == (None, {erased})


def test_undone_compaction_restores_the_window_of_the_previous_compaction() -> None:
    log = TreeLog()
    _, kept = log.extend(user("a"), user("b"))
    older = log.append(Compaction("one", first_kept=kept))
    newer = log.append(Compaction("two"))
    assert [entry.seq for entry in log.window().entries] == [3]
    log.undone.add(newer)
    assert [entry.seq for entry in log.window().entries] == [1, 2, 3]
    assert log.window().undone == {newer}
    log.undone.add(older)
    window = log.window()
    assert (window.hidden, window.undone) == (0, {older, newer})
    assert window.state.compaction is None


def test_newest_setting_on_a_branch_applies() -> None:
    log = TreeLog()
    log.extend(ModelChange("a:1"), ThinkingChange("low"), ModelChange("a:2"), user("x"))
    state = log.window().state
    assert state.model_change == log.entries[2]
    assert state.thinking_change == log.entries[1]
    elsewhere = log.append(user("y"), parent="s/0")
    assert log.window(elsewhere).state.model_change == log.entries[0]
    assert log.window(elsewhere).state.thinking_change is None


def test_message_entry_changes_no_setting() -> None:
    log = TreeLog()
    log.append(user("a"))
    state = log.window().state
    assert state_after(state, log.entries[0]) is state


def test_unreadable_compaction_has_no_first_kept_entry() -> None:
    log = TreeLog()
    log.append(user("a"))
    log.append_raw("compaction", b"{", v=1)
    log.append_raw("compaction", encode(Compaction("x", first_kept=EntryId("s/0"))), v=99)
    assert [first_kept_by(entry) for entry in log.entries] == [None, None, None]
    assert [entry.seq for entry in log.window().entries] == [2]
