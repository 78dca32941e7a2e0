"""Loads the modules of MCP servers in the process from which commands are forked."""

from __future__ import annotations

from tests.fakes.forked import preload
from tests.fakes.forked_commands import SERVERS

preload(*SERVERS, "perdure.apps.server.mcp_application", "mcp.server.mcpserver.resources")
preload("httpx2", "mcp.server", "uvicorn")  # not a server, which would change how all forks log
