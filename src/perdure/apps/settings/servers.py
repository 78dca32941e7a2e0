"""The MCP servers of the user's settings and agent files.

An MCP server of a project's agent comes with a cloned repository, so it is listed, but can be used
only by naming the agent's file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perdure.apps.settings.layers import Configuration
from perdure.errors import ConfigError
from perdure.tools.mcp.servers import McpServer

if TYPE_CHECKING:
    from perdure.client.agents.agent import Agent
    from perdure.client.agents.files.lookup import FoundAgentFile

SETTINGS = "settings"


class ServerNotFound(ConfigError):
    """No MCP server has the requested name. `known` lists the valid server names."""

    code = "mcp_server_not_found"

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        add = "none; add one as [mcp.servers.NAME] to your settings (`perdure config path`)"
        names = ", ".join(known) or add
        super().__init__(f"there is no MCP server {name!r}; there are: {names}")
        self.name = name
        self.known = known


class Known(msgspec.Struct, frozen=True):
    """An MCP server, and where it is defined: in the settings, or in an agent file.

    `is_own` is True if the file belongs to the user or the user named it; otherwise, it belongs to
    the project.
    """

    server: McpServer
    source: str
    file: Path | None = None
    is_own: bool = True


def servers_of(configuration: Configuration) -> tuple[McpServer, ...]:
    """Return the servers from the settings; every agent may use them by name."""
    filed = configuration.value("mcp.servers")
    return tuple(each.server(name) for name, each in filed.items())


def known_servers(
    configuration: Configuration, found: Iterable[FoundAgentFile]
) -> tuple[Known, ...]:
    """Return all servers: first those of the settings, then those of the agent files in `found`."""
    return (
        *(Known(server, SETTINGS) for server in servers_of(configuration)),
        *(known for filed in found for known in _in_agent(filed)),
    )


def server_named(name: str, known: Sequence[Known]) -> Known:
    """Return the server with the name `name` in `known`.

    Raises: ServerNotFound if no server has this name; ConfigError if the name is ambiguous, or if
    the server is a project's.
    """
    fitting = [each for each in known if each.server.name == name]
    if not fitting:
        raise ServerNotFound(name, tuple(sorted({each.server.name for each in known})))
    if len(fitting) > 1:
        sources = ", ".join(each.source for each in fitting)
        raise ConfigError(
            f"several MCP servers are called {name!r} ({sources}); name the file of the agent that "
            "is meant: --agent FILE"
        )
    if not fitting[0].is_own:
        raise ConfigError(
            f"the MCP server {name!r} comes with the project; look at {fitting[0].file} and, if "
            f"you trust it, name the file: --agent {fitting[0].file}"
        )
    return fitting[0]


def without_servers(agents: Sequence[Agent], names: Collection[str]) -> list[Agent]:
    """Return `agents` without the servers in `names`.

    Raises: ServerNotFound for an unknown name.
    """
    known = {_name_of(each) for agent in agents for each in agent.mcp_servers}
    for name in names:
        if name not in known:
            raise ServerNotFound(name, tuple(sorted(known)))
    return [
        msgspec.structs.replace(
            agent,
            mcp_servers=tuple(each for each in agent.mcp_servers if _name_of(each) not in names),
        )
        for agent in agents
    ]


def _name_of(server: str | McpServer) -> str:
    return server if isinstance(server, str) else server.name


def _in_agent(filed: FoundAgentFile) -> Iterator[Known]:
    servers = () if filed.agent is None else filed.agent.mcp_servers
    for server in servers:
        if isinstance(server, McpServer):
            yield Known(server, f"agent {filed.id}", filed.file, filed.place == "user")
