"""Read files as declared types: every value is checked, every error has its line.

The types are frozen msgspec structs; their annotations define everything a file may contain. The
published JSON Schemas are generated from the same types, so file, schema and program agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from perdure.errors import PerdureError
from perdure.yaml.nodes import YamlNode, YamlReader

T = TypeVar("T")

_KINDS: Mapping[type, tuple[str, ...]] = {
    inspect.StrType: ("str",),
    inspect.IntType: ("int",),
    inspect.FloatType: ("float", "int"),
    inspect.BoolType: ("bool",),
    inspect.NoneType: ("null",),
    inspect.VarTupleType: ("seq",),
    inspect.DictType: ("map",),
    inspect.StructType: ("map",),
}
"""Type -> the YAML kinds it accepts."""

_MOST = 2**63
"""Upper bound of all integers in files."""

_EXPECTED: Mapping[type, str] = {
    inspect.StrType: "text",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.BoolType: "true or false",
    inspect.VarTupleType: "a list",
    inspect.DictType: "a mapping",
    inspect.StructType: "a mapping",
}

_FORMS: Mapping[str, str] = {
    r"\S": "is blank: write a text",
    "^[a-z0-9]+(-[a-z0-9]+)*$": "is not allowed: use lowercase letters, digits and single hyphens",
}
"""Pattern of a text -> what is wrong with one that does not match, and what to write."""


def read_as(nodes: YamlReader, node: YamlNode, wanted: type[T]) -> T | None:
    """Return `node` as a value of the struct `wanted`; None if it has errors (`nodes.faults`)."""
    before = len(nodes.faults)
    value = _Typed(nodes).value(node, inspect.type_info(wanted))
    return None if len(nodes.faults) > before else cast("T", value)


class _Typed:
    def __init__(self, nodes: YamlReader) -> None:
        self._nodes = nodes
        self._key = ""

    def value(self, node: YamlNode, wanted: inspect.Type) -> Any:
        """Return `node` as `wanted`; for an error, report it and return any value."""
        wanted = _bare(wanted)
        if isinstance(wanted, inspect.UnionType):
            return self._one_of(node, wanted.types)
        if isinstance(wanted, inspect.AnyType):
            return self._nodes.data(node)
        if isinstance(wanted, inspect.LiteralType):
            return self._choice(node, wanted)
        if node.kind not in _KINDS[type(wanted)]:
            self._nodes.fault(node, f"expected {_EXPECTED.get(type(wanted), 'nothing')}")
            return None
        if isinstance(wanted, inspect.StructType):
            return self._struct(node, wanted)
        if isinstance(wanted, inspect.VarTupleType):
            return tuple(self.value(item, wanted.item_type) for item in node.items)
        if isinstance(wanted, inspect.DictType):
            return self._mapping(node, wanted)
        return self._scalar(node, wanted)

    def _one_of(self, node: YamlNode, types: tuple[inspect.Type, ...]) -> Any:
        for each in map(_bare, types):
            if isinstance(each, inspect.LiteralType):
                if node.kind == "str":
                    return self.value(node, each)
            elif node.kind in _KINDS[type(each)]:
                return self.value(node, each)
        named = [_expected_text(each) for each in types if not isinstance(each, inspect.NoneType)]
        self._nodes.fault(node, f"expected {' or '.join(named)}")
        return None

    def _choice(self, node: YamlNode, wanted: inspect.LiteralType) -> Any:
        if node.kind == "str" and node.text in wanted.values:
            return node.text
        choices = ", ".join(str(value) for value in wanted.values)
        found = repr(node.text) if node.kind == "str" else "this"
        self._nodes.fault(node, f"{found} is not one of {choices}")
        return None

    def _struct(self, node: YamlNode, wanted: inspect.StructType) -> Any:
        fields = {field.encode_name: field for field in wanted.fields}
        required = [name for name, field in fields.items() if field.required]
        before = len(self._nodes.faults)
        given = self._nodes.mapping(node, tuple(fields), required)
        values = {
            fields[key].name: self._field(key, value, fields[key].type)
            for key, value in given.items()
        }
        if len(self._nodes.faults) > before:
            return None
        try:
            return wanted.cls(**values)
        except (PerdureError, ValueError) as error:
            named, item = getattr(error, "argument", None), getattr(error, "item", None)
            place = given.get(named, node) if named else node
            self._nodes.fault(_item_of(place, item), str(error))
            return None

    def _field(self, key: str, node: YamlNode, wanted: inspect.Type) -> Any:
        outer, self._key = self._key, key
        value = self.value(node, wanted)
        self._key = outer
        return value

    def _mapping(self, node: YamlNode, wanted: inspect.DictType) -> dict[str, Any]:
        keys = tuple(key.text for key, _ in node.pairs)
        given = self._nodes.mapping(node, keys)
        return {key: self.value(value, wanted.value_type) for key, value in given.items()}

    def _scalar(self, node: YamlNode, wanted: inspect.Type) -> Any:
        before = len(self._nodes.faults)
        value: Any = self._nodes.data(node)
        if len(self._nodes.faults) > before:
            return None
        fault = _text_fault(value, wanted) if isinstance(value, str) else _bound(value, wanted)
        if fault is None and isinstance(value, int) and not -_MOST <= value < _MOST:
            fault = "no number of so many digits is kept"
        if fault is not None:
            self._nodes.fault(node, f"{fault} ({self._key})" if self._key else fault)
            return None
        return float(value) if isinstance(wanted, inspect.FloatType) else value


def _item_of(node: YamlNode, item: str | None) -> YamlNode:
    """Return the item of the list `node` with the text `item`, or the value of that key; or it."""
    values = {key.text: value for key, value in node.pairs} | {i.text: i for i in node.items}
    return node if item is None else values.get(item, node)


def _bare(wanted: inspect.Type) -> inspect.Type:
    return wanted.type if isinstance(wanted, inspect.Metadata) else wanted


def _expected_text(wanted: inspect.Type) -> str:
    bare = _bare(wanted)
    if isinstance(bare, inspect.LiteralType):
        return " or ".join(str(value) for value in bare.values)
    return _EXPECTED[type(bare)]


def _text_fault(text: str, wanted: inspect.Type) -> str | None:
    pattern = getattr(wanted, "pattern", None)
    if pattern is not None and re.search(pattern.replace("$", r"\Z"), text) is None:
        form = _FORMS.get(pattern)
        return f"{text!r} does not fit {pattern}" if form is None else f"{text!r} {form}"
    if len(text) < (getattr(wanted, "min_length", None) or 0):
        return "there is no text"
    return None


def _bound(value: Any, wanted: inspect.Type) -> str | None:
    """Return the violated bound, without the value: it may have thousands of digits."""
    least, above = getattr(wanted, "ge", None), getattr(wanted, "gt", None)
    most = getattr(wanted, "le", None)
    if least is not None and value < least:
        return f"{_number_text(value)} is less than {_limit(least)}"
    if above is not None and value <= above:
        return f"{_number_text(value)} is not more than {_limit(above)}"
    if most is not None and value > most:
        return f"{_number_text(value)} is more than {_limit(most)}"
    return None


def _limit(bound: float) -> str:
    return f"{bound:,}".removesuffix(".0")


def _number_text(number: float) -> str:
    return f"{number}" if abs(number) < 10**20 else "this"


def schema_of(wanted: type[msgspec.Struct], title: str, id: str) -> dict[str, object]:
    """Return the JSON Schema of files that `read_as` reads as `wanted`.

    Shape: draft 2020-12; it omits rules that types cannot express (two settings that exclude each
    other).
    """
    schema = msgspec.json.schema(wanted)
    named: dict[str, object] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": id,
        "title": title,
        **schema,
    }
    return cast("dict[str, object]", _closed(named))


def _closed(schema: Any) -> Any:
    """Return `schema` with closed objects and bounded numbers."""
    if isinstance(schema, list):
        return [_closed(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = {key: _closed(value) for key, value in cast("dict[str, Any]", schema).items()}
    if fields.get("type") == "integer":
        fields = {"minimum": -_MOST, "maximum": _MOST - 1, **fields}
    if fields.get("type") == "object" and "properties" in fields:
        fields["additionalProperties"] = False
    return fields
