from pathlib import Path

import pytest

from perdure.apps.settings.lookup import setting
from perdure.apps.setup.command import EXAMPLE, namespace_for, set_up
from perdure.client.agents.files.reader import agent_in


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_init_never_replaces_an_existing_project(tmp_path: Path) -> None:
    assert [made.is_new for made in set_up(tmp_path, "tides")] == [True, True, True]
    before = contents(tmp_path)
    assert [made.is_new for made in set_up(tmp_path, "other")] == [False, False, False]
    assert contents(tmp_path) == before
    assert setting("store.namespace", tmp_path, {"HOME": str(tmp_path / "home")}) == "tides"


def test_example_agent_has_only_read_permissions(tmp_path: Path) -> None:
    set_up(tmp_path, "tides")
    agent = agent_in(tmp_path / ".perdure" / "agents" / EXAMPLE)
    assert agent.permissions.approval == "plan"
    assert all(tool.effect == "read" for tool in agent.registry.tools)


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("tidepool", "tidepool"),
        ("my project (2)", "my-project-2"),
        ("漢字", "project"),
        (".x", "x"),
    ],
)
def test_namespace_is_named_after_the_folder(name: str, namespace: str) -> None:
    assert namespace_for(Path("/w") / name) == namespace
    assert len(namespace_for(Path("/w") / (name * 100))) <= 60
