"""CORS headers, so that pages of other origins can use the widget's files and the API."""

from __future__ import annotations

from typing import cast

from litestar.datastructures import Headers, MutableScopeHeaders
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from perdure.apps.server.access.tokens import TokenFile, TokensUnavailable

_PREFLIGHT = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type, idempotency-key, last-event-id",
    "access-control-max-age": "600",
}
_OPEN = {"access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin"}


class Origins:
    """Adds CORS headers to answers.

    Any origin may use the files of the widget. Only the origins of publishable tokens may use the
    API. No answer allows credentials, so no page of another site can use the console's cookie.
    """

    def __init__(self, app: ASGIApp, tokens: TokenFile) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = self._headers_for(scope)

        async def shared(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableScopeHeaders.from_message(message)
                for name, value in headers.items():
                    found[name] = value
            await send(message)

        asked = Headers.from_scope(scope)
        is_preflight = (
            scope.get("method") == "OPTIONS"
            and "access-control-request-method" in asked
            and "access-control-allow-origin" in headers
        )
        if not is_preflight:
            await self._app(scope, receive, shared)
            return
        pairs = [(name.encode(), value.encode()) for name, value in _PREFLIGHT.items()]
        await shared({"type": "http.response.start", "status": 204, "headers": pairs})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _known(self) -> frozenset[str]:
        try:
            return self._tokens.origins()
        except TokensUnavailable:  # the request is refused, with a problem
            return frozenset()

    def _headers_for(self, scope: Scope) -> dict[str, str]:
        path = path_of(scope)
        if path == "/widget.js" or path.startswith("/console/"):
            return _OPEN
        origin = Headers.from_scope(scope).get("origin")
        if origin is None:
            return {}
        if origin not in self._known():
            return {"vary": "Origin"}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": "retry-after",
            "vary": "Origin",
        }


def path_of(scope: Scope) -> str:
    """Return the path of a request, relative to the path at which the server is mounted."""
    path = scope["path"]
    root = str(cast("dict[str, object]", scope).get("root_path") or "")
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path
