"""Files that are sent with a message of a chat."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.acceptance.cli.conftest import World

ROOT = Path(__file__).parents[3]


def test_attached_files_are_listed_and_detached(world: World) -> None:
    for name in ("one.txt", "two.txt"):
        (world.folder / name).write_text(name)
    typed = ("/attach one.txt", "/attach two.txt", "/attach", "/detach one.txt", "/detach one.txt")
    out = world.ok("chat", stdin="\n".join((*typed, "/detach", "/detach", ""))).out
    told = (
        "the next message goes with one.txt (7 bytes), two.txt (7 bytes); /detach FILE removes one",
        "not sent: one.txt (7 bytes)",
        "one.txt is not attached; /attach lists the attached files",
        "not sent: two.txt (7 bytes)",
        "no file is attached",
    )
    assert tuple(out.splitlines()[-len(told) :]) == told


def test_files_of_attach_option_are_sent_with_the_prompt(world: World) -> None:
    (world.folder / "work").mkdir()
    (world.folder / "one.txt").write_text("low tide")
    (world.folder / "my notes.md").write_text("high tide")
    words = ("chat", "-p", "compare", "--cwd", "work")
    ended = world.ok(*words, "--attach", "one.txt", "--attach", "my notes.md")
    assert [line for line in ended.err.splitlines() if line.startswith("attached")] == [
        "attached: one.txt",
        "attached: my notes.md",
    ]
    assert (
        "low tide"
        in world.ok("sessions", "read", world.ok("sessions", "list", "--json").json[0]["id"]).out
    )
    assert world.run(*words, "--attach", "none.txt").code == 3
    assert len(world.ok("sessions", "list", "--json").json) == 1
    assert world.run("chat", "--attach", "one.txt").code == 2


def test_mention_of_a_file_outside_the_folder_prints_a_warning(world: World) -> None:
    (world.folder / "work").mkdir()
    (world.folder / "one.txt").write_text("low tide")
    ended = world.ok("chat", "-p", "see @../one.txt", "--cwd", "work")
    assert "@../one.txt is outside the folder; --attach ../one.txt attaches it" in ended.err
    assert "no such file" not in ended.err


def test_new_session_reports_that_instructions_of_the_folder_are_not_read(world: World) -> None:
    assert "not read" not in world.ok("chat", stdin="hello\n").out
    (world.folder / "AGENTS.md").write_text("Use tabs.\n")
    told = "AGENTS.md is not read: write @AGENTS.md in a message, or use an agent file"
    assert world.ok("chat", stdin="hello\nagain\n").out.count(told) == 1
    assert "not read" not in world.ok("chat", "--continue", stdin="hello\n").out
    assert "not read" not in world.ok("chat", stdin="read @AGENTS.md\n").out


def test_documented_command_creates_an_agent_from_the_instructions(world: World) -> None:
    guide = (ROOT / "docs" / "guides" / "terminal-chat.md").read_text("utf-8")
    (command,) = re.findall(r"```\n(mkdir -p \.perdure/agents\n.*?)perdure chat", guide, re.DOTALL)
    (world.folder / "AGENTS.md").write_text("# Rules\n\nUse tabs: always.\n")
    subprocess.run(["sh", "-c", command], cwd=world.folder, check=True)
    file = ".perdure/agents/here.agent.yaml"
    world.ok("chat", "--agent", file, "-m", "scripted:echo", "-p", "hello")
    id = world.ok("sessions", "list", "--json").json[0]["id"]
    context = world.ok("sessions", "context", id, "--json").json
    assert context["system"].endswith("# Rules\n\nUse tabs: always.\n")
