"""Printed text neither controls the terminal nor leaves its line."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from rich.cells import cell_len

from perdure.apps.terminal.text import clip, clip_path, one_line, pad, safe, shorten_echoes, wrap


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2J\x1b]0;owned\x07",
        "a\x9b31mb",
        "\u202egnp.exe",
        "\u2066\u2069\u200e",
        "\u2028\u2029\x85",
        "\ud800",
        "a\rb\x08c\x7f",
    ],
)
def test_control_sequences_are_not_printed(text: str) -> None:
    shown = safe(text)
    assert "\ufffd" in shown
    assert all(c in {"\n", "\t"} or c.isprintable() for c in shown)


def test_letters_of_all_languages_are_printed_unchanged() -> None:
    text = "æøå 漢字 עברית 🐌 é\n\tindented"
    assert safe(text) == text


@given(st.text(max_size=200), st.integers(min_value=1, max_value=60))
def test_text_is_reduced_to_one_line_that_fits(text: str, width: int) -> None:
    line = one_line(text, width)
    assert "\n" not in line
    assert cell_len(line) <= width
    assert line == safe(line)


def test_cut_line_is_marked_as_cut() -> None:
    assert one_line("one two three", 8) == "one two…"
    assert one_line("one  \n two", 20) == "one two"
    assert one_line("x" + " " * 5_000 + "y", 10).endswith("…")
    assert one_line("漢字漢字", 5) == "漢字…"


def test_text_is_cut_by_display_width() -> None:
    assert clip("漢字", 4) == "漢字"
    assert clip("漢字", 3) == "漢…"
    assert clip("abc", 0) == ""


def test_padding_fills_up_to_width_and_never_truncates() -> None:
    assert pad("漢", 4) == "漢  "
    assert pad("abcdef", 3) == "abcdef"


@pytest.mark.parametrize("long", ["x" * 5000, "it's a page " * 400, "--limit=" + "9" * 5000])
def test_long_typed_text_is_shortened_in_errors(long: str) -> None:
    part = long.rpartition("=")[2]
    for message in (f"no session {part!r} here", f"{part}: name too long"):
        told = shorten_echoes(message, ["sessions", "show", long])
        assert len(told) < 120
        assert "… (" in told
        assert told.endswith(message[-4:])


def test_short_typed_text_is_not_shortened_in_errors() -> None:
    assert shorten_echoes("no session 'x' here", ["x"]) == "no session 'x' here"


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 8, ["one two", "three"]),
        ("one  two", 8, ["one  two"]),
        ("  one two", 6, ["  one", "two"]),
        ("", 8, [""]),
        ("文件 不存在 了", 8, ["文件", "不存在", "了"]),
        ("🐌🐌 🐌🐌 ok", 9, ["🐌🐌 🐌🐌", "ok"]),
        ("run `perdure chat -m X`, then", 20, ["run", "`perdure chat -m X`,", "then"]),
        ("run (`a b`) now", 9, ["run", "(`a b`)", "now"]),
        ("`a bb ccc dddd` e", 8, ["`a bb", "ccc", "dddd` e"]),
        ("it`s one two", 8, ["it`s one", "two"]),
        ("/" + "long" * 5 + " end", 8, ["/" + "long" * 5, "end"]),
    ],
)
def test_text_is_wrapped_by_display_width(text: str, width: int, lines: list[str]) -> None:
    assert list(wrap(text, width)) == lines


@given(st.text("ab `漢🐌\u0301", max_size=100), st.integers(min_value=1, max_value=30))
def test_wrapped_text_loses_no_word_and_fits(text: str, width: int) -> None:
    lines = list(wrap(text, width))
    assert " ".join(lines).split() == text.split()
    assert all(cell_len(line) <= width or " " not in line.strip() for line in lines)


@given(st.text(max_size=60), st.integers(-1, 40))
def test_shortened_path_fits_the_width(path: str, width: int) -> None:
    assert cell_len(clip_path(safe(path), width)) <= max(width, 0)


def test_path_is_cut_in_the_middle_and_keeps_file_name() -> None:
    path = "packages/agent/src/modes/theme/dark.json"
    assert clip_path(path, 60) == path
    assert clip_path(path, 30) == "packages/a…des/theme/dark.json"
    assert clip_path(path, 12) == "p…/dark.json"
    assert clip_path(path, 6) == "….json"
    assert clip_path("文件夹/很长的文件夹名字/文件.py", 16) == "文件…字/文件.py"
    assert clip_path("文件夹文件夹.py", 14) == "…件夹文件夹.py"
    assert clip_path("a/文件夹文件夹.py", 16) == "…文件夹文件夹.py"
