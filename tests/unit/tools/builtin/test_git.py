"""Arguments of the git tools. Real repositories are in tests/attacks/test_git.py."""

from __future__ import annotations

import pytest

from perdure.errors import ToolError
from perdure.tools.builtin.git import about_commit, git_commit, git_status
from perdure.tools.permissions import Permissions


def test_git_commit_requires_approval_each_time() -> None:
    subject = about_commit({"message": "fix: it\n\nlong", "files": ["a.py"]}, Permissions())
    assert (subject.shown, subject.grant) == ("fix: it (a.py)", None)
    assert git_commit.is_gated


@pytest.mark.parametrize(
    ("message", "files"),
    [
        (" ", None),
        ("a\0b", None),
        ("x", ["-a"]),
        ("x", ["--amend"]),
        ("x", [""]),
        ("x", [".env"]),
        ("x", ["conf/.AWS/credentials"]),
    ],
)
def test_git_commit_refuses_flags_secrets_and_empty_messages(
    message: str, files: list[str]
) -> None:
    with pytest.raises(ToolError):
        about_commit({"message": message, "files": files}, Permissions())


def test_git_status_rejects_flags() -> None:
    assert set(git_status.parameters["properties"]) == {"command"}  # pyright: ignore[reportArgumentType] - a dict there
    assert git_status.action is None
