"""Convert a server's schema to one that all providers accept, and check arguments with the result.

The functions of this module are pure. Servers are not trusted, so this module loads no external
references, evaluates no patterns, and limits depth and width. Constraints beyond the shape of
values (formats, patterns, multiples) are dropped; the server checks such constraints itself.
Unsupported constructs are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from perdure.bounds.limits import limits

MAX_DESCRIPTION = 2000
_CHARACTERS_OF_A_PART = 200
"""Number of characters of a description that count as one part of the schema."""

_STEPS = 16
"""Maximum number of names in the path of a reference within a schema."""

Schema = dict[str, Any]

_LEFT_OUT = frozenset(
    (
        # metadata, or text for people
        *("$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "default"),
        *("examples", "example", "deprecated", "readOnly", "writeOnly", "nullable"),
        # constraints on values: checked by the server
        *("format", "pattern", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"),
        *("uniqueItems", "minProperties", "maxProperties", "contentMediaType"),
        *("contentEncoding", "contentSchema"),
    )
)
_KEPT_NUMBERS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_SHAPES = frozenset(
    (
        *("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "description"),
        *("properties", "required", "additionalProperties", "items", "prefixItems"),
        *_KEPT_NUMBERS,
    )
)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
    "array": (list, tuple),
    "object": (dict,),
}
_property = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class UnsupportedSchema(ValueError):
    """The schema cannot be used for a model; the message contains the reason."""


def portable_within(schema: Mapping[str, Any], left: list[int]) -> Schema:
    """Convert the `schema` of a tool's arguments to JSON Schema that all providers accept.

    `left` is a list with one number, the number of parts that are still allowed. The call subtracts
    the number of parts of `schema` from the number in `left`.
    Raises: UnsupportedSchema if the schema cannot be converted, or has more parts than allowed.
    """
    reader = _Reader(schema, left[0])
    try:
        found = reader.read(schema, 0, ())
    finally:
        left[0] -= reader.parts
    if found.get("type") != "object":
        raise UnsupportedSchema("its arguments are no object")
    return found


class _Reader:
    """Converts one schema and counts its parts; `most` is the maximum number of parts."""

    def __init__(self, root: Mapping[str, Any], most: int) -> None:
        self._root = root
        self._most = most
        self._limits = limits()
        self.parts = 0

    def read(self, given: object, depth: int, inside: tuple[str, ...]) -> Schema:
        self._count(depth)
        if given is True or given == {}:
            raise UnsupportedSchema("it does not say what type of value it takes")
        if not isinstance(given, Mapping):
            raise UnsupportedSchema("a part of it is no schema")
        node = _merged(dict(cast("Mapping[str, Any]", given)))
        if "$ref" in node:
            name = str(node.pop("$ref"))
            if name in inside:
                raise UnsupportedSchema("a part of it contains itself")
            if len(inside) >= 2 * self._limits.mcp_schema_depth:
                raise UnsupportedSchema(
                    "its references lead on and on (the limit is twice limits.mcp_schema_depth = "
                    f"{self._limits.mcp_schema_depth})"
                )
            return self.read({**self._resolve_reference(name), **node}, depth, (*inside, name))
        unknown = {k for k in node if k not in _SHAPES and k not in _LEFT_OUT and k[:2] != "x-"}
        if unknown:
            raise UnsupportedSchema(f"it uses {', '.join(sorted(unknown)[:5])}")
        result = self._shape(node, depth, inside)
        description = node.get("description")
        if isinstance(description, str) and description:
            result["description"] = description[:MAX_DESCRIPTION]
            self._take(len(result["description"]) // _CHARACTERS_OF_A_PART)
        return result

    def _count(self, depth: int) -> None:
        self._take(1)
        if depth > self._limits.mcp_schema_depth:
            most = self._limits.mcp_schema_depth
            raise UnsupportedSchema(f"it is more than limits.mcp_schema_depth = {most} levels deep")

    def _take(self, parts: int) -> None:
        # A rejected schema uses no more of the total than the largest accepted one.
        self.parts = min(self.parts + parts, self._limits.mcp_schema_parts + 1)
        if self.parts > self._limits.mcp_schema_parts:
            raise UnsupportedSchema(
                f"it has more than limits.mcp_schema_parts = {self._limits.mcp_schema_parts} parts"
            )
        if self.parts > self._most:
            raise UnsupportedSchema(
                "the schemas of its server have more than limits.mcp_server_parts = "
                f"{self._limits.mcp_server_parts} parts"
            )

    def _resolve_reference(self, reference: str) -> Mapping[str, Any]:
        if not reference.startswith("#/"):
            raise UnsupportedSchema("it refers to something outside itself")
        found: Any = self._root
        for step in reference[2:].split("/", _STEPS)[:_STEPS]:
            key = step.replace("~1", "/").replace("~0", "~")
            below = cast("Schema", found) if isinstance(found, dict) else {}
            found = below.get(key)
        if not isinstance(found, Mapping):
            raise UnsupportedSchema("it refers to a part that is not there")
        return cast("Mapping[str, Any]", found)

    def _shape(self, node: Schema, depth: int, inside: tuple[str, ...]) -> Schema:
        choices = node.get("anyOf", node.get("oneOf"))
        if choices is not None:
            return self._any_of(choices, depth, inside)
        if "const" in node:
            return _enum([node["const"]])
        if "enum" in node:
            values: Any = node["enum"]
            self._take(len(cast("list[Any]", values)) if isinstance(values, list) else 0)
            return _enum(cast("object", values))
        kind = node.get("type")
        if isinstance(kind, list):
            return self._any_of(
                [{**node, "type": one} for one in cast("list[Any]", kind)], depth, inside
            )
        if kind is None:
            kind = "object" if "properties" in node else "array" if "items" in node else None
        if not isinstance(kind, str) or kind not in _TYPES:
            raise UnsupportedSchema("it does not say what type of value it takes")
        return self._typed(kind, node, depth, inside)

    def _any_of(self, choices: object, depth: int, inside: tuple[str, ...]) -> Schema:
        if not isinstance(choices, list) or not choices:
            raise UnsupportedSchema("it offers a choice of nothing")
        read = [self.read(choice, depth + 1, inside) for choice in cast("list[Any]", choices)]
        return dict(read[0]) if len(read) == 1 else {"anyOf": read}

    def _typed(self, kind: str, node: Schema, depth: int, inside: tuple[str, ...]) -> Schema:
        result: Schema = {"type": kind}
        for name in _KEPT_NUMBERS:
            limit = node.get(name)
            if isinstance(limit, int | float) and not isinstance(limit, bool):
                result[name] = limit
        if kind == "array":
            result["items"] = self._items(node, depth, inside)
        if kind == "object":
            result.update(self._members(node, depth, inside))
        return result

    def _items(self, node: Schema, depth: int, inside: tuple[str, ...]) -> Schema:
        places = node.get("prefixItems", node.get("items"))
        if isinstance(places, list):
            return self._any_of(cast("list[Any]", places), depth, inside)
        return self.read(places if places is not None else True, depth + 1, inside)

    def _members(self, node: Schema, depth: int, inside: tuple[str, ...]) -> Schema:
        given = node.get("properties", {})
        if not isinstance(given, Mapping):
            raise UnsupportedSchema("its properties are no object")
        members = cast("Mapping[str, Any]", given)
        for name in members:
            if not _property.fullmatch(name):
                raise UnsupportedSchema("a parameter has a name that not every provider accepts")
        read = {name: self.read(below, depth + 1, inside) for name, below in members.items()}
        required = [n for n in _texts(node.get("required")) if n in read]
        others = node.get("additionalProperties", "properties" not in node)
        if isinstance(others, Mapping):
            others = self.read(cast("Mapping[str, Any]", others), depth + 1, inside)
        shape: Schema = {"properties": read, "additionalProperties": others}
        return {**shape, "required": required} if required else shape


def _texts(value: object) -> Iterable[str]:
    if not isinstance(value, list):
        return ()
    return [each for each in cast("list[object]", value) if isinstance(each, str)]


def _merged(node: Schema) -> Schema:
    """Return `node` merged with the only schema in its ``allOf``; several are not supported."""
    parts = node.pop("allOf", None)
    if parts is None:
        return node
    if not isinstance(parts, list) or len(cast("list[Any]", parts)) != 1:
        raise UnsupportedSchema("it uses allOf")
    (part,) = cast("list[Any]", parts)
    return {**cast("Schema", part), **node} if isinstance(part, Mapping) else node


def _enum(values: object) -> Schema:
    if not isinstance(values, list) or not values:
        raise UnsupportedSchema("it offers a choice of nothing")
    by_type: dict[str, list[object]] = {}
    for value in cast("list[object]", values):
        kind = _type_of(value)
        if kind in ("array", "object"):
            raise UnsupportedSchema("it offers a choice of objects")
        by_type.setdefault(kind, []).append(value)
    choices = [{"type": kind, "enum": found} for kind, found in by_type.items()]
    return dict(choices[0]) if len(choices) == 1 else {"anyOf": choices}


def _type_of(value: object) -> str:
    return next(name for name, types in _TYPES.items() if _is_type(value, name, types))


def _is_type(value: object, name: str, types: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, types)


# ---------------------------------------------------------------- arguments


def misfit(schema: Mapping[str, Any], value: object, place: str = "") -> str | None:
    """Return the reason why `value` does not match the portable `schema`, as a text for the model.

    Shape: the result is None if `value` matches.
    """
    choices = schema.get("anyOf")
    if choices is not None:
        return _no_choice(choices, value, place)
    kind = str(schema["type"])
    if not _is_type(value, kind, _TYPES[kind]):
        return f"{place or 'the arguments'}: expected {kind}, got {_type_of(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place}: expected one of {', '.join(map(repr, schema['enum'][:20]))}"
    if kind == "object":
        return _members_misfit(schema, cast("Mapping[str, object]", value), place)
    if kind == "array":
        return _items_misfit(schema, cast("Sequence[object]", value), place)
    return _limits_misfit(schema, value, place)


def _no_choice(choices: Sequence[Mapping[str, Any]], value: object, place: str) -> str | None:
    reasons = [misfit(choice, value, place) for choice in choices]
    if any(reason is None for reason in reasons):
        return None
    return f"{place}: fits none of its {len(choices)} forms; the first: {reasons[0]}"


def _members_misfit(
    schema: Mapping[str, Any], value: Mapping[str, object], place: str
) -> str | None:
    members, others = schema["properties"], schema["additionalProperties"]
    joint = f"{place}." if place else ""
    known = ", ".join(members) or "none"
    for name in schema.get("required", ()):
        if name not in value:
            return f"{joint}{name} is missing (parameters: {known})"
    for name, below in value.items():
        part = members.get(name, others)
        if part is False:
            return f"{joint}{name}: there is no such parameter (parameters: {known})"
        reason = None if part is True else misfit(part, below, joint + name)
        if reason is not None:
            return reason
    return None


def _items_misfit(schema: Mapping[str, Any], value: Sequence[object], place: str) -> str | None:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return f"{place}: has {len(value)} items, which is too few or too many"
    reasons = (misfit(schema["items"], each, f"{place}[{n}]") for n, each in enumerate(value))
    return next((reason for reason in reasons if reason is not None), None)


def _limits_misfit(schema: Mapping[str, Any], value: object, place: str) -> str | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        length = len(value)
        if not schema.get("minLength", 0) <= length <= schema.get("maxLength", length):
            return f"{place}: has {length} characters, which is too few or too many"
        return None
    number = cast("float", value)
    if not schema.get("minimum", number) <= number <= schema.get("maximum", number):
        return f"{place}: {number} is too small or too large"
    return None
