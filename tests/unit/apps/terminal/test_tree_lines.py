"""The drawing of a tree: its form, its width, and its ASCII variant."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from perdure.apps.terminal.outline import draw, lines_of
from perdure.apps.terminal.style import Style
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import Compaction
from perdure.session.messages import assistant, tool_call, tool_result, user
from perdure.session.tree import index_of, nodes_of
from tests.fakes.tree_log import TreeLog

PLAIN = Style()
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def sample() -> TreeLog:
    log = TreeLog()
    log.append(user("Why is the table an hour off?"))
    log.append(assistant("Let me look.", tool_call("c1", "read", {"path": "table.py"})))
    log.append(tool_result("c1", "def rows(): ...", name="read"))
    choice = log.append(assistant("Two ways. Which one?"))
    log.append(user("The quick one"))
    log.append(assistant("That breaks October."))
    log.append(user("The thorough one"), parent=choice)
    log.append(Compaction("We know why.", tokens_before=9_000))
    log.append(assistant("Done."))
    return log


def picture(log: TreeLog, width: int = 64, style: Style = PLAIN, **options: int) -> list[str]:
    roots = nodes_of(index_of(log.entries), {EntryId("s/3"): "two ways"})
    lines = lines_of(roots, log.leaf, **options)
    return list(draw(lines, StreamId("s"), width, style))


def test_drawn_tree_matches_the_expected_lines() -> None:
    assert picture(sample()) == [
        "0 ● user       Why is the table an hour off?",
        "1 ● assistant  Let me look. → read table.py",
        "2 ○ tool       read: def rows(): ...",
        "3 ● assistant  Two ways. Which one?  [two ways]",
        "4 ├─● user       The quick one",
        "5 │ ● assistant  That breaks October.",
        "6 ● user       The thorough one",
        "7 ◆ compaction 9,000 tokens → We know why.",
        "8 ● assistant  Done.  ◀ here",
    ]


def test_tree_without_unicode_is_drawn_in_ascii() -> None:
    lines = picture(sample(), style=Style(is_unicode=False))
    assert lines[4:6] == ["4 |-* user       The quick one", "5 | * assistant  That breaks October."]
    assert lines[8] == "8 * assistant  Done.  < here"
    assert lines[1].isascii() is False  # the arrow is content, which the stream replaces


def test_colours_do_not_change_the_text() -> None:
    coloured = picture(sample(), style=Style(is_coloured=True))
    assert [COLOURS.sub("", line) for line in coloured] == picture(sample())
    assert all("\x1b[" in line for line in coloured)


@pytest.mark.parametrize("width", [40, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    log = sample()
    log.append(user("漢字 " * 60))
    for _ in range(30):
        log.append(user("deeper " * 20), parent="s/3")
        log.append(user("and deeper " * 20), parent=f"s/{len(log.entries) - 1}")
    log.leaf = EntryId("s/8")
    assert all(cell_len(line) <= width for line in picture(log, width))


def test_very_deep_branches_are_not_indented_further() -> None:
    log = TreeLog()
    log.append(user("0"))
    for number in range(60):
        above = f"s/{2 * number}"
        log.append(user("left"), parent=above)
        log.append(user("on"), parent=above)
    # From the leaf's view each further entry lies one branch deeper.
    log.leaf = EntryId("s/1")
    lines = picture(log, 80)
    assert len(lines) == 121
    assert all(cell_len(line) <= 80 for line in lines)


def test_folded_tree_shows_the_number_of_hidden_rows() -> None:
    log = TreeLog()
    for _ in range(40):
        log.extend(user("q"), assistant("a"), tool_result("c", "r"))
    lines = picture(log, limit=10)
    assert len(lines) <= 10
    assert any(re.search(r"┆ \d+ more: \d+ assistant", line) for line in lines)


def test_entries_that_a_fork_inherits_have_an_arrow() -> None:
    origin = TreeLog("origin")
    origin.append(user("shared"))
    fork = TreeLog("s", origin)
    fork.append(user("own"))
    roots = nodes_of(index_of([*origin.entries, *fork.entries]), {})
    lines = list(draw(lines_of(roots, fork.leaf), StreamId("s"), 60, PLAIN))
    assert lines == ["↑0 ● user       shared", " 0 ● user       own  ◀ here"]


def test_entry_content_cannot_draw_over_the_tree() -> None:
    log = TreeLog()
    log.append(user("\x1b[2J\nowned\u202e"))
    (line,) = picture(log)
    assert "\x1b" not in line
    assert "\u202e" not in line
