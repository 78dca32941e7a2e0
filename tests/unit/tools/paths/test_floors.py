"""File names that tools never read or never write."""

from __future__ import annotations

import pytest

from perdure.tools.paths.floors import folded_name, is_protected, is_secret

DOTS = "a/b"


@pytest.mark.parametrize(
    "path",
    [
        ".ssh/id_rsa",
        "x/.AWS/credentials",
        ".env",
        ".env.production",
        ".ENV ",
        ".git/config",
        ".Git./CONFIG:stream",
        ".perdure",
        "home/.netrc.",
        ".g\u200cit/config",
        "\uff0e\uff45\uff4e\uff56",
        ".docker/config.json",
        "keys/id_ed25519",
    ],
)
def test_credentials_are_neither_read_nor_written(path: str) -> None:
    assert is_secret(path.split("/"))
    assert is_protected(path.split("/"))


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        "sub/.GIT/HEAD",
        "git~1/hooks/x",
        ".vimrc",
        ".VIMRC.",
        ".curlrc::$DATA",
        ".vscode/tasks.json",
        ".config/autostart/x.desktop",
        "Library/LaunchAgents/x.plist",
    ],
)
def test_autostart_files_are_readable_but_not_writable(path: str) -> None:
    assert not is_secret(path.split("/"))
    assert is_protected(path.split("/"))


@pytest.mark.parametrize("path", ["src/a.py", "git/config", "environment.py", "ssh.md", "dev/x"])
def test_file_name_that_is_not_protected_is_accessible(path: str) -> None:
    assert not is_protected(path.split("/"))


@pytest.mark.parametrize("path", ["etc/passwd", "usr/bin/x", "proc/self/mem", "dev/sda"])
def test_system_paths_are_protected_only_if_absolute(path: str) -> None:
    assert is_protected(path.split("/"), is_absolute=True)
    assert not is_protected(path.split("/"))


def test_blocked_names_match_every_spelling_that_a_file_system_accepts() -> None:
    assert folded_name(".GIT . .") == ".git"
    assert folded_name(".git::$INDEX_ALLOCATION") == ".git"


def test_only_flow_records_in_perdure_folder_are_accessible() -> None:
    assert not is_protected((".perdure", "records", "f", "plan.md"))
    assert is_secret((".perdure",))
    assert is_secret((".perdure", "key"))
    assert is_secret((".perdure", "records", ".ssh", "id"))
    assert is_protected((".perdure", "records", ".git", "hooks"))
    assert is_secret((".perdure", ".perdure", "records", "key"))
