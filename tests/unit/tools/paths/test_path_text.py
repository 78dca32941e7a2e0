"""Impossible paths are rejected without access to the file system."""

from __future__ import annotations

import pytest

from perdure.tools.paths.path_text import Escape, checked_path, names_of_text


@pytest.mark.parametrize("path", ["a", "a/b.txt", "./a", "a/../b", "/x/y", ".hidden"])
def test_path_of_this_system_is_returned_unchanged(path: str) -> None:
    assert checked_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["a\0b", "a\\b", "C:/x", "//?/C:/x", "file:///x", "a/\u2024\u2024/b", "a/.\u200b./b", "\ud800"],
)
def test_path_of_another_system_is_rejected(path: str) -> None:
    with pytest.raises(Escape):
        checked_path(path)


def test_path_that_is_too_long_raises_os_error() -> None:
    with pytest.raises(OSError, match="name too long"):
        checked_path("a" * 5000)


def test_parts_of_a_path_omit_single_dots_and_empty_parts() -> None:
    assert names_of_text("/a//./b/../c") == ["a", "b", "..", "c"]
