"""The settings of a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps.cli.words.project import project_namespace
from perdure.apps.setup.files import namespace_for, set_up
from perdure.errors import ConfigError


def settings(folder: Path, text: str) -> Path:
    (folder / ".perdure").mkdir()
    (folder / ".perdure" / "config.toml").write_text(text, encoding="utf-8")
    return folder


def test_the_nearest_project_counts_from_every_folder_below_it(tmp_path: Path) -> None:
    outer = settings(tmp_path, '[store]\nnamespace = "outer"')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project_namespace(inner) == "outer"
    settings(tmp_path / "a", '[store]\nnamespace = "inner"')
    assert project_namespace(inner) == "inner"
    assert project_namespace(outer) == "outer"


def test_no_project_names_no_namespace(tmp_path: Path) -> None:
    assert project_namespace(tmp_path) is None
    assert project_namespace(settings(tmp_path, "[chat]\nmodel = 'x'\n")) is None


def test_the_home_folder_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(tmp_path, '[store]\nnamespace = "home"')
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert project_namespace(tmp_path / "work") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x=", "is no TOML"),
        ('store = "x"', "is a table"),
        ("[store]\nnamespace = 5", "is a name in quotes"),
        ('[store]\nnamespace = " "', "is a name in quotes"),
        ('[store]\naddress = "postgresql://evil"', "cannot set address"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_file(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        project_namespace(settings(tmp_path, text))
    assert "config.toml" in str(refused.value)


def test_a_project_is_set_up_once_and_nothing_of_it_is_replaced(tmp_path: Path) -> None:
    assert [made.is_new for made in set_up(tmp_path, "tides")] == [True, True]
    before = {file: file.read_bytes() for file in (tmp_path / ".perdure").iterdir()}
    assert [made.is_new for made in set_up(tmp_path, "other")] == [False, False]
    assert {file: file.read_bytes() for file in (tmp_path / ".perdure").iterdir()} == before
    assert project_namespace(tmp_path) == "tides"


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("tidepool", "tidepool"),
        ("my project (2)", "my-project-2"),
        ("漢字", "project"),
        (".x", "x"),
    ],
)
def test_a_namespace_is_named_after_the_folder(name: str, namespace: str) -> None:
    assert namespace_for(Path("/w") / name) == namespace
    assert len(namespace_for(Path("/w") / (name * 100))) <= 60
