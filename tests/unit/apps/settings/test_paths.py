from pathlib import Path

import pytest

from perdure.apps.settings.lookup import agent_folders, person_file, project_file, setting


def project(folder: Path, text: str) -> Path:
    (folder / ".perdure").mkdir()
    (folder / ".perdure" / "config.toml").write_text(text, encoding="utf-8")
    return folder


def test_project_settings_file_is_none_outside_a_project(tmp_path: Path) -> None:
    assert project_file(tmp_path) is None


def test_settings_file_of_a_project_is_in_the_nearest_folder(tmp_path: Path) -> None:
    below = tmp_path / "a"
    below.mkdir()
    assert project_file(project(tmp_path, "") / "a") == tmp_path / ".perdure" / "config.toml"
    assert project_file(project(below, "")) == below / ".perdure" / "config.toml"


def test_user_settings_files_are_in_the_configuration_folder_of_the_user(tmp_path: Path) -> None:
    assert person_file({"HOME": "/h"}) == Path("/h/.config/perdure/config.toml")
    assert person_file({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == Path("/c/perdure/config.toml")
    assert person_file({"HOME": "/h", "XDG_CONFIG_HOME": "no"}).is_relative_to("/h")
    here = project(tmp_path, "")
    assert agent_folders(here, {"HOME": "/h"}) == {
        "project": tmp_path / ".perdure" / "agents",
        "user": Path("/h/.config/perdure/agents"),
    }


def test_user_settings_file_is_none_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", str)
    file = person_file({})
    assert file.is_absolute()
    assert not file.exists()
    assert setting("chat.model", Path("/"), {}) is None
