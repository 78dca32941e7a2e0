"""Selecting a session by its file, comparing branches, projects, and the picker."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from tests.acceptance.cli.conftest import PATIENCE_S, PERDURE, SAMPLE, SAMPLE_ID, World
from tests.fakes.forked import Forked
from tests.fakes.forked_commands import command_at_terminal

# ---------------------------------------------------------------- files


def test_session_can_be_selected_by_the_path_of_an_imported_file(imported: World) -> None:
    for name in (str(SAMPLE), os.path.relpath(SAMPLE, imported.folder)):
        assert imported.ok("sessions", "show", name, "--json").json["id"] == SAMPLE_ID
    hits = imported.ok("sessions", "search", "tide", "--session", str(SAMPLE), "--json").json
    assert {hit["session"] for hit in hits} == {SAMPLE_ID}


def test_unimported_file_is_rejected_and_the_error_suggests_the_import_command(
    world: World,
) -> None:
    file = world.folder / "a session.jsonl"
    file.write_bytes(SAMPLE.read_bytes())
    world.ok("chat", "-p", "hello")
    ended = world.run("sessions", "tree", str(file), "--json")
    assert (ended.code, ended.error["code"]) == (3, "not_imported")
    assert f"perdure import '{file}'" in ended.error["message"]
    world.ok("import", str(file))
    assert world.ok("sessions", "tree", "a session.jsonl", "--json").code == 0


def test_session_selected_by_a_changed_file_is_shown_with_a_warning(sample: World) -> None:
    file = sample.folder / "grown.jsonl"
    line = b'{"type":"custom","id":"zz","parentId":null,"timestamp":"2026-01-01T00:00:00Z"}\n'
    file.write_bytes(SAMPLE.read_bytes() + line)
    ended = sample.ok("sessions", "show", str(file), "--json")
    assert ended.json["id"] == SAMPLE_ID
    assert "has changed since it was imported" in ended.err


def test_session_can_be_selected_by_the_path_of_an_export(sample: World) -> None:
    sample.ok("export", SAMPLE_ID, "-o", "out.jsonl")
    assert sample.ok("sessions", "show", "out.jsonl", "--json").json["id"] == SAMPLE_ID


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("./missing.jsonl", 3, "no such file or folder"),
        ("missing.jsonl", 3, "no such file or folder"),
        ("./", 2, "is a folder"),
        ("./store.db", 2, "not a recognized session"),
    ],
)
def test_file_that_is_not_a_recording_is_rejected(
    sample: World, name: str, code: int, told: str
) -> None:
    ended = sample.run("sessions", "show", name)
    assert ended.code == code
    assert told in ended.err


def test_error_for_an_ambiguous_title_lists_the_matching_session_ids(world: World) -> None:
    for number in range(5):
        world.ok("chat", "-p", f"Walk dog {number}")
    rows = world.ok("sessions", "list", "--json").json
    (three,) = (row["id"] for row in rows if row["title"] == "Walk dog 3")
    ended = world.run("chat", "--session", "walk Dog 3", "-p", "hi")
    assert (ended.code, ended.out) == (3, "")
    told = "no session has the id 'walk Dog 3'; use the id of a session with this title:"
    assert f"{told} {three} (Walk dog 3)\n" in ended.err
    error = world.run("sessions", "show", "dog", "--json").error
    assert error["code"] == "session_not_found"
    assert error["candidates"] == [row["id"] for row in rows[:3]]
    assert f"{three} (Walk dog 3)" in world.ok("chat", stdin="/resume dog 3\n").out
    assert "`perdure sessions list --all` shows them" in world.run("sessions", "show", "cat").err


# ---------------------------------------------------------------- diff


def test_diff_command_lists_common_and_different_entries_of_two_branches(imported: World) -> None:
    found = imported.ok("sessions", "diff", "0196", "16", "21", "--json").json
    assert found["session"] == SAMPLE_ID
    assert found["parting"] == f"{SAMPLE_ID}/9"
    assert [side["leaf"] for side in found["branches"]] == [f"{SAMPLE_ID}/{n}" for n in (16, 21)]
    first, second = ([each["id"] for each in side["entries"]] for side in found["branches"])
    assert first == [f"{SAMPLE_ID}/{n}" for n in range(11, 17)]
    assert second == [f"{SAMPLE_ID}/{n}" for n in range(17, 22)]
    text = imported.ok("sessions", "diff", "0196", "16", "21").out
    assert "They share 9 entries" in text
    assert "- entry 16 has 6 entries of its own" in text
    assert "+ entry 21 has 5 entries of its own" in text


def test_branch_is_compared_with_the_current_branch(imported: World) -> None:
    here = imported.ok("sessions", "show", "0196", "--json").json["leaf"]
    found = imported.ok("sessions", "diff", "0196", "root", "--json").json
    assert [side["leaf"] for side in found["branches"]] == [None, here]
    same = imported.ok("sessions", "diff", "0196", here, "--json").json
    assert [side["entries"] for side in same["branches"]] == [[], []]


def test_missing_entry_cannot_be_compared(imported: World) -> None:
    assert imported.run("sessions", "diff", "0196", "16", "999").code == 3


# ---------------------------------------------------------------- slips of the hand


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("sessions", "list", "--limit", "9" * 20), 2, "is not from 0 to 1000000000"),
        (("sessions", "tree", "0196", "--depth", "9" * 20), 2, "is not from"),
        (("sessions", "context", "0196", "--budget", "0"), 2, "0 is not from 1 to"),
        (("sessions", "search", "x", "--limit", "9" * 20), 2, "is not from"),
        (("sessions", "branch", "0196", "9" * 20), 3, "no entry"),
        (("sessions", "fork", "0196", "--at", "root"), 2, "would share nothing"),
        (("sessions", "label", "0196", "root", "x"), 2, "only an entry can have a name"),
        (("sessions", "show", "x" * 5000), 3, "(5,000 characters)"),
        (("x" * 5000,), 2, "(5,000 characters)"),
    ],
)
def test_wrong_command_line_gets_a_short_error_message(
    sample: World, words: tuple[str, ...], code: int, told: str
) -> None:
    ended = sample.run(*words)
    assert ended.code == code
    assert told in ended.err
    assert len(ended.err) < 400


def test_undo_is_refused_if_there_is_no_compaction(sample: World) -> None:
    while sample.run("sessions", "uncompact", "0196").code == 0:
        pass
    ended = sample.run("sessions", "uncompact", "0196")
    assert ended.code == 2
    assert ended.err.startswith("perdure: there is no compaction to undo in session")


def test_store_info_command_shows_no_file_for_an_in_memory_store(world: World) -> None:
    out = world.ok("store", "info", "--store", "memory:").out
    assert "none: all of it ends with this process" in out
    assert "0 bytes for 0 bytes" not in out
    assert "file" not in out


# ---------------------------------------------------------------- projects


def test_command_in_a_project_lists_only_sessions_of_that_project(sample: World) -> None:
    extra = {"PERDURE_STORE": f"sqlite:///{sample.file}", "HOME": str(sample.folder)}
    project = World(sample.folder / "tides", extra)
    (project.folder / "sub").mkdir(parents=True)
    made = project.ok("init", "--json").json
    assert made["namespace"] == "tides"
    assert [file["made"] for file in made["files"]] == [True, True, True]
    assert [file["made"] for file in project.ok("init", "--json").json["files"]] == [False] * 3

    below = World(project.folder / "sub", project.extra)
    below.ok("chat", "-p", "hello")
    assert len(below.ok("sessions", "list", "--json").json) == 1
    assert len(sample.ok("sessions", "list", "--json").json) == 1
    assert below.ok("inbox", "list", "--json").json == []
    other = below.ok("sessions", "list", "--namespace", "default", "--json").json
    assert [each["id"] for each in other] == [SAMPLE_ID]
    chosen = World(below.folder, {**below.extra, "PERDURE_NAMESPACE": "default"})
    assert chosen.ok("sessions", "list", "--json").json == other


def test_init_command_refuses_an_invalid_folder_or_name(world: World) -> None:
    assert world.run("init").code == 2  # the home folder of this world
    assert world.run("init", "nowhere").code == 3
    (world.folder / "x").mkdir()
    assert world.run("init", "x", "--name", "a/b").code == 2
    assert not (world.folder / "x" / ".perdure").exists()


# ---------------------------------------------------------------- the picker


@dataclass
class Terminal:
    """A command at its own terminal."""

    world: World
    words: tuple[str, ...]
    shown: str = ""
    descriptor: int = field(init=False)
    process: Forked = field(init=False)
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.descriptor, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 16, 100, 0, 0))
        self.before = termios.tcgetattr(inner)
        environment = {**self.world.environment, "TERM": "xterm"}
        folder = self.world.folder
        started = command_at_terminal(self.words, environment, folder, inner, (0, 2))
        self.process = self.stack.enter_context(started)
        self.inner = inner

    def until(self, text: str) -> None:
        """Wait until `text` is on the screen."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self.descriptor], [], [], 0.1)[0]:
                self.shown += os.read(self.descriptor, 65_536).decode(errors="replace")

    def press(self, keys: str) -> None:
        """Type `keys`, and forget the screen text so far."""
        self.shown = ""
        os.write(self.descriptor, keys.encode())

    def ended(self) -> tuple[int, str]:
        """Return the exit code and the output; require that the terminal is restored."""
        ended = self.process.ended()
        self.stack.close()
        assert termios.tcgetattr(self.inner)[:4] == self.before[:4]
        os.close(self.inner)
        os.close(self.descriptor)
        return ended.code, ended.out.decode()


