from pathlib import Path

import pytest

from perdure.apps.settings.places import agent_folders, person_file, project_file, setting


def project(folder: Path, text: str) -> Path:
    (folder / ".perdure").mkdir()
    (folder / ".perdure" / "config.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "PERDURE_NAMESPACE", "PERDURE_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_the_nearest_project_counts_from_every_folder_below_it(tmp_path: Path) -> None:
    outer = project(tmp_path, '[store]\nnamespace = "outer"')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert setting("store.namespace", inner) == "outer"
    project(tmp_path / "a", '[store]\nnamespace = "inner"')
    assert setting("store.namespace", inner) == "inner"
    assert setting("store.namespace", outer) == "outer"


def test_where_there_is_no_file_nothing_is_said(tmp_path: Path) -> None:
    assert project_file(tmp_path) is None
    assert setting("store.namespace", tmp_path) is None


def test_the_home_folder_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, '[store]\nnamespace = "home"')
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert setting("store.namespace", tmp_path / "work") is None


def test_a_persons_files_are_in_their_configuration_folder(tmp_path: Path) -> None:
    assert person_file({"HOME": "/h"}) == Path("/h/.config/perdure/config.toml")
    assert person_file({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == Path("/c/perdure/config.toml")
    assert person_file({"HOME": "/h", "XDG_CONFIG_HOME": "no"}).is_relative_to("/h")
    here = project(tmp_path, "")
    assert agent_folders(here, {"HOME": "/h"}) == {
        "project": tmp_path / ".perdure" / "agents",
        "user": Path("/h/.config/perdure/agents"),
    }
