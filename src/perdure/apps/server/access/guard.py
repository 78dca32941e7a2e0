"""Checks the ``Host`` of every request, and adds headers to every answer.

In a DNS rebinding attack, the name server of another site makes the site's host name point to this
server, so that a page of the other site can send requests to this server; the ``Host`` of these
requests names the other site.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from litestar import Request
from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from perdure.apps.server.problems import Problem, problem

LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))

_CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

_HEADERS = {
    "content-security-policy": _CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


BODY_S = 60.0
"""Maximum time between two pieces of a request."""


class Guard:
    """Rejects requests for unknown hosts, and adds to answers the headers that protect browsers.

    A header that a route sets itself is not changed. If a client does not send the rest of its
    request, the server stops waiting for it.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = LOOPBACK | {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableScopeHeaders.from_message(message)
                for name in _HEADERS.keys() - headers.keys():
                    headers[name] = _HEADERS[name]
            await send(message)

        if _host_of(scope) in self._hosts:
            await self._app(scope, _Patience(receive).receive, protected)
        elif scope["type"] == "http":
            detail = "unknown Host; the names of this server are set where the server is started"
            refused = problem(421, "host_refused", detail, {}).to_asgi_response(
                None, Request(scope)
            )
            await refused(scope, receive, protected)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "host refused"})


class _Patience:
    """Receives a request within a time limit.

    After the request was received, waits without a time limit for the end of the connection.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_whole = False

    async def receive(self) -> Any:
        """Return the next message. Raises: Problem 408 if no message arrives within `BODY_S`."""
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout(BODY_S):
                message = await self._receive()
        except TimeoutError:
            detail = f"no part of the request body arrived for {BODY_S:g} s"
            raise Problem(408, "body_timeout", detail) from None
        self._is_whole = message["type"] != "http.request" or not message.get("more_body")
        return message


def _host_of(scope: Scope) -> str:
    """Return the name in the ``Host`` header, without a port, in lower case."""
    found = [value for name, value in scope["headers"] if name == b"host"]
    text = found[0].decode("latin-1").lower() if len(found) == 1 else ""
    name, colon, port = text.rpartition(":")
    return name if colon and port.isdigit() else text