@pytest.fixture
def several(sample: World) -> World:
    for prompt in ("Book a hotel in Lisbon", "Tidy up the attic"):
        sample.ok("chat", "-p", prompt)
    return sample


def test_session_picker_is_used_with_the_keyboard(several: World) -> None:
    wanted = next(
        each["id"]
        for each in several.ok("sessions", "list", "--json").json
        if "Lisbon" in each["title"]
    )
    terminal = Terminal(several, ("sessions", "pick"))
    terminal.until("Enter select")
    assert "2 of 3 sessions, this folder" in terminal.shown
    terminal.press("\t")
    terminal.until("3 of 3 sessions, all folders")
    terminal.press('"in lisbon"')
    terminal.until("1 of 3 sessions")
    terminal.press("\r")
    assert terminal.ended() == (0, f"{wanted}\n")


def test_picker_can_be_closed_without_a_choice(several: World) -> None:
    for key in ("\x1b", "\x03"):
        terminal = Terminal(several, ("sessions", "pick", "--query", "tidy"))
        terminal.until("1 of 3 sessions")
        terminal.press(key)
        assert terminal.ended() == (130, "")


def test_chat_continues_the_picked_session(several: World) -> None:
    terminal = Terminal(several, ("chat", "--pick", "-p", "And a train?", "--json"))
    terminal.until("Enter select")
    terminal.press("lisbon\r")
    code, out = terminal.ended()
    assert code == 0
    session = next(
        each["id"]
        for each in several.ok("sessions", "list", "--json").json
        if "Lisbon" in each["title"]
    )
    assert f'"sessionId":"{session}"' in out


