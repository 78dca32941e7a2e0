"""Records each request as one line of the access log, and as a span of OpenTelemetry.

Neither the log line nor the span contains content of a request: a path is recorded as its template,
and a query is omitted.
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from perdure.apps.server.access.tokens import Principal
from perdure.engine.telemetry import names
from perdure.engine.telemetry.isolation import Guarded

HEADER = "x-request-id"

access_log = logging.getLogger("perdure.access")
"""One line for each request: method, route, status, milliseconds, and ids of request and token."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_CARRIED = ("traceparent", "tracestate")
_TRACE = "opentelemetry.trace"
_FAILED = 500


class Requests:
    """Logs and traces the requests that it serves. `random` returns a given number of random bytes.

    A request with one valid ``X-Request-ID`` keeps this id; any other request gets a new id.
    The answer has the id of the request in the header ``X-Request-ID``.
    """

    def __init__(self, app: ASGIApp, random: Callable[[int], bytes]) -> None:
        self._app = app
        self._random = random

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = _FAILED
        id = self._id_of(scope)

        async def numbered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableScopeHeaders.from_message(message)[HEADER] = id
            await send(message)

        started_s = time.monotonic()
        with _span(scope) as finish:
            try:
                await self._app(scope, receive, numbered)
            finally:
                finish(status)
                elapsed_ms = round((time.monotonic() - started_s) * 1000)
                access_log.info(
                    "%s %s %d %dms request=%s token=%s",
                    scope.get("method"),
                    route_of(scope),
                    status,
                    elapsed_ms,
                    id,
                    _token_of(scope),
                )

    def _id_of(self, scope: Scope) -> str:
        given = [value for name, value in scope["headers"] if name == HEADER.encode()]
        if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]):
            return given[0].decode()
        return self._random(8).hex()


def route_of(scope: Scope) -> str:
    """Return the template of the path in `scope`; "-" if no route matched."""
    template = cast("dict[str, Any]", scope).get("path_template")
    return template if isinstance(template, str) and template else "-"


def _token_of(scope: Scope) -> str:
    principal = cast("dict[str, Any]", scope).get("user")
    return principal.token if isinstance(principal, Principal) else "-"


def _span(scope: Scope) -> AbstractContextManager[Callable[[int], None]]:
    """Open the span of a request while it is processed; yield a function that records the status.

    If the program does not use OpenTelemetry, this function only looks up one module. An error in
    the span does not affect the request.
    """
    if _TRACE not in sys.modules:
        return nullcontext(lambda _: None)
    return Guarded[int](lambda: _opened(scope))


@contextmanager
def _opened(scope: Scope) -> Generator[Callable[[int], None]]:
    trace: Any = importlib.import_module(_TRACE)
    context: Any = importlib.import_module("opentelemetry.context")
    carrier: Any = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
    carried = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name.decode("latin-1") in _CARRIED
    }
    span = trace.get_tracer("perdure").start_span(
        cast("dict[str, Any]", scope)["method"],
        context=carrier.TraceContextTextMapPropagator().extract(carried),
        kind=trace.SpanKind.SERVER,
    )
    token = context.attach(trace.set_span_in_context(span))

    def finish(status: int) -> None:
        method, route = cast("dict[str, Any]", scope)["method"], route_of(scope)
        span.update_name(f"{method} {route}")
        span.set_attributes(
            {names.HTTP_METHOD: method, names.HTTP_ROUTE: route, names.HTTP_STATUS: status}
        )
        if status >= _FAILED:
            span.set_status(trace.Status(trace.StatusCode.ERROR))

    try:
        yield finish
    finally:
        context.detach(token)
        span.end()
