"""The lines that the picker shows."""

from __future__ import annotations

from rich.cells import cell_len

from perdure.apps.picker.screen import view_lines
from perdure.apps.picker.selection import State, after, choices_of, first_state
from perdure.apps.terminal.style import Style
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo
from tests.fakes.samples import case

PLAIN = Style()


def state(count: int = 30, query: str = "") -> State:
    infos = [
        SessionInfo(
            StreamId(f"id-{number}"),
            "session",
            "user",
            0,
            number,
            title=f"Title {number} 漢字 \x1b[31m" * 5,
            cwd="/here",
            messages=number,
        )
        for number in range(count)
    ]
    return first_state(choices_of(infos), "/here", query)


def test_picker_fills_the_terminal_height_and_fits_its_width() -> None:
    for columns in [20, 40, 80, 200]:
        for rows in [7, 24]:
            for count in [1, 3, 30]:
                with case((columns, rows, count)):
                    lines = list(view_lines(state(count), columns, rows, PLAIN))
                    assert len(lines) == rows
                    assert max(cell_len(line) for line in lines) <= columns
                    assert "\x1b" not in "".join(lines)


def test_marked_item_is_recognizable_without_colour() -> None:
    far = state()
    far = type(far)(
        far.choices, far.folder, is_everywhere=far.is_everywhere, fitting=far.fitting, marked=29
    )
    lines = list(view_lines(far, 80, 12, PLAIN))
    (marked,) = [line for line in lines[1:] if line.startswith(">")]
    assert "Title 29" in marked
    assert any("id-29" in line for line in lines)


def test_picker_reports_no_match() -> None:
    lines = list(view_lines(state(3, "zebra"), 80, 12, PLAIN))
    assert "nothing matches in this folder or in other folders" in "\n".join(lines)
    assert "0 of 3 sessions" in lines[0]
    assert len(lines) == 12


def test_picker_reports_matches_in_other_folders() -> None:
    elsewhere = SessionInfo(
        StreamId("far"), "session", "user", 0, 0, title="zebra", cwd="/there", messages=1
    )
    here = state(3).choices
    found = first_state((*here, *choices_of([elsewhere])), "/here", "zebra")
    lines = list(view_lines(found, 80, 12, PLAIN))
    assert "nothing matches in this folder; Tab lists 1 session of other folders" in lines[1]


def test_keys_of_the_picker_fit_80_columns() -> None:
    for shown in (state(3), after(state(3), "everywhere")):
        assert isinstance(shown, State)
        keys = list(view_lines(shown, 80, 12, Style(is_unicode=True)))[-1]
        assert keys.endswith("this folder" if shown.is_everywhere else "all folders")
        assert '"…" exact words' in keys


def test_tab_key_is_shown_with_its_effect_at_40_columns() -> None:
    for shown in (state(3), after(state(3), "everywhere")):
        assert isinstance(shown, State)
        for is_unicode in (True, False):
            keys = list(view_lines(shown, 40, 12, Style(is_unicode=is_unicode)))[-1]
            assert keys.startswith("Enter select")
            assert keys.endswith(f"Tab {'this folder' if shown.is_everywhere else 'all folders'}")


def test_end_of_typed_text_is_visible() -> None:
    assert "the end" in next(view_lines(state(3, "x" * 200 + "the end"), 60, 12, PLAIN))
