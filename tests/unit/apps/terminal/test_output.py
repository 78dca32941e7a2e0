"""The output of the program, and a reader that closes it."""

from __future__ import annotations

import io
import json
import os
import sys
import termios
from typing import Any

import pytest

from perdure.apps.terminal.output import (
    OutputClosed,
    count_of,
    remark,
    show,
    show_error,
    show_failure,
    show_json,
    size,
    width,
)
from perdure.apps.terminal.style import Style
from perdure.errors import ConfigError, HeadConflict


class Closed(io.RawIOBase):
    """A pipe that nobody reads."""

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        raise BrokenPipeError


def test_output_to_a_closed_stream_raises_output_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buffer = io.BufferedWriter(Closed(), buffer_size=1)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, write_through=True))
    with pytest.raises(OutputClosed):
        show("x" * 100)
    with pytest.raises(OutputClosed):
        show_json({"x": "y" * 100}, is_flushed=True)


def test_json_is_one_line_of_utf8_without_control_characters(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    show("before")
    show_json({"a": "é\u2028\x9b"})
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b'before\n{"a":"\xc3\xa9\\u2028\\u009b"}\n'


def test_output_replaces_control_characters_except_colour_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(Style(is_coloured=True).paint("a", "bad") + "\x1b[5mb\x9b\u061c")
    remark("c\x1b]0;t\x07")
    said = capsys.readouterr()
    assert said.out == "\x1b[1;31ma\x1b[0m\ufffd[5mb\ufffd\ufffd\n"
    assert said.err == "c\ufffd]0;t\ufffd\n"


def test_error_output_masks_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    key = "sk-ant-api03-" + "abcdefghijklm" * 2
    error = ConfigError(f"refused: postgresql://ana:hunter22@db/x and {key}")
    show_error(error, as_json=False)
    show_error(error, as_json=True)
    said = capsys.readouterr().err
    assert "hunter22" not in said
    assert "sk-ant" not in said
    assert said.count("[redacted]") == 4


def test_error_is_printed_as_one_sentence_or_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = HeadConflict("s1", 3, 5)
    show_error(error, as_json=False)
    show_error(error, as_json=True)
    text, data = capsys.readouterr().err.splitlines()
    assert text == f"perdure: {error}"
    assert json.loads(data) == {
        "error": {
            "code": "head_conflict",
            "message": str(error),
            "stream": "s1",
            "expected": 3,
            "actual": 5,
        }
    }


def test_extra_field_named_code_does_not_replace_the_error_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_failure("x", "y", {"code": "lie", "extra": object}, as_json=False)
    show_failure("x", "y", {"code": "lie"}, as_json=True)
    assert json.loads(capsys.readouterr().err.splitlines()[1])["error"]["code"] == "x"


def test_numbers_are_formatted_with_separators_and_units() -> None:
    assert size(999) == "999 bytes"
    assert size(23_166) == "23.2 kB"
    assert size(3_000_000_000_000) == "3,000.0 GB"
    assert count_of(1, "entry", "entries") == "1 entry"
    assert count_of(1_000, "entry", "entries") == "1,000 entries"
    assert count_of(0, "label") == "0 labels"


def test_output_width_comes_from_the_variable_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "132")
    assert width() == 132
    monkeypatch.setenv("COLUMNS", "5")
    assert width() == 40


def test_invalid_utf8_in_an_error_is_replaced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts: dict[str, object] = {
        "path": "a\udcff",
        "choices": ("b\udcfe", 1),
        "at": {"\udcff": None},
    }
    show_failure("x", "no \udcff", facts, as_json=True)
    error = json.loads(capsys.readouterr().err)["error"]
    assert error == {
        "path": "a\ufffd",
        "choices": ["b\ufffd", 1],
        "at": {"\ufffd": None},
        "code": "x",
        "message": "no \ufffd",
    }


def test_error_on_a_terminal_is_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 44))
    monkeypatch.setenv("NO_COLOR", "1")
    told = b""
    with os.fdopen(ours, "rb", buffering=0), os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        for message in (
            "a new session needs a model: name one with -m PROVIDER",
            f"no {'long' * 20}\n\nend",
            "文件不存在 文件不存在 文件不存在",
            "one two three: run `perdure chat -m MODEL`",
        ):
            show_failure("x", message, as_json=False)
        print("end of the output", file=terminal, flush=True)
        while not told.endswith(b"end of the output\r\n"):  # one read may return a part of a line
            told += os.read(ours, 4096)
    assert told.decode().splitlines()[:-1] == [
        "perdure: a new session needs a model: name",
        "one with -m PROVIDER",
        "perdure: no",
        "long" * 20,  # a path or an id can still be copied
        "",
        "end",
        "perdure: 文件不存在 文件不存在 文件不存在",
        "perdure: one two three: run",
        "`perdure chat -m MODEL`",  # can be copied
    ]
