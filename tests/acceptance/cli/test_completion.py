"""Completion as the shells do it. bash is asked for real; zsh and fish where they are installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.acceptance.cli.conftest import PATIENCE_S, PERDURE, SAMPLE_ID, World

BASH = r"""
eval "$(perdure completion bash)"
COMP_LINE=$1; COMP_POINT=${#1}; COMP_TYPE=37
read -ra COMP_WORDS <<< "$1"; COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_perdure perdure "" ""
printf '%s\n' "${COMPREPLY[@]}"
"""
FISH = r"""
perdure completion fish | source
complete -C $argv[1]
"""


def asked(world: World, shell: str, script: str, line: str) -> list[str]:
    """What `shell` completes `line` to."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    start = ["-c", script, "bash", line] if shell == "bash" else ["--no-config", "-c", script, line]
    environment = dict(world.environment)
    environment["PATH"] = f"{PERDURE.parent}:{environment['PATH']}"
    done = subprocess.run(
        [program, *start],
        capture_output=True,
        env=environment,
        cwd=world.folder,
        timeout=PATIENCE_S,
        check=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("perdure sess", ["sessions"]),
        ("perdure sessions unco", ["uncompact"]),
        ("perdure sessions show 019", [SAMPLE_ID]),
        ("perdure sessions show tide", [SAMPLE_ID]),
        ("perdure sessions branch 0196 4", ["46", "45", "44", "43", "42", "41", "40", "4"]),
        ("perdure export 0196 --format ht", ["html"]),
        ("perdure chat -m scripted:e", ["echo"]),
        ("perdure sessions list --source claude", ["claude-code"]),
        ("perdure sessions list --namespace nowhere --li", ["--limit"]),
        ("perdure sessions show zebra", [""]),
    ],
)
def test_bash_completes(imported: World, line: str, expected: list[str]) -> None:
    assert asked(imported, "bash", BASH, line) == expected


def test_fish_completes(imported: World) -> None:
    assert asked(imported, "fish", FISH, "perdure sessions show 019")[0].startswith(SAMPLE_ID)


def test_zsh_accepts_its_script(imported: World) -> None:
    program = shutil.which("zsh")
    if program is None:
        pytest.skip("zsh is not installed")
    script = imported.ok("completion", "zsh").out
    subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=PATIENCE_S)


def test_completing_makes_no_store_and_says_nothing_when_it_fails(world: World) -> None:
    for store in (f"sqlite:///{world.file}", "ftp://nowhere"):
        ended = world.run("__complete", "fish", "sessions", "show", "--store", store, "")
        assert ended.err == ""
    assert not world.file.exists()


def test_shell_is_that_of_the_user_unless_it_is_named(world: World) -> None:
    zsh = World(world.folder, {"SHELL": "/usr/bin/zsh"})
    assert zsh.ok("completion").out == world.ok("completion", "zsh").out
    assert World(world.folder, {"SHELL": "/bin/sh"}).run("completion").code == 2
