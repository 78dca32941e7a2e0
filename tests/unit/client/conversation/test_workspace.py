"""The detected properties of a working directory, and the variables for instructions."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.conversation.workspace import (
    Selection,
    Workspace,
    detect_workspace,
    git_ref_of,
)
from perdure.errors import SecretPasted, WrongArgument


def test_git_branch_is_read_from_the_repository_that_contains_the_folder(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/feature/x\n")
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    assert git_ref_of(inside) == "feature/x"
    assert detect_workspace(Workspace(str(inside))).git_ref == "feature/x"


def test_git_ref_is_read_from_worktree_and_detached_commit(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "HEAD").write_text("0123abcd\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text("gitdir: ../elsewhere\n")
    assert git_ref_of(tmp_path / "tree") == "0123abcd"


def test_unreadable_git_ref_is_read_as_none(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    assert git_ref_of(tmp_path) is None
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert git_ref_of(tmp_path) is None
    assert detect_workspace(Workspace(str(tmp_path), git_ref="mine")).git_ref == "mine"


def test_detected_directory_is_absolute() -> None:
    assert Path(detect_workspace(None).working_dir).is_absolute()


def test_credential_in_variable_is_rejected_without_quoting_it() -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    with pytest.raises(SecretPasted) as refused:
        detect_workspace(Workspace(variables={"KEY": secret}))
    assert "KEY" in str(refused.value)
    assert secret not in str(refused.value)


def test_variable_with_reserved_workspace_name_is_rejected() -> None:
    place = Workspace(variables={"git_ref": "mine"}, git_ref="main", active_file="a.py")
    with pytest.raises(WrongArgument, match="'git_ref'"):
        detect_workspace(place)


def test_workspace_values_include_variables_and_empty_fields() -> None:
    place = Workspace("here", variables={"shop": "tea"}, active_file="a.py")
    own = {"working_dir": "here", "git_ref": "", "active_file": "a.py", "selection": ""}
    assert place.names == {**own, "shop": "tea"}


@pytest.mark.parametrize(("first", "last"), [(0, 1), (3, 2)])
def test_selection_that_ends_before_its_start_is_rejected(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="no selection"):
        Selection("a.py", first, last)
    assert Selection("a.py", 2, 2).end_line == 2
