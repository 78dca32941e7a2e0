"""Colours are used only if they are wanted and the output can show them."""

from __future__ import annotations

import io

import pytest

from perdure.apps.terminal.style import Style, style_for


class Terminal(io.TextIOWrapper):
    """A stream that reports to be a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "is_coloured"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_terminal_is_coloured_unless_unsupported_or_disabled(
    environment: dict[str, str], is_coloured: bool
) -> None:
    assert style_for(Terminal(), environment).is_coloured is is_coloured


def test_output_to_file_or_pipe_has_no_colour() -> None:
    assert not style_for(io.StringIO(), {"TERM": "xterm"}).is_coloured


def test_lines_are_drawn_in_ascii_if_encoding_requires_it() -> None:
    assert style_for(Terminal("utf-8"), {}).is_unicode
    assert not style_for(Terminal("latin-1"), {}).is_unicode


def test_paint_adds_colour_codes_only_if_colours_are_enabled() -> None:
    assert Style().paint("x", "bad") == "x"
    assert Style(is_coloured=True).paint("x", "bad") == "\x1b[1;31mx\x1b[0m"
    assert Style(is_coloured=True).paint("x", "plain") == "x"
    assert Style(is_coloured=True).paint("", "bad") == ""
