"""Several programs on one store file, as processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import perdure

CHILDREN = Path(__file__).parent / "children"
DEADLINE_S = 60


@contextmanager
def child(program: str, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """A program of `CHILDREN` that runs during the test, and is ended with it."""
    command = [sys.executable, str(CHILDREN / program), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """Return the next `count` lines that the process prints."""
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def test_watcher_neither_misses_nor_repeats_entries_of_other_processes(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'agents.db'}"
    with perdure.blocking.open(address) as store:
        session = store.create(id="s")
        with (
            child("watcher.py", address, "s", "-1", "149") as watcher,
            child("appender.py", address, "s", "one", "50") as one,
            child("appender.py", address, "s", "two", "50") as two,
        ):
            for number in range(50):
                session.append(perdure.user(f"mine {number}"))
            seen = lines(watcher, 150)
            assert one.wait(DEADLINE_S) == two.wait(DEADLINE_S) == 0
        assert seen == [str(seq) for seq in range(150)]
        texts = [message.text for message in session.messages()]
        for name in ("mine", "one", "two"):
            assert [text for text in texts if text.startswith(name)] == [
                f"{name} {number}" for number in range(50)
            ]


def test_watcher_restarted_after_a_kill_continues_after_its_cursor(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'agents.db'}"
    with perdure.blocking.open(address) as store:
        session = store.create(id="s")
        with child("appender.py", address, "s", "one", "120") as appender:
            with child("watcher.py", address, "s", "-1", "119") as first:
                seen = lines(first, 40)
                first.send_signal(signal.SIGKILL)
            with child("watcher.py", address, "s", seen[-1], "119") as second:
                seen += lines(second, 80)
            assert appender.wait(DEADLINE_S) == 0
        assert seen == [str(seq) for seq in range(120)]
        assert session.path()[-1].seq == 119


def test_ctrl_c_ends_a_blocking_program_immediately_and_cleanly(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'agents.db'}"
    with child("blocking_watcher.py", address) as process:
        assert lines(process, 1) == ["watching"]
        process.send_signal(signal.SIGINT)
        assert lines(process, 1) == ["interrupted with 1 entry"]
        assert process.wait(DEADLINE_S) == 0
