"""The configured MCP servers, which a user can refer to by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps.settings.layers import Configuration
from perdure.apps.settings.servers import known_servers, server_named, servers_of
from perdure.client.agents.agent import Agent
from perdure.client.agents.files.lookup import AgentPlace, FoundAgentFile
from perdure.errors import ConfigError, InvalidSettings
from perdure.tools.mcp.servers import McpServer

GIT = '[mcp.servers.git]\ncommand = "uvx"\nargs = ["mcp-server-git"]\ntimeout_s = 9\n'


def configured(folder: Path, text: str) -> Configuration:
    file = folder / "perdure" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    return Configuration(folder, {"XDG_CONFIG_HOME": str(folder), "HOME": str(folder)})


def filed(name: str, place: AgentPlace = "user", id: str = "helper") -> FoundAgentFile:
    server = McpServer(name=name, command="true")
    agent = Agent(
        id, model="scripted:echo", mcp_servers=[server] if name == "git" else [server, "git"]
    )
    return FoundAgentFile(Path(f"{id}.agent.yaml"), place, agent=agent)


def test_settings_contain_servers_by_name(tmp_path: Path) -> None:
    (server,) = servers_of(configured(tmp_path, GIT))
    assert server == McpServer(name="git", command="uvx", args=("mcp-server-git",), timeout_s=9)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[mcp.servers.a]\ncommand = "x"\nurl = "https://x.org"\n', "either a command or a url"),
        ("[mcp.servers.a]\nprogram = 5\n", "program"),
        ('[mcp.servers."a b"]\ncommand = "x"\n', "cannot name an MCP server"),
        ('[mcp.servers.a]\nurl = "http://example.org"\n', "only https"),
    ],
)
def test_invalid_server_is_reported_when_the_settings_are_read(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(InvalidSettings, match=told):
        configured(tmp_path, text)


BAD = (
    f"{GIT}\n[mcp.servers.odd]\ncommand = 'x'\ntimeout_s = 0\nconnect_timeout_s = nan\n\n"
    "[mcp.servers.two]\ncommand = 'x'\n\nheaders = {X = 'y'}\n"
    "[mcp.servers.secret]\ncommand = 'x'\n[mcp.servers.secret.env]\nAPI_TOKEN = 'hunter22'\n"
    "[mcp.servers.'a b']\ncommand = 'x'\n[mcp.servers.typo]\ncomand = 'x'\n"
)


def test_each_error_of_server_setting_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings) as refused:
        configured(tmp_path, BAD)
    assert [each.partition(":")[0] for each in refused.value.faults] == [
        *("line 8", "line 9", "line 14", "line 17", "line 19", "line 22"),
    ]


def test_invalid_server_does_not_affect_the_list_of_other_servers(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings):
        configured(tmp_path, BAD)
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    lenient = Configuration(tmp_path, environment, is_lenient=True)
    assert [server.name for server in servers_of(lenient)] == ["git"]
    told = {each.name: each.faults for each in lenient.faulty_servers}
    assert list(told) == ["odd", "two", "secret", "a b", "typo"]
    assert len(told["odd"]) == 2
    assert told["two"] == (
        "line 14: the MCP server 'two': headers and allow_local_endpoint are for a url",
    )
    assert "hunter22" not in str(told)


def test_servers_in_agent_files_are_available_to_their_agents(tmp_path: Path) -> None:
    known = known_servers(configured(tmp_path, GIT), (filed("docs"), filed("mail", id="other")))
    assert [(each.server.name, each.source) for each in known] == [
        ("git", "settings"),
        ("docs", "agent helper"),
        ("mail", "agent other"),
    ]
    assert server_named("docs", known) == known[1]


def test_unknown_or_ambiguous_server_name_is_rejected(tmp_path: Path) -> None:
    own = configured(tmp_path, GIT)
    found = (filed("git"), filed("docs", "project", id="cloned"))
    known = known_servers(own, found)
    with pytest.raises(ConfigError, match="there are: docs, git"):
        server_named("mail", known)
    with pytest.raises(ConfigError, match=r"several .* \(settings, agent helper\)"):
        server_named("git", known)
    with pytest.raises(ConfigError, match=r"comes with the project; look at cloned\.agent\.yaml"):
        server_named("docs", known)
