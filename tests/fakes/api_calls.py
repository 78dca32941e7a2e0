"""Calls of every route, generated from the OpenAPI document, so new routes are included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from tests.fakes.direct import DirectClient

Document = dict[str, Any]

_WHEN = "2026-01-01T00:00:00Z"
_CURSOR = "after"
_CAUGHT_UP = "event: caught-up\n"
_CHANGING = frozenset(("x-request-id",))
"""Headers that differ between two answers to the same request."""


class Operation(msgspec.Struct, frozen=True):
    """One operation of the API: a method of a path in the OpenAPI document."""

    method: str
    path: str
    parameters: list[Document]
    body: Document

    @property
    def name(self) -> str:
        """The method and the path of the operation."""
        return f"{self.method} {self.path}"

    @property
    def is_change(self) -> bool:
        """Return whether the call can change data."""
        return self.method != "GET"


class Call(msgspec.Struct, frozen=True):
    """One request for an operation."""

    operation: Operation
    path: str
    query: dict[str, Any]
    body: dict[str, Any] | None

    async def answer(self, client: DirectClient) -> tuple[int, str]:
        """Return the status, and the headers and body as text.

        If the answer is a stream, only the stored events are read.
        """
        answer = await client.answer(
            self.operation.method, self.path, self.query, self.body, until=_CAUGHT_UP
        )
        headers = [
            f"{name}: {value}" for name, value in answer.headers.items() if name not in _CHANGING
        ]
        return answer.status, "\n".join([*headers, answer.text])


def operations(document: Document) -> list[Operation]:
    """Return all operations of `document`."""
    schemas = document["components"]["schemas"]
    return [
        Operation(method.upper(), path, each.get("parameters", []), _body(each, schemas))
        for path, methods in document["paths"].items()
        for method, each in methods.items()
    ]


def _body(operation: Document, schemas: Document) -> Document:
    schema = (
        operation.get("requestBody", {})
        .get("content", {})
        .get("application/json", {})
        .get("schema", {})
    )
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def calls(operation: Operation, values: Mapping[str, Any], *, is_whole: bool) -> Iterator[Call]:
    """Yield calls of `operation` with arguments from `values`, matched by name.

    The first call has all parameters, except a cursor without a valid value in `values`. The second
    call has the cursor in addition. The third call has only the required parameters. If `is_whole`,
    further calls each add one form of one optional parameter to the required ones.
    """
    query = {each["name"]: each for each in operation.parameters if each["in"] == "query"}
    needed = {name for name, each in query.items() if each.get("required")}
    fields: Document = operation.body.get("properties", {})
    asked = set(operation.body.get("required", []))
    cursors = ({*query} & {_CURSOR}) - {*values}
    yield _call(operation, values, {*query} - cursors, {*fields})
    if cursors:
        yield _call(operation, values, {*query}, {*fields})
    if needed != {*query} or asked != {*fields}:
        yield _call(operation, values, needed, asked)
    if not is_whole:
        return
    for name in sorted({*query} - needed):
        for value in _forms(name, query[name]["schema"], values):
            yield _call(operation, {**values, name: value}, needed | {name}, asked)
    for name in sorted({*fields} - asked):
        yield _call(operation, values, needed, asked | {name})


def _call(
    operation: Operation, values: Mapping[str, Any], names: set[str], fields: set[str]
) -> Call:
    path, query = operation.path, dict[str, Any]()
    for each in operation.parameters:
        is_path = each["in"] == "path"
        known = values if each["name"] in values or not is_path else _ids(each["name"], values)
        value = _value(each["name"], each["schema"], known)
        if is_path:
            path = path.replace(f"{{{each['name']}}}", str(value))
        elif each["name"] in names:
            query[each["name"]] = _text(value)
    properties: Document = operation.body.get("properties", {})
    body = {name: _value(name, properties[name], values) for name in sorted(fields)}
    return Call(operation, path, query, body if operation.body else None)


def _ids(name: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `values` with the session id for a path parameter that has no value."""
    return {**values, name: values["session_id"]}


def _forms(name: str, schema: Document, values: Mapping[str, Any]) -> list[Any]:
    return [each for each in schema.get("enum", []) if each is not None] or [
        _value(name, schema, values)
    ]


def _value(name: str, schema: Document, values: Mapping[str, Any]) -> Any:
    """Return the value of `name` in `values` if its type is valid, otherwise another value."""
    kinds = [each for each in schema.get("oneOf", [schema]) if each.get("type") != "null"]
    kind = cast("Document", kinds[0]) if kinds else {}
    if name in values and (kind.get("type") == "integer") == isinstance(values[name], int):
        given = values[name]
        if kind.get("type") != "array" or isinstance(given, list):
            return cast("Any", given)
        return [given]
    if kind.get("enum"):
        return next(each for each in kind["enum"] if each is not None)
    match kind.get("type"):
        case "array":
            items = kind.get("items", {})
            return [] if "$ref" in items else [_value(name, items, {})]  # no value of a class
        case "integer" | "number":
            return int(kind.get("default", kind.get("minimum", schema.get("minimum", 1))))
        case "boolean":
            return True
        case "object":
            return {}
        case _:
            return _WHEN if kind.get("format") == "date-time" else "x"


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
