"""What is printed of an approval."""

from __future__ import annotations

from perdure.apps.terminal.approvals import BAR, approval_lines
from perdure.session.notes import Question


def lines(limit: int | None = 3, **fields: object) -> list[str]:
    choices = ("allow", "always", "deny")
    asked = Question("approval", "May it?", choices, **fields)  # pyright: ignore[reportArgumentType] - a test
    return list(approval_lines(asked, limit=limit))


def test_every_argument_and_fact_is_printed() -> None:
    shown = lines(
        arguments={"path": "a", "n": 1, "empty": ""}, bound={"file": "/w/a"}, grant="write_file a"
    )
    assert shown == [
        "  path = a",
        "  n = 1",
        "  empty = (empty)",
        "  file: /w/a",
        "  always: from now on in this session, without asking: write_file a",
    ]


def test_long_text_is_cut_unless_all_is_wanted() -> None:
    text = "\n".join("abcdef")
    assert lines(arguments={"content": text})[-1] == "    [3 more lines]"
    assert len(lines(None, arguments={"content": text})) == 7
    cut: dict[str, object] = {"head": "begin", "bytes": 9, "blake2b_256": "ab"}
    assert lines(arguments={"content": cut}) == [
        "  content: 9 bytes, blake2b-256 ab, begins:",
        f"{BAR}begin",
    ]


def test_content_cannot_pass_for_a_line_of_the_program_or_move_the_cursor() -> None:
    hostile = "x\n  file: /harmless\r\x1b[2K\u202e"
    shown = lines(
        None, arguments={"content": hostile, "a\nb": "c"}, bound={"file": "y\nz"}, diff=hostile
    )
    assert sum(line.startswith("  file: ") for line in shown) == 1
    assert not any("\x1b" in line or "\r" in line or "\u202e" in line for line in shown)
    assert not any("\n" in line for line in shown)


def test_always_is_not_printed_where_it_is_no_choice() -> None:
    asked = Question("approval", "May it?", ("allow", "deny"), grant="x")
    assert list(approval_lines(asked)) == []