def test_picker_without_a_terminal_selects_no_session(imported: World) -> None:
    done = subprocess.run(
        [PERDURE, "sessions", "pick"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**imported.environment, "TERM": "xterm"},
        start_new_session=True,  # so that whoever runs the tests is not asked
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert b"needs a terminal" in done.stderr
    assert imported.run("sessions", "pick").code == 2  # TERM is not set
    assert imported.run("chat", "--pick", "--continue").code == 2


def test_missing_model_is_reported_before_the_picker_opens(imported: World) -> None:
    unset = World(imported.folder, {"PERDURE_MODEL": ""})
    ended = unset.run("chat", "--pick", "--json")
    assert (ended.code, ended.error["code"]) == (2, "model_missing")
    assert "an imported session needs a model: name one with -m" in ended.error["message"]


def test_picker_omits_sessions_without_a_model_unless_a_model_is_given(several: World) -> None:
    unset = World(several.folder, {"PERDURE_MODEL": ""})
    terminal = Terminal(unset, ("chat", "--pick", "-p", "And a train?"))
    terminal.until("Enter select")
    assert "1 imported session not listed: -m MODEL lists all" in terminal.shown
    assert "2 of 2 sessions" in terminal.shown
    terminal.press("lisbon\r")
    code, out = terminal.ended()
    assert code == 0
    assert "you wrote “And a train?”" in out


def test_picker_without_sessions_exits_3(world: World) -> None:
    assert world.run("sessions", "pick").code == 3
