"""The files of a new project."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps.scaffold import Made, write_templates

CONFIG = ("config.toml", "below/here.toml")


def test_template_contains_the_namespace_and_never_replaces_a_file(tmp_path: Path) -> None:
    assert write_templates(tmp_path, "project", [CONFIG], "tides") == (Made(CONFIG[1], True),)
    file = tmp_path / "below" / "here.toml"
    assert 'namespace = "tides"\n' in file.read_text()
    assert write_templates(tmp_path, "project", [CONFIG], "other") == (Made(CONFIG[1], False),)
    assert 'namespace = "tides"\n' in file.read_text()
    assert [each.name for each in file.parent.iterdir()] == ["here.toml"]


def test_no_file_is_written_if_a_folder_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "agents").touch()
    with pytest.raises(FileExistsError):
        write_templates(tmp_path, "project", [CONFIG, ("gitignore", "agents/.gitignore")], "tides")
    assert not (tmp_path / CONFIG[1]).exists()
