"""``perdure mcp serve --http``: serves the MCP server of a store over streamable HTTP."""

from __future__ import annotations

import asyncio
import sys

from perdure.apps.mcp_server.server import load_library
from perdure.apps.server_commands.endpoint import Wanted, listen, run, server_module
from perdure.apps.server_commands.token_location import tokens_of
from perdure.apps.terminal.output import remark, show_result
from perdure.client.store import Store
from perdure.models.embedders.protocol import EmbedderName

PORT = 8322


def require_libraries() -> None:
    """Raises: ConfigError if one of the extras "server" and "mcp" is not installed."""
    server_module("perdure.apps.server_commands.server_process")
    server_module("perdure.apps.server.mcp_application")
    load_library()


async def serve_http(
    store: Store,
    wanted: Wanted,
    *,
    is_writable: bool,
    embedder: EmbedderName | None,
    as_json: bool,
) -> None:
    """Serve `store` until SIGINT or SIGTERM.

    Shape: with `as_json`, the address is printed as ``{"url"}``.
    Raises: UsageMistake if the address cannot be used; ConfigError if an extra is not installed.
    """
    await asyncio.to_thread(require_libraries)
    application = server_module("perdure.apps.server.mcp_application").McpApplication
    async with listen(wanted.host, wanted.port) as listening:
        tokens = await tokens_of(store)
        served = application(
            store, tokens, wanted.hosts, is_writable=is_writable, embedder=embedder
        )
        url = f"{wanted.address(listening.getsockname()[1])}/mcp"
        show_result({"url": url}, url, as_json=as_json)
        remark("each request needs a token of `perdure token create`. Stop with Ctrl-C.")
        sys.stdout.flush()
        await run(served, wanted, listening)
