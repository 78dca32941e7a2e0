import os
from pathlib import Path

import pytest

from perdure.apps.settings.agents import agents_here, chosen_agent, invocable, is_file_name
from perdure.client.agents.files.lookup import FoundAgentFile
from perdure.errors import ConfigError
from perdure.tools.permissions import Permissions

HEAD = "model: scripted:echo\nsystem_prompt: x\n"
WIDE = "permissions: {scope: full, approval: auto, allowed_commands: [ls]}\n"
SERVER = "mcp_servers: [{name: f, command: mcp-f}]\n"


class Here:
    def __init__(self, folder: Path) -> None:
        self.project = folder / "work" / ".perdure" / "agents"
        self.user = folder / "home" / ".config" / "perdure" / "agents"
        self.start = folder / "work"
        for place in (self.project, self.user):
            place.mkdir(parents=True)
        (self.project.parent / "config.toml").touch()
        self.environment = {"HOME": str(folder / "home")}

    def write(self, place: Path, id: str, more: str = "") -> Path:
        file = place / f"{id}.agent.yaml"
        file.write_text(f"id: {id}\n{HEAD}{more}")
        return file

    @property
    def found(self) -> tuple[FoundAgentFile, ...]:
        return agents_here(self.start, self.environment)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_project_agent_gets_only_permissions_that_the_user_allows(here: Here) -> None:
    here.write(here.project, "a", WIDE)
    chosen = chosen_agent("a", here.found, Permissions())
    assert chosen.agent.permissions == Permissions()
    (note,) = chosen.notes
    assert "scope, allowed_commands, approval" in note
    assert "chat.fs_scope, chat.allowed_commands (or --allow-command), chat.approval; or" in note
    assert note.endswith(f"trust the whole file: perdure chat --agent {chosen.file}")
    assert not chosen.is_own
    allowed = Permissions(scope="full", approval="auto", allowed_commands=("ls",))
    assert chosen_agent("a", here.found, allowed).agent.permissions == allowed


def test_agent_in_a_user_folder_gets_the_permissions_of_its_file(here: Here) -> None:
    here.write(here.user, "a", WIDE + SERVER)
    chosen = chosen_agent("a", here.found, Permissions())
    assert chosen.agent.permissions.approval == "auto"
    assert chosen.notes == ()
    assert chosen.is_own


def test_project_agent_with_mcp_servers_must_be_chosen_by_path(here: Here) -> None:
    file = here.write(here.project, "a", SERVER + WIDE)
    with pytest.raises(ConfigError, match="brings MCP servers"):
        chosen_agent("a", here.found, Permissions())
    chosen = chosen_agent(str(file), (), Permissions())
    assert chosen.agent.permissions.approval == "auto"
    assert chosen.agent.mcp_servers


def test_only_agents_with_unique_ids_can_be_invoked(here: Here) -> None:
    for place, id, more in (
        (here.project, "a", WIDE),
        (here.project, "b", ""),
        (here.user, "b", ""),
        (here.project, "server", SERVER),
        (here.user, "mine", WIDE),
    ):
        here.write(place, id, more)
    (here.user / "bad.agent.yaml").write_text("id: bad\n")
    me = chosen_agent("mine", here.found, Permissions()).agent
    agents = {agent.id: agent for agent in invocable(here.found, Permissions(), me)}
    assert list(agents) == ["mine", "a"]
    assert agents["a"].permissions == Permissions()


def test_agent_file_name_is_distinguished_from_agent_id() -> None:
    assert is_file_name("helper.agent.yaml")
    assert is_file_name(os.path.join("a", "b"))  # noqa: PTH118 - text as somebody types it
    assert not is_file_name("helper")
