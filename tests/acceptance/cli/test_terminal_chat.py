"""The terminal chat as a process at a terminal: Ctrl-C, a lost terminal, a missing package."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import PATIENCE_S, World
from tests.fakes.forked import Forked, preload
from tests.fakes.forked_commands import command_at_terminal

preload("perdure.apps.tui.program")

pytestmark = pytest.mark.full_only

WRITES = """
name: acted
rules:
  - when: {after_tool: write_file}
    text: Written.
  - when: {after: user}
    calls: [{name: write_file, args: {path: new.txt, content: land}}]
"""


@dataclass
class Terminal:
    """A process at its own terminal, and its output so far."""

    process: Forked
    descriptor: int
    written: bytes = b""

    def until(self, *texts: str) -> str:
        """Read until one of `texts` appears; drop the output up to its end, and return the text."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := [text for text in texts if text.encode() in self.written]):
            assert time.monotonic() < deadline, self.written[-2_000:]
            if select.select([self.descriptor], [], [], 0.5)[0]:
                self.written += os.read(self.descriptor, 65_536)
        self.written = self.written.partition(found[0].encode())[2]
        return found[0]

    def until_all(self, *texts: str) -> None:
        """Read until all `texts` have appeared, in any order."""
        deadline = time.monotonic() + PATIENCE_S
        while any(text.encode() not in self.written for text in texts):
            assert time.monotonic() < deadline, self.written[-2_000:]
            if select.select([self.descriptor], [], [], 0.5)[0]:
                self.written += os.read(self.descriptor, 65_536)

    def press(self, keys: str) -> None:
        """Type `keys`."""
        os.write(self.descriptor, keys.encode())


@contextmanager
def terminal(world: World, *words: str) -> Generator[Terminal]:
    """``perdure`` at a terminal of 80 by 24."""
    own, other = pty.openpty()
    environment = {**world.environment, "TERM": "xterm-256color", "LINES": "24", "COLUMNS": "80"}
    try:
        with command_at_terminal(
            words, environment, world.folder, other, is_controlling=False
        ) as process:
            yield Terminal(process, own)
    finally:
        os.close(other)
        os.close(own)


@pytest.mark.all_only
def test_second_ctrl_c_exits_and_prints_the_resume_command(world: World) -> None:
    with terminal(world, "chat") as seen:
        seen.until("Write a message")
        seen.press("hello\r")
        seen.until("offline scripted model")
        session = world.ok("sessions", "list", "--json").json[0]["id"]
        resume = f"perdure chat --session {session}  continues it"
        seen.press("\x03")
        seen.until("again exits")
        seen.press("\x03")
        while seen.until(resume, "again exits") != resume:
            seen.press("\x03")  # the one before came when the hint had gone
        assert seen.process.wait() == 130


def test_line_entered_while_the_chat_starts_is_sent(world: World) -> None:
    with terminal(world, "chat") as seen:
        seen.press("hello\r")
        seen.until("offline scripted model")
    (session,) = world.ok("sessions", "list", "--json").json
    messages = world.ok("sessions", "read", session["id"], "--json").json
    assert messages[0]["body"]["parts"][0]["text"] == "hello"


@pytest.mark.all_only
def test_lines_pasted_while_the_chat_starts_are_not_sent_automatically(world: World) -> None:
    with terminal(world, "chat") as seen:
        seen.press("one\rtwo\r")
        seen.until("A new session with")
        seen.press("three\r")
        seen.until("offline scripted model")
    (session,) = world.ok("sessions", "list", "--json").json
    messages = world.ok("sessions", "read", session["id"], "--json").json
    assert messages[0]["body"]["parts"][0]["text"] == "one\ntwo\nthree"
    assert len(messages) == 2


@pytest.mark.all_only
def test_question_survives_lost_terminal(world: World) -> None:
    with terminal(world, "chat", "--scenario", world.scenario(WRITES)) as seen:
        seen.until("Write a message")
        seen.press("write it\r")
        seen.until("allow once")
        os.killpg(seen.process.pid, signal.SIGHUP)
        seen.process.wait()
    assert not (world.folder / "new.txt").exists()
    (waiting,) = world.ok("inbox", "--json").json
    world.ok("inbox", "answer", waiting["id"], "allow")
    scenario = world.scenario(WRITES)
    ended = world.ok("sessions", "resume", waiting["session"], "--scenario", scenario, "--json")
    assert ended.lines[0]["detail"] == "Written."
    assert (world.folder / "new.txt").read_text() == "land"


