"""Functions without a screen: completion, the gauge, folding of trees, themes."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import assistant, user
from perdure.apps.chat.attachments import attach
from perdure.apps.chat.files import files_below
from perdure.apps.chat.slash_commands import HELP
from perdure.apps.cli.exits import PathNotFound
from perdure.apps.terminal.costs import cost_text
from perdure.apps.terminal.outline import Row
from perdure.apps.tui.completion import Offers, offers_for
from perdure.apps.tui.gauge import Numbers, gauge_line
from perdure.apps.tui.program import KEYS, theme_of
from perdure.apps.tui.text import hanging
from perdure.apps.tui.tree_rows import folded_at, tree_state, unfolded, visible, with_visible
from perdure.client.store import Store
from perdure.errors import LimitExceeded, WrongArgument
from perdure.session.ids import EntryId
from perdure.session.messages import Usage
from perdure.session.records import UsageTotal

COMMANDS = {"/tree": "", "/thinking": "", "/attach": ""}
FILES = ["notes.txt", "src/sea.py", "src/seaside.py"]


def offered(line: str, *, is_first: bool = True) -> tuple[str, ...]:
    """Return the completions at the end of `line`."""
    found = offers_for(line, len(line), is_first=is_first, commands=COMMANDS, files=FILES)
    return found.values if found is not None else ()


def test_completion_offers_matches_before_the_cursor() -> None:
    assert offered("/t") == ("/tree", "/thinking")
    assert offered("/tree") == ()
    assert offered("/thinking h") == ("high",)
    assert offered("/t", is_first=False) == ()
    assert offered("look at @sea") == ("src/sea.py", "src/seaside.py")
    assert offered("look at @notes.txt") == ()
    assert offered("mail@sea") == ()
    assert offered("@sea and") == ()
    assert offered("/attach note") == ("notes.txt",)
    assert offers_for("@", 1, is_first=True, commands={}, files=[]) is None
    assert isinstance(offers_for("a @n", 4, is_first=True, commands={}, files=FILES), Offers)


def test_files_are_listed_nearest_first_without_hidden_folders(tmp_path: Path) -> None:
    for name in ("b.txt", "src/deep/c.py", ".git/config", "src/a.py", "line\nbreak"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert files_below(tmp_path) == ["b.txt", "src/a.py", "src/deep/c.py"]
    assert files_below(tmp_path / "none") == []


def test_narrow_status_line_omits_the_least_important_numbers_first() -> None:
    numbers = Numbers(
        "anthropic:claude", "high", "/tmp/x", 12_345_678, 0, 1_000, 20, 50_000, 200_000, "running"
    )
    wide = gauge_line(numbers, 150)
    assert "anthropic:claude (high)" in wide
    assert "$0.12" in wide
    assert "25% of 200k" in wide
    assert wide.endswith("/tmp/x")
    narrow = gauge_line(numbers, 60)
    assert len(narrow) <= 60
    assert narrow.startswith("running · anthropic:claude (high) · $0.12")


def test_status_line_rounds_a_cost_like_the_usage_command() -> None:
    """The status line once showed `$0.1948555+?`, and `perdure usage` showed `$0.1949+`."""
    numbers = Numbers(
        "anthropic:claude", None, "/tmp/x", 19_485_550, 1, 1_000, 20, 50_000, 200_000, "running"
    )
    total = UsageTotal("x", 2, Usage(1, cost_microcents=19_485_550), 1, 1)
    assert cost_text(total) == "$0.1949+"
    assert " · $0.1949+? · " in gauge_line(numbers, 150)


@pytest.mark.parametrize(
    ("wanted", "environment", "theme"),
    [
        ("auto", {"TERM": "xterm-256color"}, "textual-dark"),
        ("auto", {"TERM": "xterm-256color", "COLORFGBG": "0;15"}, "textual-light"),
        ("light", {"COLORTERM": "truecolor"}, "textual-light"),
        ("dark", {"TERM": "xterm-256color", "COLORFGBG": "0;15"}, "textual-dark"),
        ("auto", {"TERM": "xterm"}, "ansi-dark"),
        ("light", {"TERM": "xterm-256color", "NO_COLOR": "1"}, "ansi-light"),
        ("terminal", {"TERM": "xterm-256color"}, "ansi-dark"),
    ],
)
def test_theme_follows_setting_and_terminal(
    wanted: str, environment: dict[str, str], theme: str
) -> None:
    assert theme_of(wanted, environment) == theme


async def test_parts_of_the_tree_can_be_folded_and_unfolded(store: Store) -> None:
    session = await store.create()
    first = await session.append(user("Where to?"))
    await session.append(*(assistant(f"Step {n}") for n in range(5)))
    await session.branch(first.id)
    await session.append(assistant("By train."))
    state = tree_state(await session.tree(), session.leaf)

    def lines() -> list[str]:
        return [
            str(each.entry.seq) if isinstance(each, Row) else f"+{each.count}"
            for each in visible(state)
        ]

    assert lines() == ["0", "1", "+3", "5", "7"]
    state = unfolded(state, visible(state)[2])
    assert lines() == ["0", "1", "2", "3", "4", "5", "7"]
    state = folded_at(state, visible(state)[4])
    assert lines() == ["0", "1", "+4", "7"]
    state = with_visible(state, EntryId(f"{session.id}/3"))
    assert lines() == ["0", "1", "2", "3", "4", "5", "7"]


def test_binary_missing_or_huge_file_cannot_be_attached(tmp_path: Path) -> None:
    (tmp_path / "code.md").write_text("```\nx\n```\n")
    found = attach("code.md", tmp_path)
    assert found.content == "code.md:\n````\n```\nx\n```\n````"
    (tmp_path / "data.bin").write_bytes(b"\0\1\2")
    with pytest.raises(WrongArgument, match="neither text nor"):
        attach("data.bin", tmp_path)
    with pytest.raises(PathNotFound):
        attach("none", tmp_path)
    with (tmp_path / "big.txt").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(LimitExceeded):
        attach("big.txt", tmp_path)


def test_help_is_not_wrapped_in_80_columns() -> None:
    lines = [*HELP.splitlines(), *KEYS.splitlines()]
    assert [line for line in lines if len(line) > 75] == []


def test_rows_of_a_long_line_keep_its_indentation() -> None:
    drawn = hanging(f"    +{'word ' * 12}", 30).plain.splitlines()
    assert drawn[0] == "    +word word word word word "
    assert drawn[1] == "    … word word word word "
    assert all(row.startswith("    … ") for row in drawn[1:])
    assert max(map(len, drawn)) <= 30
    assert "".join(row.removeprefix("    … ") for row in drawn) == f"    +{'word ' * 12}"
    assert hanging("x" * 45, 30).plain == f"{'x' * 30}\n… {'x' * 15}"
    assert hanging("海" * 30, 20).plain.split("\n")[0] == "海" * 10
    assert hanging("", 20).plain == ""
