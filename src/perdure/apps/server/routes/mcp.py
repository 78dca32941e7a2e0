"""MCP over HTTP: the sessions and the memory that a token allows, for any MCP client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from litestar import Request, asgi
from litestar.datastructures import State
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from perdure.apps.mcp_server import history
from perdure.apps.mcp_server.server import load_library, server_of
from perdure.apps.server.access.caller import require_own_origin
from perdure.apps.server.access.tokens import Principal
from perdure.apps.server.problems import Problem
from perdure.client.store import Store
from perdure.errors import ConfigError
from perdure.models.embedders.protocol import Embedder, EmbedderName


class McpServed(NamedTuple):
    """The store that an MCP server serves, and the embedder that it uses for recalls.

    With `is_writable`, a token with the role write also gets the tools that write.
    """

    store: Store
    is_writable: bool = True
    embedder: Embedder | EmbedderName | None = None


def mcp_route(served_of: Callable[[Scope], McpServed]) -> ASGIRouteHandler:
    """Return the route of an MCP server.

    `served_of` returns the `McpServed` of the server that a request was sent to.
    """

    @asgi("/mcp", copy_scope=False)
    async def serve_mcp(scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of an MCP client.

        Each request gets its own server, limited to the rights of its token.
        """
        request = Request[Principal, Any, State](scope)
        if request.method != "POST":
            raise MethodNotAllowedException(
                "send JSON-RPC messages with POST", headers={"allow": "POST"}
            )
        require_own_origin(request)
        served = served_of(scope)
        try:
            await asyncio.to_thread(load_library)  # takes seconds, once
            server = await server_of(
                served.store,
                _scope_of(request.user),
                is_writable=served.is_writable and request.user.may("write"),
                embedder=served.embedder,
            )
        except ConfigError as error:
            raise Problem(501, "mcp_missing", str(error)) from error
        server.streamable_http_app(stateless_http=True, json_response=True, host="")
        async with server.session_manager.run():
            await server.session_manager.handle_request(scope, receive, send)

    return serve_mcp


def _scope_of(principal: Principal) -> history.Scope:
    own = principal.subject
    return history.Scope(own, is_all=own is None, agent=principal.agent)
