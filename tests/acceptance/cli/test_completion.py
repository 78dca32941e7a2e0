"""Completion in real shells: bash always, zsh and fish if they are installed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import PATIENCE_S, PERDURE, SAMPLE_ID, World

END = "-- end of the words for one line"
BASH = rf"""
eval "$(perdure completion bash)"
for line; do
  COMP_LINE=$line; COMP_POINT=${{#line}}; COMP_TYPE=37
  read -ra COMP_WORDS <<< "$line"; COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
  COMPREPLY=()
  _perdure perdure "" ""
  printf '%s\n' "${{COMPREPLY[@]}}"; echo '{END}'
done
"""
FISH = r"""
perdure completion fish | source
complete -C $argv[1]
"""


def asked(world: World, shell: str, *arguments: str) -> list[str]:
    """Run `shell` with `arguments`; return the lines that it prints."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    environment = dict(world.environment)
    environment["PATH"] = f"{PERDURE.parent}:{environment['PATH']}"
    done = subprocess.run(
        [program, *arguments],
        capture_output=True,
        env=environment,
        cwd=world.folder,
        timeout=PATIENCE_S,
        check=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


COMPLETED = {
    "perdure sess": ["sessions"],
    "perdure sessions unco": ["uncompact"],
    "perdure sessions show 019": [SAMPLE_ID],
    "perdure sessions show tide": [SAMPLE_ID],
    "perdure sessions branch 0196 4": ["46", "45", "44", "43", "42", "41", "40", "4"],
    "perdure export 0196 --format ht": ["html"],
    "perdure chat -m scripted:e": ["echo"],
    "perdure sessions list --source claude": ["claude-code"],
    "perdure sessions list --namespace nowhere --li": ["--limit"],
    "perdure sessions show zebra": [""],
}


def test_bash_completes_each_command_line_as_expected(imported: World) -> None:
    lines = iter(asked(imported, "bash", "-c", BASH, "bash", *COMPLETED))
    found = {line: list(iter(lambda: next(lines), END)) for line in COMPLETED}
    assert found == COMPLETED
    assert list(lines) == []


def test_bash_at_a_terminal_lists_sessions_newest_first(world: World) -> None:
    for title in ("alpha", "beta"):
        world.ok("chat", "-p", title)
    older = world.ok("sessions", "list", "--json").json[1]["id"]
    world.ok("chat", "--session", older, "-p", "again")
    named = [each["id"] for each in world.ok("sessions", "list", "--json").json]
    assert named[0] == older < named[1]  # the ids are in the other order
    descriptor, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    path = f"{PERDURE.parent}:{world.environment['PATH']}"
    with subprocess.Popen(
        ["setsid", "--ctty", "bash", "--norc", "--noprofile", "-i"],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**world.environment, "PATH": path, "TERM": "xterm", "INPUTRC": "/dev/null"},
        cwd=world.folder,
    ) as shell:
        os.write(descriptor, b'eval "$(perdure completion bash)"; bind "set bell-style none"\n')
        os.write(descriptor, b"perdure sessions show \t\t\t\t")
        shown, deadline = "", time.monotonic() + PATIENCE_S
        while len(found := re.findall(r"(\w{26})  \(\S+ (\w+)\)", shown)) < 2:
            assert time.monotonic() < deadline, shown
            if select.select([descriptor], [], [], 0.1)[0]:
                shown += os.read(descriptor, 65_536).decode(errors="replace")
        shell.kill()
    os.close(inner)
    os.close(descriptor)
    assert found[:2] == [(named[0], "alpha"), (named[1], "beta")]


def test_completion_of_agents_offers_the_names_of_agent_files(world: World) -> None:
    folder = world.folder / ".config" / "perdure" / "agents"
    folder.mkdir(parents=True)
    for name in ("nightly", "helper"):
        (folder / f"{name}.agent.yaml").write_text("not read", encoding="utf-8")
    assert world.ok("__complete", "fish", "chat", "--agent", "").out.splitlines() == [
        "files",
        "helper\tuser",
        "nightly\tuser",
    ]
    assert world.ok("__complete", "fish", "agents", "show", "n").out.splitlines() == [
        "files",
        "nightly\tuser",
    ]


def test_completion_of_questions_offers_the_questions_in_the_inbox(
    world: World, tmp_path: Path
) -> None:
    """A question that this user's perdure did not write is not in the inbox, and not offered."""
    call = '/tool write_file {"path": "made", "content": "x"}'
    world.run("chat", "-p", call)
    [asked] = world.ok("inbox", "--json").json
    offered = world.ok("__complete", "fish", "inbox", "answer", "").out
    assert offered.splitlines() == ["words", f"{asked['id']}\tMay write_file run? made"]
    stranger = World(world.folder, {"XDG_DATA_HOME": str(tmp_path / "stranger")})
    store = f"sqlite:///{world.file}"
    hidden = stranger.ok("__complete", "fish", "inbox", "answer", "--store", store, "").out
    assert hidden.splitlines() == ["words"]
    assert not (tmp_path / "stranger").exists()  # completion creates nothing
    assert stranger.ok("inbox", "--json", "--store", store).json == []


def test_fish_completes_session_ids(imported: World) -> None:
    shown = asked(imported, "fish", "--no-config", "-c", FISH, "perdure sessions show 019")
    assert shown[0].startswith(SAMPLE_ID)


def test_zsh_accepts_the_completion_script(imported: World) -> None:
    program = shutil.which("zsh")
    if program is None:
        pytest.skip("zsh is not installed")
    script = imported.ok("completion", "zsh").out
    subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=PATIENCE_S)


def test_completion_creates_no_store_and_prints_no_errors(world: World) -> None:
    for store in (f"sqlite:///{world.file}", "ftp://nowhere"):
        ended = world.run("__complete", "fish", "sessions", "show", "--store", store, "")
        assert ended.err == ""
    assert not world.file.exists()


def test_completion_without_a_shell_argument_uses_the_shell_of_the_user(world: World) -> None:
    zsh = World(world.folder, {"SHELL": "/usr/bin/zsh"})
    assert zsh.ok("completion").out == world.ok("completion", "zsh").out
    assert World(world.folder, {"SHELL": "/bin/sh"}).run("completion").code == 2
