"""The ASGI application of ``perdure mcp serve --http``: it has only the MCP server of a store.

A request passes the same layers as in `application`: host, token, rate and size checks.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import NotFoundException
from litestar.middleware import DefineMiddleware
from litestar.types import Receive, Scope, Send

from perdure.apps.server.access.caller import Authentication, Callers
from perdure.apps.server.access.guard import Guard
from perdure.apps.server.access.rates import Limits, Rates
from perdure.apps.server.access.tokens import TokenFile
from perdure.apps.server.application import (
    LIMITS,
    AnyReceive,
    AnyScope,
    AnySend,
    healthz,
    readyz,
)
from perdure.apps.server.problems import answer_problem, problem
from perdure.apps.server.readiness import Readiness
from perdure.apps.server.requests import Requests
from perdure.apps.server.routes.mcp import McpServed, mcp_route
from perdure.client.store import Store
from perdure.models.embedders.protocol import EmbedderName


class McpApplication:
    """Serves ``/mcp``, ``/healthz`` and ``/readyz`` for `store`.

    `tokens` finds the caller of each request. `hosts` are the host names of the server, in addition
    to those of loopback. With `is_writable`, a token with the role write may change facts. Recalls
    use `embedder`.
    """

    def __init__(
        self,
        store: Store,
        tokens: TokenFile,
        hosts: Sequence[str] = (),
        *,
        is_writable: bool = False,
        embedder: EmbedderName | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self._readiness = Readiness(store)
        callers = Callers(store, tokens, Rates(limits, store.outside.clock.steady_s))

        def callers_of(_: Scope) -> Callers:
            return callers

        served = McpServed(store, is_writable=is_writable, embedder=embedder)
        self._routes = Litestar(
            [mcp_route(lambda _: served), healthz, readyz],
            dependencies={"readiness": Provide(lambda: self._readiness, sync_to_thread=False)},
            exception_handlers={Exception: answer_problem, NotFoundException: _answer_no_route},
            middleware=[DefineMiddleware(Authentication, callers_of=callers_of)],
            openapi_config=None,
            lifespan=[self._running],
            logging_config=None,
        )
        self._guarded = Requests(Guard(self._routes, hosts), store.outside.random)

    async def __call__(self, scope: AnyScope, receive: AnyReceive, send: AnySend) -> None:
        """Serve one connection."""
        served = self._routes if scope["type"] == "lifespan" else self._guarded
        await served(cast("Scope", scope), cast("Receive", receive), cast("Send", send))

    def drain(self) -> None:
        """Answer ``/readyz`` with 503 from now on, so that a load balancer uses other servers."""
        self._readiness.is_draining = True

    def stop(self) -> None:
        """Accept no new requests."""
        self.drain()

    @contextlib.asynccontextmanager
    async def _running(self, _: Litestar) -> AsyncGenerator[None]:
        yield
        self.drain()


def _answer_no_route(_: Request[Any, Any, Any], __: NotFoundException) -> Response[bytes]:
    detail = "there is no such address; the MCP server is at /mcp"
    return problem(404, "route_not_found", detail, {})
