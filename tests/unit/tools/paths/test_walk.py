from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.errors import LimitExceeded
from perdure.tools.paths import walk
from perdure.tools.paths.jail import Jail
from perdure.tools.paths.walk import entries_below, matches
from tests.fakes.samples import case


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("b.txt", "a/z.txt", "a/y/x.txt", ".git/objects/1", ".env", ".ssh/key", "empty/"):
        place = tmp_path / name
        (place if name.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            place.write_text("text")
    (tmp_path / "c-link").symlink_to("a")
    os.mkfifo(tmp_path / "d-pipe")
    return tmp_path


def paths_in(root: Path, path: str = ".", *, is_recursive: bool) -> list[str]:
    with Jail(root, "tool").directory(path) as start:
        found = entries_below(start, is_recursive=is_recursive)
        return ["/".join(entry.names) for entry in found]


def test_entries_are_sorted_and_directories_precede_their_contents(root: Path) -> None:
    assert paths_in(root, is_recursive=True) == [
        ".env",
        ".git",
        ".ssh",
        "a",
        "a/y",
        "a/y/x.txt",
        "a/z.txt",
        "b.txt",
        "c-link",
        "d-pipe",
        "empty",
    ]


def test_list_without_recursion_contains_only_direct_entries(
    root: Path,
) -> None:
    assert paths_in(root, "a", is_recursive=False) == ["y", "z.txt"]


def test_git_folder_can_be_listed_explicitly(root: Path) -> None:
    assert paths_in(root, ".git", is_recursive=True) == ["objects", "objects/1"]


def test_directory_entry_has_its_kind_and_secret_flag(root: Path) -> None:
    with Jail(root, "tool").directory(".") as start:
        kinds = {e.name: (e.kind, e.is_secret) for e in entries_below(start, is_recursive=False)}
    assert kinds == {
        ".env": ("file", True),
        ".git": ("directory", False),
        ".ssh": ("directory", True),
        "a": ("directory", False),
        "b.txt": ("file", False),
        "c-link": ("link", False),
        "d-pipe": ("other", False),
        "empty": ("directory", False),
    }


def test_walk_of_a_git_folder_marks_secret_files(root: Path) -> None:
    (root / ".git" / "config").write_text("url = https://token@host")
    with Jail(root, "tool").directory(".git") as start:
        secret = [e.name for e in entries_below(start, is_recursive=True) if e.is_secret]
    assert secret == ["config"]


def test_folder_walk_stops_at_its_limit_of_visited_paths(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "MAX_VISITED", 3)
    assert len(paths_in(root, is_recursive=True)) == 3


def test_unreadable_directory_is_listed_and_skipped(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(parent: int, name: str) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(walk, "open_directory", refused)
    assert "a" in paths_in(root, is_recursive=True)
    assert "a/z.txt" not in paths_in(root, is_recursive=True)


def test_glob_matches_the_expected_paths() -> None:
    for pattern, path, fits in [
        ("*.py", "a.py", True),
        ("*.py", "deep/down/a.py", True),
        ("*.py", "a.pyc", False),
        ("a?.py", "ab.py", True),
        ("[ab].py", "b.py", True),
        ("[!ab].py", "b.py", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/y/a.py", True),
        ("src/**/*.py", "lib/a.py", False),
        ("**/x/*", "a/x/b", True),
        ("**/x/*", "x/b", True),
        ("src/**", "src/a/b", True),
        ("./src/*", "src/a", True),
        ("src/", "src", True),
        ("*", ".hidden", True),
        ("A.py", "a.py", False),
        ("**/**/**/b", "a/a/a/b", True),
    ]:
        with case((pattern, path, fits)):
            assert matches(pattern, tuple(path.split("/"))) is fits


def test_matching_a_hostile_glob_is_fast() -> None:
    assert not matches("*a" * 60 + "b", ("a" * 255,))
    assert not matches("**/" * 60 + "b", ("a",) * 60)
    assert not matches("**/a*/" * 30 + "b", ("a",) * 64)


def test_glob_with_many_parts_is_matched_up_to_the_limit() -> None:
    assert matches("**/" * 300 + "b", ("a", "b"))
    assert not matches("**/a/" * 199 + "b", ("a",) * 64)
    with pytest.raises(LimitExceeded, match=r"limits\.glob_characters = 1,000"):
        matches("**/" * 2_000 + "b", ("a", "b"))
