"""`perdure import --watch`: a command that follows histories while other programs write them."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.conftest import PATIENCE_S, PERDURE, SAMPLE, SAMPLE_ID, World
from tests.fakes.forked import Forked


@contextmanager
def watching(world: World, *words: str) -> Generator[Forked]:
    """The command `perdure import --watch`, which runs in parallel with the test."""
    with world.fork("import", "--watch", *words) as process:
        yield process


def next_change(process: Forked) -> Any:
    """Return the next line of the output of the command, as JSON."""
    return json.loads(process.line())


def stopped(process: Forked) -> tuple[int, str]:
    """Press Ctrl-C; return the exit code and the text on stderr."""
    process.send_signal(signal.SIGINT)
    ended = process.ended()
    return ended.code, ended.err


def wait_for(file: Path) -> None:
    """Wait until there is something in `file`."""
    deadline = time.monotonic() + PATIENCE_S
    while not file.stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def folder(world: World) -> Path:
    """A folder of histories, still empty."""
    folder = world.folder / "histories"
    folder.mkdir()
    return folder


def test_import_watch_follows_a_history_until_ctrl_c(world: World, folder: Path) -> None:
    content = SAMPLE.read_bytes()
    half = content.index(b"\n", len(content) // 2) + 1
    history = folder / "a.jsonl"
    history.write_bytes(content[:half])
    with watching(world, str(folder), "--json") as process:
        first = next_change(process)
        assert (first["session"], first["format"], first["skipped"]) == (SAMPLE_ID, "pi", 0)
        with history.open("ab") as file:
            file.write(content[half : half + 50])  # the beginning of a line
            file.flush()
            file.write(content[half + 50 :])
        messages = first["messages"]
        while messages < 35:  # it may see a part of what is being written
            more = next_change(process)
            assert (more["session"], more["skipped"]) == (SAMPLE_ID, 0)
            messages += more["messages"]
        assert messages == 35
        history.unlink()
        assert next_change(process) == {"file": str(history), "gone": True}
        assert stopped(process) == (0, "")
    assert world.ok("export", SAMPLE_ID, "--format", "pi").out.encode() == content


def test_followed_file_can_be_searched_after_the_follow_command_ends(
    world: World, folder: Path
) -> None:
    def said(number: int, text: str) -> bytes:
        parent = f'"{number - 1:08}"' if number else "null"
        message = f'{{"role":"user","content":"{text}","timestamp":{1775000000000 + number}}}'
        head = f'"type":"message","id":"{number:08}","parentId":{parent}'
        return f'{{{head},"timestamp":"2026-04-01T10:00:00.000Z","message":{message}}}\n'.encode()

    def hits(phrase: str) -> int:
        return len(world.ok("sessions", "search", f'"{phrase}"', "--json").json)

    live = folder / "live.jsonl"
    header = b'{"type":"session","version":3,"id":"live","timestamp":"2026-04-01T10:00:00.000Z"}\n'
    live.write_bytes(header + said(0, "a walrus sings"))
    with watching(world, str(folder), "--json") as process:
        assert next_change(process)["messages"] == 1
        assert (hits("walrus sings"), hits("heron waits")) == (1, 0)
        with live.open("ab") as file:
            file.write(said(1, "a heron waits"))
        assert next_change(process)["messages"] == 1
        assert hits("heron waits") == 1
        with live.open("ab") as file:
            file.write(said(2, "an otter dives")[:60])  # killed in the middle of a line
        process.kill()
        process.wait()
    with live.open("ab") as file:
        file.write(said(2, "an otter dives")[60:] + said(3, "a plover runs"))
    with watching(world, str(folder), "--json") as process:
        assert next_change(process)["messages"] == 2
        phrases = ("walrus sings", "heron waits", "otter dives", "plover runs")
        assert [hits(phrase) for phrase in phrases] == [1, 1, 1, 1]
        assert stopped(process) == (0, "")
    assert world.ok("export", "live", "--format", "pi").out.encode() == live.read_bytes()


def test_import_watch_in_a_terminal_prints_one_line_per_change(world: World, folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(SAMPLE.read_bytes())
    (folder / "b.jsonl").write_bytes(b"no session\n")
    with watching(world, str(folder)) as process:
        line = process.line().decode()
        assert line.startswith(f"{SAMPLE_ID}  pi: ")
        assert line.endswith("a.jsonl\n")
        code, err = stopped(process)
    assert code == 0
    assert "b.jsonl" in err or not err  # told if there was time before Ctrl-C
    assert "Traceback" not in err


def test_import_watch_does_not_import_its_own_output_file(world: World, folder: Path) -> None:
    log = folder / "log.jsonl"
    (folder / "z.jsonl").write_bytes(SAMPLE.read_bytes())
    with log.open("wb") as file:
        process = subprocess.Popen(
            [PERDURE, "import", "--watch", str(folder), "--json"],
            env=world.environment,
            stdout=file,
            stderr=subprocess.PIPE,
            cwd=world.folder,
        )
    with process:
        try:
            wait_for(log)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, err) == (0, b"")
        finally:
            process.kill()
    (report,) = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert report["session"] == SAMPLE_ID


def test_missing_file_cannot_be_followed(world: World) -> None:
    ended = world.run("import", "--watch", "nowhere", "--json")
    assert (ended.code, ended.error["code"]) == (3, "path_not_found")
    assert not world.file.exists()
