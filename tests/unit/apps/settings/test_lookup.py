from pathlib import Path

import pytest

from perdure.apps.settings.lookup import agent_folders, project_file, setting


def project(folder: Path, text: str) -> Path:
    (folder / ".perdure").mkdir()
    (folder / ".perdure" / "config.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "PERDURE_NAMESPACE", "PERDURE_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_project_is_found_from_every_folder_below_it(tmp_path: Path) -> None:
    outer = project(tmp_path, '[store]\nnamespace = "outer"')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert setting("store.namespace", inner) == "outer"
    project(tmp_path / "a", '[store]\nnamespace = "inner"')
    assert setting("store.namespace", inner) == "inner"
    assert setting("store.namespace", outer) == "outer"


def test_setting_is_none_without_a_settings_file(tmp_path: Path) -> None:
    assert setting("store.namespace", tmp_path) is None


def test_home_folder_is_not_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, '[store]\nnamespace = "home"')
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert setting("store.namespace", tmp_path / "work") is None


def test_agents_of_a_project_are_found_without_a_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    inner = tmp_path / "home" / "outer" / "inner"
    agents = tmp_path / "home" / "outer" / ".perdure" / "agents"
    (tmp_path / "home" / ".perdure" / "agents").mkdir(parents=True)
    inner.mkdir(parents=True)
    assert set(agent_folders(inner, {"HOME": str(tmp_path / "home")})) == {"user"}
    agents.mkdir(parents=True)
    assert agent_folders(inner, {})["project"] == agents
    (inner / ".perdure").mkdir()
    assert agent_folders(inner, {})["project"] == agents
    (inner / ".perdure" / "config.toml").write_text("")
    assert agent_folders(inner, {})["project"] == inner / ".perdure" / "agents"
    assert project_file(agents) is None
