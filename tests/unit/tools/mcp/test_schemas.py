"""Foreign schemas: converted to a portable form or rejected, and used to check arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.bounds.limits import limits
from perdure.tools.mcp.schemas import Schema, UnsupportedSchema, misfit, portable_within

PERSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Args",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "format": "email", "description": "Who."},
        "age": {"type": ["integer", "null"], "minimum": 0},
        "kind": {"enum": ["a", 1, None]},
        "exact": {"const": "yes"},
        "home": {"$ref": "#/$defs/Home"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "free": {"type": "object"},
        "more": {"type": "object", "additionalProperties": {"type": "number"}},
        "one": {"oneOf": [{"type": "string"}, {"type": "boolean"}]},
        "all": {"allOf": [{"$ref": "#/$defs/Home"}], "description": "Where."},
    },
    "required": ["name", "ghost"],
    "$defs": {"Home": {"properties": {"city": {"type": "string", "pattern": "(a+)+$"}}}},
}


def portable(schema: Mapping[str, Any]) -> Schema:
    return portable_within(schema, [limits().mcp_schema_parts])


def obj(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = obj(x=schema)
    return schema


def test_unsupported_keywords_are_dropped() -> None:
    found = portable(PERSON)
    members = found["properties"]
    assert found["required"] == ["name"]
    assert found["additionalProperties"] is False
    assert members["name"] == {"type": "string", "minLength": 1, "description": "Who."}
    assert members["age"]["anyOf"][1]["type"] == "null"
    assert len(members["kind"]["anyOf"]) == 3
    assert members["exact"] == {"type": "string", "enum": ["yes"]}
    assert members["home"]["properties"]["city"] == {"type": "string"}
    assert members["free"]["additionalProperties"] is True
    assert members["more"]["additionalProperties"] == {"type": "number"}
    assert len(members["one"]["anyOf"]) == 2
    assert members["all"]["description"] == "Where."


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "array", "items": {"type": "string"}}, "no object"),
        (obj(x={}), "what type"),
        (obj(x=True), "what type"),
        (obj(x="string"), "no schema"),
        (obj(x={"$ref": "https://a.example/schema"}), "outside itself"),
        (obj(x={"$ref": "#/$defs/none"}), "not there"),
        ({**obj(x={"$ref": "#/properties/x"})}, "contains itself"),
        (obj(x={"type": "string", "not": {"enum": ["a"]}}), "it uses not"),
        (obj(x={"allOf": [{"type": "string"}, {"minLength": 1}]}), "allOf"),
        (obj(x={"type": "object", "patternProperties": {"a": {}}}), "patternProperties"),
        (obj(x={"enum": []}), "choice of nothing"),
        (obj(x={"enum": [{"a": 1}]}), "choice of objects"),
        (obj(**{"a b": {"type": "string"}}), "a name"),
        (nested(40), "levels deep"),
        (obj(**{f"p{n}": {"type": "string"} for n in range(2100)}), "parts"),
        ({"type": "object", "properties": []}, "no object"),
    ],
)
def test_tool_schema_that_cannot_be_expressed_is_rejected(
    schema: dict[str, Any], told: str
) -> None:
    with pytest.raises(UnsupportedSchema, match=told):
        portable(schema)


def test_schema_that_grows_through_references_is_rejected() -> None:
    bombs = {f"d{n}": obj(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"})
             for n in range(14)}  # fmt: skip
    bombs["d14"] = {"type": "string"}
    with pytest.raises(UnsupportedSchema, match="parts"):
        portable({**obj(x={"$ref": "#/$defs/d0"}), "$defs": bombs})


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"name": "a", "age": None, "tags": ["x"], "one": True, "more": {"x": 1.5}}, None),
        ({"name": "a", "kind": 1, "free": {"any": [1, {"deep": None}]}, "age": 3.0}, None),
        ({}, "name is missing"),
        ({"name": ""}, "characters"),
        ({"name": 3}, "name: expected string, got integer"),
        ({"name": "a", "age": -1}, "fits none"),
        ({"name": "a", "age": True}, "fits none"),
        ({"name": "a", "kind": 1.5}, "fits none"),
        ({"name": "a", "exact": "no"}, "expected one of 'yes'"),
        ({"name": "a", "tags": ["x", "y", "z"]}, "items"),
        ({"name": "a", "tags": ["x", 1]}, r"tags\[1\]: expected string"),
        ({"name": "a", "home": {"city": 1}}, "home.city"),
        ({"name": "a", "more": {"x": "y"}}, "more.x: expected number"),
        ({"name": "a", "nmae": "b"}, "nmae: there is no such parameter"),
    ],
)
def test_argument_errors_describe_to_the_model_what_to_correct(
    args: dict[str, Any], told: str | None
) -> None:
    reason = misfit(portable(PERSON), args)
    if told is None:
        assert reason is None
    else:
        with pytest.raises(AssertionError, match=told):
            raise AssertionError(reason)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "enum", "anyOf", "$ref", "required", "a"]
            ),
            below,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "anyOf", "$defs"]), JSON), JSON)
def test_hostile_tool_schema_raises_no_unexpected_error(schema: dict[str, Any], value: Any) -> None:
    try:
        found = portable({"type": "object", **schema})
    except UnsupportedSchema:
        return
    assert misfit(found, value) is None or isinstance(misfit(found, value), str)
