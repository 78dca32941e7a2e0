"""Detection of home directories, working directories, and the user names in them."""

from __future__ import annotations

import pytest

from perdure.interop.redaction import paths
from perdure.interop.redaction.known_values import KnownValues


def homes(text: str) -> list[str]:
    return [text[find.start : find.end] for find in paths.homes(text)]


@pytest.mark.parametrize(
    ("text", "home"),
    [
        ("cd /home/alice/src", "/home/alice"),
        ("file:///home/alice/x", "/home/alice"),
        ("see /Users/alice.", "/Users/alice"),
        ("'/Users/alice b/x'", "/Users/alice"),
        ("/mnt/c/Users/Alice/x", "/mnt/c/Users/Alice"),
        ("/c/Users/Alice/x", "/c/Users/Alice"),
        ("/usr/home/alice", "/usr/home/alice"),
        ("C:\\Users\\Alice\\x", "C:\\Users\\Alice"),
        ("C:\\\\Users\\\\Alice B\\\\x", "C:\\\\Users\\\\Alice B"),
        ("ls /root", "/root"),
        ("PATH=/home/alice/bin:/usr/bin", "/home/alice"),
    ],
)
def test_home_directories_are_found_in_text(text: str, home: str) -> None:
    assert homes(text) == [home]


@pytest.mark.parametrize(
    "text",
    ["https://example.com/home/page", "src/home/view.py", "/etc/hosts", "~/x", "/rooted", "a/root"],
)
def test_path_outside_home_directories_is_not_found(text: str) -> None:
    assert homes(text) == []


def test_system_folders_with_user_name_are_found() -> None:
    folder = "/private/var/folders/ab/c1d2e3f4g5h6i7"
    assert homes(f"in {folder}/T/x") == [folder]
    assert homes("~alice/x") == ["alice"]


def test_user_names_in_home_directories_are_found() -> None:
    text = (
        "/home/alice/x /Users/Bob C:\\Users\\Carol\\x /home/runner/w /Users/Shared /home/al /root"
    )
    assert list(paths.users(text)) == ["alice", "Bob", "Carol"]


def test_folders_are_found_only_as_whole_paths() -> None:
    shape = paths.folder_pattern(["/home/alice/app", "/srv"])
    assert shape is not None
    text = "/home/alice/app/x /home/alice/app. /home/alice/app2 /home/alice/app.old /srv x/srv"
    assert [m.span()[0] for m in shape.finditer(text)] == [0, 18, 72]
    assert paths.folder_pattern([]) is None


@pytest.mark.parametrize("folder", ["/", "", ".", "src", "\\"])
def test_generic_folder_names_are_not_redacted(folder: str) -> None:
    assert not paths.is_telling(folder)


def test_longest_of_nested_folders_is_matched() -> None:
    shape = paths.folder_pattern(["/home/alice", "/home/alice/app"])
    assert shape is not None
    assert shape.findall("/home/alice/app/x /home/alice/y") == ["/home/alice/app", "/home/alice"]


def test_user_names_are_found_as_whole_words_in_any_letter_case() -> None:
    text = "Alice, ALICE_KEY, alice's -home-alice-src malice alices"
    names = KnownValues(["alice"], paths.SHORTEST_NAME)
    assert len(list(paths.people(names, text))) == 4
    assert list(paths.people(KnownValues([], paths.SHORTEST_NAME), text)) == []
