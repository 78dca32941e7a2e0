"""Read files as declared types: check every value, and report every error with its line.

The types are frozen msgspec structs. The annotations of the fields define everything that a file
can contain. The published JSON Schemas are generated from the same types, so files, schemas and
program always agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
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
"""Maps each type to the YAML types that it accepts."""

INTEGER_BOUND = 2**63
"""Integers in files must be less than this bound."""

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
"""Maps patterns to the error message for a text that does not match the pattern."""


_MOST_FAULTS = 20
"""Maximum number of errors that `make_checked` reports for one mapping."""

Report = Callable[[Exception, str | None, str | None], None]
"""A callback that gets an error, and the argument and the item that the error names."""


def read_as(nodes: YamlReader, node: YamlNode, wanted: type[T]) -> T | None:
    """Convert `node` to the struct `wanted`; return None if it has errors (see `nodes.faults`)."""
    before = nodes.fault_count
    value = _Typed(nodes).value(node, inspect.type_info(wanted))
    return None if nodes.fault_count > before else cast("T", value)


def read_fields(nodes: YamlReader, node: YamlNode, wanted: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the valid fields of the mapping `node`, each read as a field of the struct `wanted`.

    The errors of the invalid fields are in `nodes.faults`. In a list, each invalid item is None.
    """
    fields = cast("inspect.StructType", inspect.type_info(wanted))
    return _Typed(nodes).fields(node, fields)[0]


def make_checked(
    make: Callable[..., T],
    values: Mapping[str, Any],
    report: Report,
    required: Collection[str],
    *,
    is_partial: bool = False,
) -> T | None:
    """Return ``make(**values)``. If ``make`` raises, pass its errors to `report` and return None.

    To find further errors, `make` is called again without the value that the last error names,
    unless this value is `required`. A further error can be the consequence of a value that was left
    out, so, after the first error, only errors that name an argument are reported. If `is_partial`
    is True, the caller has already removed some invalid values, and only errors that name an item
    are reported.
    """
    left = dict(values)
    for number in range(_MOST_FAULTS):
        try:
            made = make(**left)
        except (PerdureError, ValueError) as error:
            argument, item = getattr(error, "argument", None), getattr(error, "item", None)
            is_certain = number == 0 or argument is not None
            if item is not None or (is_certain and not is_partial):
                report(error, argument, item)
            if argument not in left or not _leave_out(left, argument, item, required):
                return None
        else:
            return None if is_partial or number else made
    return None


def _leave_out(
    values: dict[str, Any], name: str, item: str | None, required: Collection[str]
) -> bool:
    """Remove the invalid `item` from the value `name`, or remove the value.

    If the value must be removed but is in `required`, remove nothing and return False.
    """
    value = values[name]
    if isinstance(value, tuple) and item in value:
        values[name] = tuple(each for each in cast("tuple[object, ...]", value) if each != item)
    elif isinstance(value, dict) and item in value:
        pairs = cast("dict[object, object]", value).items()
        values[name] = {key: each for key, each in pairs if key != item}
    elif name in required:
        return False
    else:
        del values[name]
    return True


class _Typed:
    def __init__(self, nodes: YamlReader) -> None:
        self._nodes = nodes
        self._key = ""

    def value(self, node: YamlNode, wanted: inspect.Type) -> Any:
        """Convert `node` to the type `wanted`.

        If `node` is invalid, report an error; the result is then arbitrary.
        """
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

    def fields(
        self, node: YamlNode, wanted: inspect.StructType
    ) -> tuple[dict[str, Any], Mapping[str, YamlNode]]:
        """Return the valid fields of `node` (see `read_fields`), and the node of each key in it."""
        fields = {field.encode_name: field for field in wanted.fields}
        required = [name for name, field in fields.items() if field.required]
        given = self._nodes.mapping(node, tuple(fields), required)
        values: dict[str, Any] = {}
        for key, below in given.items():
            before = self._nodes.fault_count
            value = self._field(key, below, fields[key].type)
            if self._nodes.fault_count == before or isinstance(value, tuple):
                values[fields[key].name] = value
        return values, given

    def _struct(self, node: YamlNode, wanted: inspect.StructType) -> Any:
        before = self._nodes.fault_count
        values, given = self.fields(node, wanted)
        is_partial = self._nodes.fault_count > before
        required = {field.name for field in wanted.fields if field.required}
        if not required <= values.keys():
            return None
        if is_partial:
            values = {name: valid_items(value) for name, value in values.items()}

        def report(error: Exception, argument: str | None, item: str | None) -> None:
            place = given.get(argument, node) if argument else node
            self._nodes.fault(item_of(place, item), str(error))

        return make_checked(wanted.cls, values, report, required, is_partial=is_partial)

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
        before = self._nodes.fault_count
        value: Any = self._nodes.data(node)
        if self._nodes.fault_count > before:
            return None
        fault = _text_fault(value, wanted) if isinstance(value, str) else _bound(value, wanted)
        if fault is None and isinstance(value, int) and not -INTEGER_BOUND <= value < INTEGER_BOUND:
            fault = "no number of so many digits is kept"
        if fault is not None:
            self._nodes.fault(node, f"{fault} ({self._key})" if self._key else fault)
            return None
        return float(value) if isinstance(wanted, inspect.FloatType) else value


def valid_items(value: Any) -> Any:
    """Return the list `value` without its invalid (None) items; return other values unchanged."""
    if not isinstance(value, tuple):
        return value
    return tuple(each for each in cast("tuple[object, ...]", value) if each is not None)


def item_of(node: YamlNode, item: str | None) -> YamlNode:
    """Return the item with the text `item` of a list, or the value of the key `item` of a mapping.

    Return `node` itself if it has neither an item nor a key `item`.
    """
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
    """Return an error message if `value` violates a bound; otherwise None.

    The error message does not contain a very long value.
    """
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
