"""The effect of each key on a selection."""

from __future__ import annotations

import pytest

from perdure.apps.picker.selection import (
    PAGE,
    Chosen,
    State,
    after,
    choices_of,
    first_state,
    keys_in,
)
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo


def info(name: str, cwd: str | None = "/here") -> SessionInfo:
    id_ = StreamId(name.lower().replace(" ", "-"))
    return SessionInfo(id_, "session", "user", 0, 0, title=name, cwd=cwd)


HERE = tuple(info(f"Session {number}") for number in range(25))
ELSEWHERE = (info("Tide table", "/there"), info("No folder", None))


@pytest.fixture
def state() -> State:
    return first_state(choices_of(HERE + ELSEWHERE), "/here")


def press(state: State, typed: str) -> State:
    for key in keys_in(typed):
        moved = after(state, key)
        assert isinstance(moved, State)
        state = moved
    return state


def names(state: State) -> list[str]:
    return [choice.info.name for choice in state.fitting]


def test_sessions_of_current_folder_are_listed_first(state: State) -> None:
    assert names(state) == [each.name for each in HERE]
    assert names(press(state, "\t")) == [each.name for each in HERE + ELSEWHERE]
    assert names(press(state, "\t\t")) == names(state)


def test_picker_offers_all_sessions_if_the_folder_has_no_session() -> None:
    assert first_state(choices_of(ELSEWHERE), "/here").is_everywhere


def test_typing_reduces_the_matches_and_deleting_restores_them(state: State) -> None:
    narrow = press(state, "24")
    assert names(narrow) == ["Session 24"]
    assert names(press(narrow, "\x7f")) == names(press(state, "2"))
    assert press(narrow, "\x15") == state
    assert press(press(state, "session 24"), "\x17").query == "session"


def test_typing_moves_the_mark_back_to_the_best_match(state: State) -> None:
    assert press(press(state, "\x1b[B\x1b[B"), "1").marked == 0


@pytest.mark.parametrize(
    ("typed", "marked"),
    [
        ("\x1b[B", 1),
        ("\x0e\x0e\x10", 1),
        ("\x1b[A", 0),
        ("\x1b[6~", PAGE),
        ("\x1b[6~\x1b[6~\x1b[6~", 24),
        ("\x1b[F", 24),
        ("\x1b[F\x1b[B", 24),
        ("\x1b[F\x1b[H", 0),
        ("\x1bOB\x1bOA", 0),
        ("\x1b[Z\x1b[200~\x1b[201~\x07", 0),
    ],
)
def test_selection_mark_never_leaves_the_list(state: State, typed: str, marked: int) -> None:
    assert press(state, typed).marked == marked


def test_enter_selects_the_marked_item(state: State) -> None:
    chosen = after(press(state, "\x1b[B"), "enter")
    assert isinstance(chosen, Chosen)
    assert chosen.choice is not None
    assert chosen.choice.info == HERE[1]


def test_enter_key_without_a_match_does_nothing(state: State) -> None:
    empty = press(state, "zebra")
    assert after(empty, "enter") == empty
    assert empty.choice is None


@pytest.mark.parametrize("key", ["\x1b", "\x03", "\x04"])
def test_picker_can_be_closed_without_selection(state: State, key: str) -> None:
    (name,) = keys_in(key)
    assert after(state, name) == Chosen(None)


def test_key_names_in_pasted_text_are_typed_as_text() -> None:
    assert list(keys_in('\x1b[200~"tide table" 漢字\x1b[201~\r')) == [
        'text:"tide table" 漢字',
        "enter",
    ]
