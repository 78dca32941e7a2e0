import os
from pathlib import Path

import pytest

from perdure.client.agents.files.lookup import agent_named, agents_found, load_agents
from perdure.errors import AgentNotFound, ConfigError, InvalidAgentFile
from tests.fakes.unreadable import unreadable


def written(folder: Path, name: str, id: str | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.agent.yaml"
    file.write_text(f"id: {id or name}\nmodel: scripted:echo\nsystem_prompt: x\n")
    return file


def test_agent_of_the_project_is_preferred_to_agent_of_the_user(tmp_path: Path) -> None:
    written(tmp_path / "user", "a")
    written(tmp_path / "project", "b")
    found = agents_found({"project": tmp_path / "project", "user": tmp_path / "user"})
    assert [(filed.id, filed.place) for filed in found] == [("b", "project"), ("a", "user")]
    assert agent_named("a", found).agent is not None
    assert agents_found({"project": tmp_path / "nowhere"}) == ()


def test_error_for_an_unknown_agent_id_lists_the_known_ids(tmp_path: Path) -> None:
    written(tmp_path / "p", "b")
    written(tmp_path / "p", "a")
    found = agents_found({"project": tmp_path / "p"})
    with pytest.raises(AgentNotFound, match=r"there is no agent 'c'; there are: a, b"):
        agent_named("c", found)


def test_duplicate_agent_id_error_lists_both_files(tmp_path: Path) -> None:
    written(tmp_path / "project", "a")
    written(tmp_path / "user", "other", "a")
    found = agents_found({"project": tmp_path / "project", "user": tmp_path / "user"})
    with pytest.raises(ConfigError, match=r"a\.agent\.yaml, .*other\.agent\.yaml"):
        agent_named("a", found)


def test_invalid_agent_file_does_not_affect_other_agents(tmp_path: Path) -> None:
    written(tmp_path / "p", "good")
    (tmp_path / "p" / "bad.agent.yaml").write_text("id: bad\n")
    found = agents_found({"project": tmp_path / "p"})
    assert agent_named("good", found).agent is not None
    with pytest.raises(InvalidAgentFile, match="model"):
        agent_named("bad", found)


def test_device_file_or_pipe_is_not_an_agent_file(tmp_path: Path) -> None:
    written(tmp_path / "p", "good")
    (tmp_path / "p" / "zero.agent.yaml").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "p" / "pipe.agent.yaml")
    found = agents_found({"project": tmp_path / "p"})
    assert agent_named("good", found).agent is not None
    for name in ("zero", "pipe"):
        with pytest.raises(ConfigError, match="not a regular file"):
            agent_named(name, found)


def test_folders_of_agents_are_loaded_for_a_runtime(tmp_path: Path) -> None:
    written(tmp_path / "p", "a")
    written(tmp_path / "q", "b")
    assert [agent.id for agent in load_agents(tmp_path / "p", tmp_path / "q")] == ["a", "b"]
    written(tmp_path / "q", "c", "a")
    with pytest.raises(ConfigError, match="both the agent 'a'"):
        load_agents(tmp_path / "p", tmp_path / "q")
    with pytest.raises(ConfigError, match="no folder"):
        load_agents(tmp_path / "none")


def test_unreadable_folder_of_agents_is_an_error(tmp_path: Path) -> None:
    written(tmp_path / "p", "a")
    with unreadable(tmp_path / "p"):
        for folder in (tmp_path / "p", tmp_path / "p" / "below"):
            with pytest.raises(ConfigError, match="cannot be read: Permission denied; check its"):
                load_agents(folder)
