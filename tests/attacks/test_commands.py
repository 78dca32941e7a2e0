"""Only allowed commands run, however a command is spelt.

The corpus has one command per line; escapes such as ``\\n`` and ``\\0`` stand for the escaped
characters. The rules allow ``git status``, ``echo **`` (anything after ``echo``) and ``pytest
tests/* -q``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.tools.builtin.shell import about_command, run_command
from perdure.tools.permission_check import judge_call
from perdure.tools.permissions import Permissions
from tests.fakes.samples import case
from tests.fakes.tool_calls import Tools

CORPUS = Path(__file__).with_name("corpora") / "commands.txt"
ALLOWED = Permissions(
    allowed_commands=("git status",), allowed_command_globs=("echo **", "pytest tests/* -q")
)
RULES = "git status; echo **; pytest tests/* -q"
"""The allowed commands, in the form in which a refusal lists them."""
ESCAPES = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}


def read(line: str) -> str:
    """Return the command that a line of the corpus stands for."""
    for written, meant in (("\\x1b", "\x1b"), ("\\x0b", "\x0b"), ("\\x0c", "\x0c")):
        line = line.replace(written, meant)
    for written, meant in (("\\x85", "\x85"), ("\\x07", "\x07"), ("\\u2028", "\u2028")):
        line = line.replace(written, meant)
    for written, meant in ESCAPES.items():
        line = line.replace(written, meant)
    return line


COMMANDS = [read(line) for line in CORPUS.read_text(encoding="utf-8").split("\n")[:-1]]


def test_list_of_forbidden_commands_has_at_least_100_commands() -> None:
    assert len(set(COMMANDS)) >= 100


async def test_hostile_commands_in_the_list_of_attacks_never_run(tmp_path: Path) -> None:
    for command in COMMANDS:
        with case(command):
            run = await Tools(tmp_path, ALLOWED).run(run_command, command=command)
            assert run.error_code in ("tool_denied", "invalid_arguments")
            assert run.duration_ms is not None
            told = run.output.text.replace(RULES, "")
            assert command.strip() == "" or len(command) < 3 or command not in told
            assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - a look at a folder


def test_forbidden_command_is_refused_without_a_question() -> None:
    for command in COMMANDS:
        with case(command):
            assert judge_call(run_command, {"command": command}, ALLOWED).decision == "refuse"


@pytest.mark.parametrize(
    "words",
    [
        ["git", "status", "--short"],
        ["git status"],
        ["git status", ""],
        ["git", "status "],
        ["git", ""],
        ["sh", "-c", "git status"],
        ["", "git", "status"],
        ["git\0", "status"],
        ["git", "status\0"],
        ["pytest", "tests/a -q"],
        ["pytest", "tests/a", "-q "],
        ["echo\n", "x"],
        ["echo;id", "x"],
        ["./echo", "x"],
        ["-c", "x"],
        ["A=1", "echo", "x"],
    ],
)
async def test_command_argument_with_a_line_break_is_refused(
    tmp_path: Path, words: list[str]
) -> None:
    run = await Tools(tmp_path, ALLOWED).run(run_command, command=words[0], args=words[1:])
    assert run.error_code in ("tool_denied", "invalid_arguments")


async def test_shell_syntax_is_only_an_argument(tmp_path: Path) -> None:
    args = ["; id", "$(id)", "`id`", "| id", "> x", "&& id", "${HOME}", "*", "\n id"]
    run = await Tools(tmp_path, ALLOWED).run(run_command, command="echo", args=["a", *args])
    assert run.output.text == "[exit code 0]\na " + " ".join(args)
    assert "uid=" not in run.output.text
    assert not (tmp_path / "x").exists()


async def test_program_in_the_working_directory_is_not_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "git"
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f".:{tmp_path}::/usr/bin:/bin")
    run = await Tools(tmp_path, ALLOWED).run(run_command, command="git status")
    assert "planted" not in run.output.text


@pytest.mark.parametrize(
    "injected",
    [
        {"args": "status; id"},
        {"args": {"0": "status"}},
        {"args": [["status"]]},
        {"args": [1]},
        {"args": [None]},
        {"command": ["git", "status"]},
        {"command": {"toString": "git status"}},
        {"command": None},
        {"__proto__": {"command": "id"}, "command": "id"},
        {"command": "id", "approved": True},
        {"command": "id", "allowed_commands": ["id"]},
        {"command": "id", "permissions": {"allowed_commands": ["id"]}},
        {"command": "id", "shell": True},
    ],
)
async def test_injected_arguments_give_no_permissions(
    tmp_path: Path, injected: dict[str, object]
) -> None:
    args = {"command": "git", **injected}
    run = await Tools(tmp_path, ALLOWED).run(run_command, **args)
    assert run.outcome in ("refused", "error")
    assert "uid=" not in run.output.text
    assert json.dumps(args)[:30] not in run.output.text


def test_grant_of_a_command_covers_every_spelling_of_that_command() -> None:
    spelt = ("git status", "git  status", "'git' status", 'git "status"', "g\\it sta'tus'")
    grants = {about_command({"command": line}, ALLOWED).grant for line in spelt}
    assert grants == {"git status"}
