"""Commands that the permissions allow. The tests that run commands are in tests/attacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import InvalidArguments, ToolDenied
from perdure.tools.builtin.shell import about_command, allowed_argv, run_command
from perdure.tools.permissions import Permissions
from tests.fakes.tool_calls import Tools

ALLOWED = Permissions(allowed_commands=("git status",), allowed_command_globs=("echo **",))


def test_command_can_be_given_as_a_line_or_as_words() -> None:
    assert allowed_argv({"command": "git  status"}, ALLOWED) == ("git", "status")
    assert allowed_argv({"command": "git", "args": ["status"]}, ALLOWED) == ("git", "status")
    assert allowed_argv({"command": "echo", "args": ["a;b", ""]}, ALLOWED) == ("echo", "a;b", "")


def test_command_line_and_word_list_give_same_grant() -> None:
    line = about_command({"command": "git 'status'"}, ALLOWED)
    words = about_command({"command": "git", "args": ["status"]}, ALLOWED)
    assert line == words
    assert line.grant == "git status"


def test_every_command_is_denied_without_command_rules() -> None:
    with pytest.raises(ToolDenied):
        allowed_argv({"command": "ls"}, Permissions())


def test_error_for_a_refused_command_lists_the_rules_in_force() -> None:
    with pytest.raises(
        ToolDenied, match=r": git status; echo \*\* \(a pattern matches no option\)$"
    ):
        allowed_argv({"command": "echo -n"}, ALLOWED)
    long = Permissions(allowed_commands=("x" * 900, "pwd"))
    with pytest.raises(ToolDenied, match=r": x{400}…$"):
        allowed_argv({"command": "ls"}, long)


def test_allowed_command_does_not_allow_other_arguments() -> None:
    with pytest.raises(ToolDenied):
        about_command({"command": "git push"}, Permissions(allowed_commands=("git",)))


@pytest.mark.parametrize("line", ["git status; id", "echo $(id)", "echo a > b", "echo `id`"])
def test_shell_syntax_is_rejected_with_reason(line: str) -> None:
    with pytest.raises(InvalidArguments, match="there is no shell"):
        about_command({"command": line}, ALLOWED)


async def test_command_of_a_missing_program_is_reported_as_unavailable(tmp_path: Path) -> None:
    permissions = Permissions(allowed_commands=("no-such-program-anywhere",))
    run = await Tools(tmp_path, permissions).run(run_command, command="no-such-program-anywhere")
    assert run.error_code == "tool_unavailable"
