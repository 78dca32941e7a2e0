"""Project files that perdure reads; attacks are in tests/attacks/test_flow_links.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perdure.errors import ConfigError, LimitExceeded
from perdure.tools.paths.project_files import is_there, read_inside, read_workflow, text_inside


def test_line_ends_of_project_file_are_normalized(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"x\r\ny")
    assert read_inside(tmp_path, "a.md") == b"x\r\ny"
    assert text_inside(tmp_path, "a.md") == "x\ny"
    assert read_workflow(tmp_path / "a.md") == "x\ny"


def test_missing_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.md cannot be read: .*No such file"):
        read_inside(tmp_path, "a.md")
    assert not is_there(tmp_path, "a.md")
    missing = tmp_path / "missing" / "x.yaml"
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(missing))} cannot be read: "):
        read_workflow(missing)


def test_dangling_link_counts_as_existing(tmp_path: Path) -> None:
    (tmp_path / "a.md").symlink_to("b.md")
    assert is_there(tmp_path, "a.md")


def test_link_to_a_file_outside_the_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.md").symlink_to("../secret")
    with pytest.raises(ConfigError, match="leads out"):
        read_workflow(tmp_path / "folder" / "a.md")


def test_project_file_larger_than_the_limit_raises_limit_exceeded(tmp_path: Path) -> None:
    with (tmp_path / "a.md").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(LimitExceeded, match=r"^a\.md exceeds"):
        read_inside(tmp_path, "a.md")