def test_chat_ends_when_its_terminal_is_closed(world: World) -> None:
    with terminal(world, "chat") as seen:
        seen.until("Write a message")
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), seen.descriptor)  # closes the terminal
        assert seen.process.wait() == 130


def test_unsent_text_is_restored_after_a_kill(world: World) -> None:
    drafts = world.folder / ".local" / "state" / "perdure" / "drafts"
    with terminal(world, "chat") as seen:
        seen.until("Write a message")
        seen.press("half a thought")
        deadline = time.monotonic() + PATIENCE_S
        whole = f"*.{seen.process.pid}"  # not the new one that is being written beside it
        while not any(b"thought" in file.read_bytes() for file in drafts.glob(whole)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(seen.process.pid, signal.SIGKILL)
        seen.process.wait()
    with terminal(world, "chat") as seen:
        # Drawn together, the remark comes first: it is above the text.
        seen.until_all("half a thought", "was not sent last time is back")
        seen.press(", finished\r")
        seen.until("offline scripted model")
        assert list(drafts.iterdir()) == []
    (session,) = world.ok("sessions", "list", "--json").json
    assert "half a thought, finished" in world.ok("sessions", "read", session["id"]).out


def test_line_mode_is_used_without_a_terminal_and_on_request(world: World) -> None:
    refused = world.run("chat", "--display", "screen", "--json")
    assert refused.code == 2
    assert "--display screen needs a terminal" in refused.error["message"]
    with terminal(world, "chat", "--display", "lines") as seen:
        seen.until("A new session with scripted:echo. /help says what else you can type.")
        seen.press("/quit\r")
        assert seen.process.wait() == 0


def test_commands_without_full_screen_do_not_load_textual(world: World) -> None:
    code = "import sys, perdure.apps.cli.program, perdure.apps.chat.command"
    check = "assert not [name for name in sys.modules if name.startswith('textual')]"
    subprocess.run([sys.executable, "-c", f"{code}; {check}"], env=world.environment, check=True)


def lines(world: World, *words: str) -> AbstractContextManager[Terminal]:
    """A chat that reads lines."""
    return terminal(world, "chat", "--display", "lines", *words)


PROMPT = "\x1b[?2004h> "


def test_line_mode_supports_editing_history_and_multiline_paste(world: World) -> None:
    with lines(world) as seen:
        seen.until(PROMPT)
        seen.press("helo\x1b[D\x1b[Dl\r")  # two to the left
        seen.until("you wrote “hello”")
        seen.until(PROMPT)
        seen.press("\x1b[A again\r")
        seen.until("you wrote “hello again”")
        seen.until(PROMPT)
        seen.press("\x1b[200~def f():\n    return 1\x1b[201~")
        seen.press("\r")
        seen.until("def f():\r\n    return 1”")
        seen.until(PROMPT)
        seen.press("/co\t\t")
        seen.until("/context")
        seen.press("\x15/quit\r")
        assert seen.process.wait() == 0
    (row,) = world.ok("sessions", "list", "--json").json
    read = world.ok("sessions", "read", row["id"], "--json").json
    said = [each["body"]["parts"][0]["text"] for each in read if each["body"]["role"] == "user"]
    assert said == ["hello", "hello again", "def f():\n    return 1"]


def test_ctrl_c_in_line_mode_stops_shell_command_and_not_the_chat(world: World) -> None:
    begun = world.folder / "begun"
    with lines(world) as seen:
        seen.until(PROMPT)
        seen.press(f"!touch begun; sleep {PATIENCE_S}\r")
        deadline = time.monotonic() + PATIENCE_S
        while not begun.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        seen.process.send_signal(signal.SIGINT)
        seen.until("(stopped)")
        seen.until(PROMPT)
        seen.press("hello\r")
        seen.until("you wrote “hello”")
        seen.until(PROMPT)
        seen.press("/quit\r")
        assert seen.process.wait() == 0


def test_paste_in_line_mode_does_not_answer_an_approval(world: World) -> None:
    with lines(world, "--scenario", world.scenario(WRITES)) as seen:
        seen.until("/help says")
        seen.press("write it\r")
        seen.until("allow / always / deny? ")
        seen.press("\x1b[200~y\ny\n\x1b[201~\r")
        seen.until("answer allow, always, deny")
        assert not (world.folder / "new.txt").exists()
        seen.press("y\r")
        seen.until("Written.")
        seen.until(PROMPT)
        seen.press("\x04")
        assert seen.process.wait() == 0
