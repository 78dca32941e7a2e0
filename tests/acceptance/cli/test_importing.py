"""`perdure import` of folders: a bar, lines, and what one bad file does to the others."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import PATIENCE_S, PERDURE, World
from tests.fakes.sources import every_file

COUNT = 60


@pytest.fixture
def folder(world: World) -> Path:
    """Many histories of all programs, one file that is none, and an empty one."""
    folder = world.folder / "histories"
    folder.mkdir()
    contents = every_file()
    for number in range(COUNT):
        content = contents[number % len(contents)]
        (folder / f"{number:03}.jsonl").write_bytes(content)
    (folder / "005a.jsonl").write_bytes(b"no session\n")
    (folder / "040a.jsonl").write_bytes(b"")
    return folder


def test_many_files_are_imported_and_the_bad_ones_are_named(world: World, folder: Path) -> None:
    ended = world.run("import", str(folder))
    assert ended.code == 1
    assert "2 files failed" in ended.out
    assert ended.out.count("nothing new") == COUNT - len(every_file())
    for name in ("005a.jsonl", "040a.jsonl"):
        assert name in ended.err
    assert world.ok("store", "verify", "--json").json["ok"] is True


def test_a_bar_is_on_the_terminal_and_the_lines_are_where_they_were_sent(
    world: World, folder: Path
) -> None:
    own, theirs = pty.openpty()
    with subprocess.Popen(
        [PERDURE, "import", str(folder)],
        env={**world.environment, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=world.folder,
    ) as process:
        os.close(theirs)
        shown = _all_of(own)
        out, _ = process.communicate(timeout=PATIENCE_S)
    os.close(own)
    assert process.returncode == 1
    assert len(out.decode().splitlines()) >= COUNT + 1
    assert "importing" in shown
    assert "005a.jsonl" in shown


def _all_of(terminal: int) -> str:
    """What is written to a terminal until nobody holds it any more."""
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # how Linux says so
            piece = b""
        if not piece:
            return b"".join(pieces).decode(errors="replace")
        pieces.append(piece)
