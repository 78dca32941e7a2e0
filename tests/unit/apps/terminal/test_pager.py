"""The pager; tests/acceptance/cli tests the pager at a terminal."""

from __future__ import annotations

import pytest

from perdure.apps.terminal.pager import show_in_pager


def test_pager_without_a_terminal_prints_to_stdout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "false")
    show_in_pager(["one", "t\x07wo"])
    assert capsys.readouterr().out == "one\nt\N{REPLACEMENT CHARACTER}wo\n"
