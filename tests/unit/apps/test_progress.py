from __future__ import annotations

import io
import sys

import pytest

from perdure.apps.progress import line, progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_line_shows_done_and_total() -> None:
    assert line("index", 0, 10).endswith("0 % of 10")
    assert line("index", 5, 10).endswith("50 % of 10")
    assert line("index", 20, 10).endswith("100 % of 10")
    assert line("index", 0, 0).endswith("100 % of 0")


def test_progress_is_shown_only_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        monkeypatch.setattr(sys, "stderr", stream)
        tell = progress_bar("index")
        tell(1, 10)
        tell(10, 10)

    assert file.getvalue() == ""
    assert "index [" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\033[K")
