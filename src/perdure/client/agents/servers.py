"""The MCP servers of one runtime: those that are known by name, and those that are connected.

A server is connected when the first session needs it and ended with the runtime; sessions share
it. The protocol's library is loaded by who connects one.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from perdure.client.agents.agent import Agent
from perdure.errors import ConfigError
from perdure.secrets.vault import Vault
from perdure.tools.mcp.servers import McpServer

if TYPE_CHECKING:
    from perdure.tools.mcp.connection import Connection
    from perdure.tools.mcp.server_tools import Offer

_log = logging.getLogger(__name__)

_CONNECTION = "perdure.tools.mcp.connection"
_OFFERED = "perdure.tools.mcp.server_tools"


class Servers:
    """`known` are those that agents may name; `vault` is where their secrets are.

    Raises: ConfigError for two of one name.
    """

    def __init__(self, known: Iterable[McpServer], vault: Vault) -> None:
        self._known: dict[str, McpServer] = {}
        for server in known:
            if server.name in self._known:
                raise ConfigError(f"two MCP servers have the name {server.name!r}")
            self._known[server.name] = server
        self._vault = vault
        self._connections: dict[bytes, Connection] = {}
        self._offers: dict[str, list[Offer]] = {}

    async def equip(
        self, agent: Agent, working_dir: str, wanted: Collection[str] | None = None
    ) -> Agent:
        """`agent` with the tools of its servers behind its own.

        `wanted` are the names of the only tools that will be used, None: all; a server that has
        none of them is not connected. What a server offers and `agent` does not get is logged.
        Raises: McpUnavailable; ConfigError for a server that nobody knows.
        """
        tools = agent.registry.tools
        offers: list[Offer] = []
        for server in self._of(agent):
            is_used = wanted is None or any(name.startswith(server.prefix) for name in wanted)
            if not is_used:
                continue
            connection = self._connection(server, Path(working_dir))
            offer_tools = importlib.import_module(_OFFERED).offer_tools
            offer = cast("Offer", await offer_tools(connection, [spec.name for spec in tools]))
            for left in offer.left_out:
                told = (server.name, left.tool, left.reason)
                _log.warning("MCP server %s: the tool %s is left out: %s", *told)
            tools = (*tools, *offer.tools)
            offers.append(offer)
        self._offers[agent.id] = offers
        return agent.with_tools(tools) if offers else agent

    def report(self, agent: Agent) -> list[dict[str, object]]:
        """What the servers of `agent` offered when it was equipped last, as plain data."""
        return [
            {
                "name": offer.server,
                "tools": [spec.name for spec in offer.tools],
                "left_out": msgspec.to_builtins(offer.left_out),
            }
            for offer in self._offers.get(agent.id, ())
        ]

    async def aclose(self) -> None:
        """End every server that was started, and every connection."""
        while self._connections:
            _, connection = self._connections.popitem()
            await connection.close()

    def _of(self, agent: Agent) -> Iterator[McpServer]:
        used: set[str] = set()
        for each in agent.mcp_servers:
            server = each if isinstance(each, McpServer) else self._known.get(each)
            if server is None:
                known = ", ".join(sorted(self._known)) or "none"
                raise ConfigError(f"there is no MCP server {each!r} here; there are: {known}")
            if server.name in used:
                raise ConfigError(f"agent {agent.id!r} has two MCP servers named {server.name!r}")
            used.add(server.name)
            yield server

    def _connection(self, server: McpServer, working_dir: Path) -> Connection:
        place = "" if server.is_remote else str(server.working_dir or working_dir)
        key = msgspec.json.encode((server, place))
        if key not in self._connections:
            make = importlib.import_module(_CONNECTION).Connection
            self._connections[key] = make(server, self._vault, working_dir)
        return self._connections[key]
