"""Hits as lines and as data."""

from __future__ import annotations

from rich.cells import cell_len

from perdure.apps.cli.sessions.search import ShownHit, hit_data, hit_lines
from perdure.apps.terminal.style import Style
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import SessionInfo
from perdure.session.search.values import Hit

PLAIN, COLOURED = Style(), Style(is_coloured=True)


INFO = SessionInfo(StreamId("s"), "session", "user", 0, 0, title="Trip", cwd="/home/mira/tide")


def hit(snippet: str, *marks: tuple[int, int], is_on_branch: bool = True) -> ShownHit:
    found = Hit(StreamId("s"), EntryId("s/1"), None, "user", 0, snippet, marks, 0.5, is_on_branch)
    return ShownHit(found, INFO, "s")


def test_matches_are_in_brackets_if_colours_are_disabled() -> None:
    heading, line, command = hit_lines([hit("the tide table", (4, 8))], 80, PLAIN)

    assert heading.startswith("Trip  tide  user  19")
    assert command == "  perdure sessions read s 1"
    assert line == "  the [tide] table"


def test_hits_of_one_session_are_below_one_title() -> None:
    other = SessionInfo(StreamId("o"), "session", "user", 0, 0, title="Other")
    found = Hit(StreamId("o"), EntryId("o/2"), None, "user", 0, "second", (), 0.4, True)
    hits = [hit("first"), ShownHit(found, other, "o"), hit("third", is_on_branch=False)]
    lines = list(hit_lines(hits, 80, PLAIN))

    assert lines[0] == "Trip  tide  2 hits"
    assert [line.strip() for line in (lines[1], lines[3])] == ["first", "third"]
    assert lines[2].startswith("  perdure sessions read s 1  # user  19")
    assert lines[4].endswith("  another branch")
    assert lines[5].startswith("Other  user  19")
    assert lines[6:] == ["  second", "  perdure sessions read o 2"]


def test_matches_are_coloured_if_colours_are_enabled() -> None:
    _, line, _ = hit_lines([hit("the tide table", (4, 8))], 80, COLOURED)

    assert line == "  the \x1b[1;33mtide\x1b[0m table"


def test_hit_on_another_branch_is_marked() -> None:
    heading, *_ = hit_lines([hit("x", is_on_branch=False)], 80, PLAIN)

    assert heading.endswith("another branch")


def test_long_snippet_is_wrapped_at_spaces() -> None:
    lines = list(hit_lines([hit("word " * 30 + "酒店 end", (150, 152))], 40, PLAIN))

    assert all(cell_len(line) <= 40 for line in lines)
    assert "[酒店] end" in lines[-2]


def test_control_characters_do_not_reach_the_terminal() -> None:
    _, line, _ = hit_lines([hit("a\x1b[2J b", (6, 7))], 80, PLAIN)

    assert "\x1b" not in line
    assert line.endswith("[b]")


def test_search_hit_in_a_title_has_no_entry_id() -> None:
    found = Hit(StreamId("s"), None, None, "title", 0, "Trip", ((0, 4),), 1.0, True)
    title = ShownHit(found, INFO, "s")

    assert list(hit_lines([title], 80, PLAIN))[-1] == "  perdure sessions read s"
    data = hit_data(title)
    assert (data["session"], data["entry_id"], data["on_branch"]) == ("s", None, True)
    assert data["at"] == "1970-01-01T00:00:00.000Z"
