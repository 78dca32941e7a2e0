"""Parts of the OpenAPI document that are not routes: authentication, headers and error answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import (
    Components,
    OpenAPIHeader,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Parameter,
    Reference,
    RequestBody,
    Schema,
    SecurityScheme,
)
from litestar.routes import HTTPRoute

from perdure.apps.server.access.caller import CONDITIONAL, READING
from perdure.apps.server.access.idempotency import LONGEST, keeps_keys

MEDIA_TYPES = "media_types"
"""The option with the media types of a route that answers with files."""

_PROBLEM = "application/problem+json"

_PROBLEM_SCHEMA = Schema(
    type=OpenAPIType.OBJECT,
    description="A refusal (RFC 9457). `code` is stable across releases; `detail` is a sentence.",
    required=["type", "title", "status", "code", "detail"],
    properties={
        "type": Schema(type=OpenAPIType.STRING),
        "title": Schema(type=OpenAPIType.STRING),
        "status": Schema(type=OpenAPIType.INTEGER),
        "code": Schema(type=OpenAPIType.STRING),
        "detail": Schema(type=OpenAPIType.STRING),
    },
)

_REFUSED = OpenAPIResponse(
    description="The request was rejected; `detail` states the reason.",
    headers={
        "Retry-After": OpenAPIHeader(
            schema=Schema(type=OpenAPIType.INTEGER), description="Seconds; with 429 only."
        )
    },
    content={_PROBLEM: OpenAPIMediaType(schema=_PROBLEM_SCHEMA)},
)

_EVENTS = "text/event-stream"
_TEXT = Schema(type=OpenAPIType.STRING)
_NUMBER = Schema(type=OpenAPIType.INTEGER)
_KEY = Schema(type=OpenAPIType.STRING, min_length=1, max_length=LONGEST, pattern="^[ -~]+$")
_ETAG = OpenAPIHeader(schema=_TEXT, description="The head of the session, for `If-Match`.")


def openapi_config() -> OpenAPIConfig:
    """Return the settings of the document."""
    return OpenAPIConfig(
        title="perdure",
        version=metadata.version("perdure"),
        use_handler_docstrings=True,
        path="/v1/openapi",
        render_plugins=[JsonRenderPlugin()],
        security=[{"token": []}],
        components=Components(
            security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}
        ),
    )


@cache
def document_of(app: Litestar) -> dict[str, Any]:
    """Return the OpenAPI document of `app` with headers and errors; the caller must not change it.

    The document is created at the first call of this function.
    """
    for operation, route, handler in _operations(app):
        if "default" not in (operation.responses or {}):
            _describe(operation, route, handler)
            _describe_body(operation, handler)
    return app.openapi_schema.to_schema()


def _describe(operation: Operation, route: HTTPRoute, handler: HTTPRouteHandler) -> None:
    """Add to `operation` the headers of its requests and answers, and its error answers."""
    responses = operation.responses = dict(operation.responses or {})
    responses.pop("400", None)
    sent: list[Parameter | Reference] = []
    answered: dict[str, OpenAPIHeader | Reference] = {}
    is_write = handler.http_methods.isdisjoint(READING)
    if is_write and keeps_keys(handler.opt, route.path_parameters):
        sent.append(
            _header(
                "Idempotency-Key",
                _KEY,
                "A request that is repeated with this key has no further effect.",
            )
        )
        answered["Idempotency-Replayed"] = OpenAPIHeader(
            schema=Schema(type=OpenAPIType.STRING, enum=["true"]),
            description="This is the answer to an earlier request with the same key.",
        )
    if is_write and handler.opt.get(CONDITIONAL):
        sent.append(_header("If-Match", _TEXT, "Entity tags of which the session must have one."))
    for response in responses.values():
        assert isinstance(response, OpenAPIResponse)
        if _EVENTS in (response.content or {}):
            sent.append(_header("Last-Event-ID", _NUMBER, "Replaces `after`."))
        tagged = {"ETag": _ETAG} if _shows_session(response) else {}
        response.headers = {**(response.headers or {}), **answered, **tagged}
    if handler.http_methods == {"GET"} and "ETag" in _headers_of(responses):
        sent.append(
            _header("If-None-Match", _TEXT, "Entity tags; if one matches, the answer is 304.")
        )
        responses["304"] = OpenAPIResponse("The session is unchanged.", headers={"ETag": _ETAG})
    operation.parameters = [*(operation.parameters or ()), *sent] or None
    responses["default"] = _REFUSED
    for media_type in handler.opt.get(MEDIA_TYPES, ()):
        assert isinstance(responses["200"], OpenAPIResponse)
        contents = responses["200"].content = dict(responses["200"].content or {})
        contents.pop(handler.media_type, None)
        contents[media_type] = OpenAPIMediaType(schema=Schema())


def _describe_body(operation: Operation, handler: HTTPRouteHandler) -> None:
    """Mark a request body as optional if all its fields are optional."""
    fields = handler.parsed_data_field
    if fields is not None and isinstance(operation.request_body, RequestBody):
        needed = [each for each in msgspec.structs.fields(fields.annotation) if each.required]
        operation.request_body.required = bool(needed)


def _header(name: str, schema: Schema, description: str) -> Parameter:
    return Parameter(name=name, param_in="header", schema=schema, description=description)


def _headers_of(responses: Mapping[str, OpenAPIResponse | Reference]) -> set[str]:
    return {
        name
        for response in responses.values()
        if isinstance(response, OpenAPIResponse)
        for name in response.headers or {}
    }


def _shows_session(response: OpenAPIResponse) -> bool:
    """Return whether `response` is a session.

    Every route that answers with a session sends its ``ETag``.
    """
    shown = (response.content or {}).get("application/json")
    schema = None if shown is None else shown.schema
    return isinstance(schema, Reference) and schema.ref.endswith("/SessionView")


def _operations(app: Litestar) -> Iterator[tuple[Operation, HTTPRoute, HTTPRouteHandler]]:
    """Yield each operation of the document, with the route and the handler of the operation."""
    routes = {route.path_format: route for route in app.routes if isinstance(route, HTTPRoute)}
    for path, item in (app.openapi_schema.paths or {}).items():
        route = routes[path]
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            operation: Operation | None = getattr(item, method.lower())
            if operation is not None:
                yield operation, route, route.route_handler_map[method][0]
