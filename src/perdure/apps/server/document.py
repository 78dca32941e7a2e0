"""What the OpenAPI document says besides the routes: how callers sign in, and what refusals are."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from litestar import Litestar
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import (
    Components,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    PathItem,
    Schema,
    SecurityScheme,
)

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


def document_of(app: Litestar) -> dict[str, Any]:
    """Return the OpenAPI document of `app`, made at the first call, with what it refuses."""
    _describe_problems(app)
    return app.openapi_schema.to_schema()


def _describe_problems(app: Litestar) -> None:
    """Say of every operation of `app` that it may answer with a problem document."""
    refused = OpenAPIResponse(
        description="Refused; the problem says why.",
        content={_PROBLEM: OpenAPIMediaType(schema=_PROBLEM_SCHEMA)},
    )
    for item in (app.openapi_schema.paths or {}).values():
        for operation in _operations(item):
            responses = operation.responses or {}
            responses.pop("400", None)
            responses["default"] = refused


def _operations(item: PathItem) -> list[Operation]:
    found = (item.get, item.post, item.put, item.patch, item.delete)
    return [operation for operation in found if operation is not None]
