"""Clipboard and notifications, with fake programs on the path."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.tools.builtin.desktop import about_clipboard, about_note, notify, read_clipboard
from perdure.tools.permissions import Permissions
from tests.fakes.tool_calls import Tools


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


async def test_missing_desktop_is_an_error(programs: Path, tmp_path: Path) -> None:
    tools = Tools(tmp_path / "work")
    run = await tools.run(read_clipboard)
    assert run.error_code == "tool_unavailable"
    assert "wl-paste, xclip, xsel, pbpaste" in run.output.text
    assert (await tools.run(notify, title="a", body="b")).error_code == "tool_unavailable"


async def test_clipboard_is_read_with_installed_program(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    program(programs, "xclip", 'echo "copied $*"')
    run = await Tools(tmp_path / "work").run(read_clipboard)
    assert run.output.text.endswith("copied -selection clipboard -out\n")


async def test_notification_text_cannot_be_markup_or_flags(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    program(programs, "notify-send", f'printf "%s|" "$@" > {tmp_path}/shown')
    run = await Tools(tmp_path / "work").run(notify, title="--icon=x", body="<b>a\x1b</b>&")
    assert run.output.text == "shown"
    shown = (tmp_path / "shown").read_text()
    assert shown == "--app-name=perdure|--|--icon=x|&lt;b&gt;a &lt;/b&gt;&amp;|"


async def test_failed_program_is_reported_as_error(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    program(programs, "notify-send", "exit 1")
    run = await Tools(tmp_path / "work").run(notify, title="a", body="b")
    assert run.outcome == "error"


def test_grant_for_a_notification_allows_only_the_same_text() -> None:
    assert about_clipboard({}, Permissions()).grant is None
    assert about_note({"title": "a", "body": "b"}, Permissions()).grant == '["a","b"]'
