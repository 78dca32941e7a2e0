from __future__ import annotations

import dataclasses
import datetime
import enum
import pathlib
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict, cast

import msgspec
import pytest

from perdure.errors import InvalidArguments
from perdure.tools.schema import arguments_of, parameters_of
from perdure.tools.spec import ToolCall


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    """A place."""

    x: int
    y: int = 0


class Note(TypedDict, total=False):
    text: Annotated[str, msgspec.Meta(description="What it says")]


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: float


class Endless(msgspec.Struct):
    inner: list[Endless]


def property_of(function: Callable[..., object]) -> Any:
    properties = parameters_of(function).schema["properties"]
    (schema,) = cast("dict[str, Any]", properties).values()
    return schema


def closed(properties: dict[str, object], *required: str) -> dict[str, object]:
    schema: dict[str, object] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return {**schema, "required": list(required)} if required else schema


def test_parameter_without_a_default_is_required_in_the_schema() -> None:
    def f(path: str, limit: int = 3) -> None: ...

    assert parameters_of(f).schema == closed(
        {"path": {"type": "string"}, "limit": {"type": "integer", "description": "Default: 3."}},
        "path",
    )


def test_function_without_parameters_accepts_empty_object() -> None:
    def f() -> None: ...

    assert parameters_of(f).schema == closed({})


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[True], {"type": "boolean", "enum": [True]}),
        (
            Literal["a", 1],
            {"anyOf": [{"type": "integer", "enum": [1]}, {"type": "string", "enum": ["a"]}]},
        ),
        (Colour, {"type": "string", "enum": ["blue", "red"]}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (set[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, int],
            {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "integer"}},
        ),
        (
            tuple[int, str],
            {
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            },
        ),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (dict[str, Any], {"type": "object"}),
        (
            Point,
            {
                **closed(
                    {
                        "x": {"type": "integer"},
                        "y": {"type": "integer", "description": "Default: 0."},
                    },
                    "x",
                ),
                "description": "A place.",
            },
        ),
        (Note, closed({"text": {"type": "string", "description": "What it says"}})),
        (
            Circle | Square,
            {
                "anyOf": [
                    closed(
                        {
                            "type": {"type": "string", "enum": ["circle"]},
                            "radius": {"type": "number"},
                        },
                        "type",
                        "radius",
                    ),
                    closed(
                        {
                            "type": {"type": "string", "enum": ["square"]},
                            "side": {"type": "number"},
                        },
                        "type",
                        "side",
                    ),
                ]
            },
        ),
        (Annotated[int, msgspec.Meta(ge=1, title="n")], {"type": "integer", "minimum": 1}),
    ],
)
def test_annotation_gives_the_expected_schema(annotation: Any, schema: object) -> None:
    def f(value: object) -> None: ...

    f.__annotations__["value"] = annotation
    assert property_of(f) == schema


@pytest.mark.parametrize(
    "annotation",
    [
        Any,
        object,
        list,
        list[Any],
        Any | None,
        complex,
        pathlib.Path,
        datetime.date,
        bytes,
        Endless,
        Callable[[], None],
        list[str] | set[str],
        Annotated[int, msgspec.Meta(gt=1)],
        "Missing",
        "pathlib.Missing",
        "1 +",
        ToolCall,
    ],
)
def test_error_for_an_unsupported_annotation_mentions_the_parameter(annotation: Any) -> None:
    def send(path: str, value: object) -> None: ...

    send.__annotations__["value"] = annotation
    with pytest.raises(TypeError, match=r"send\(\) cannot be a tool: parameter 'value': "):
        parameters_of(send)


def test_parameters_that_a_model_cannot_pass_by_name_are_rejected() -> None:
    def positional(value: str, /) -> None: ...
    def many(*value: str) -> None: ...
    def any_name(**value: str) -> None: ...
    def bare(value: str) -> None: ...

    del bare.__annotations__["value"]
    for function in (positional, many, any_name, bare):
        with pytest.raises(TypeError, match="parameter 'value'"):
            parameters_of(function)


def test_description_in_an_annotation_is_preferred_to_the_docstring() -> None:
    def f(a: Annotated[str, "First."], b: str, c: Annotated[int, "Third."] = 1) -> None:
        """Do it.

        Args:
            a: Not this.
            b: Second.
        """

    properties = parameters_of(f).schema["properties"]
    assert properties == {
        "a": {"type": "string", "description": "First."},
        "b": {"type": "string", "description": "Second."},
        "c": {"type": "integer", "description": "Third. Default: 1."},
    }


def test_default_that_is_not_json_is_omitted() -> None:
    def f(value: str = "") -> None: ...

    f.__defaults__ = (object(),)
    assert property_of(f) == {"type": "string"}


def test_tool_call_parameter_is_not_in_the_schema() -> None:
    def f(path: str, *, call: ToolCall) -> None: ...

    parameters = parameters_of(f)
    assert parameters.takes_call
    assert parameters.schema == closed({"path": {"type": "string"}}, "path")


def test_text_parameter_named_call_is_in_the_schema() -> None:
    def f(call: str) -> None: ...

    parameters = parameters_of(f)
    assert not parameters.takes_call
    assert property_of(f) == {"type": "string"}


def test_arguments_are_converted_to_the_annotated_types() -> None:
    def f(colour: Colour, at: Point, seen: set[int], rest: dict[int, str], n: int = 9) -> None: ...

    given = {"colour": "red", "at": {"x": 1}, "seen": [1, 1], "rest": {"3": "c"}}
    assert arguments_of("f", parameters_of(f), given) == {
        "colour": Colour.RED,
        "at": Point(1, 0),
        "seen": {1},
        "rest": {3: "c"},
    }


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"path": 1}, "path: expected `str`, got `int`"),
        ({}, "missing required field `path`"),
        ({"path": "x", "paht": "y"}, "contains unknown field `paht`"),
        ({"path": "x", "points": [{"x": "1"}]}, r"points\[0\].x: expected `int`, got `str`"),
        ({"path": "x", "limit": True}, "limit: expected `int`, got `bool`"),
        ({"path": "x", "limit": 1.5}, "limit: expected `int`, got `float`"),
    ],
)
def test_wrong_arguments_are_explained_to_the_model(args: dict[str, object], words: str) -> None:
    def f(path: str, limit: int = 1, points: list[Point] | None = None) -> None: ...

    with pytest.raises(InvalidArguments, match=words) as caught:
        arguments_of("f", parameters_of(f), args)
    assert "its parameters: path, limit, points" in caught.value.reason
    assert (caught.value.code, caught.value.tool) == ("invalid_arguments", "f")


def test_all_wrong_arguments_of_a_call_are_listed() -> None:
    def f(path: str, limit: int = 1, points: list[Point] | None = None) -> None: ...

    args = {"limit": "x", "points": [{"x": "1"}], "paht": "y"}
    with pytest.raises(InvalidArguments) as caught:
        arguments_of("f", parameters_of(f), args)
    assert caught.value.reason == (
        "missing required field `path`; limit: expected `int`, got `str`; "
        "points[0].x: expected `int`, got `str`; contains unknown field `paht` "
        "(its parameters: path, limit, points)"
    )


def test_error_for_many_wrong_arguments_is_bounded() -> None:
    def f(path: str) -> None: ...

    with pytest.raises(InvalidArguments, match="; and 93 more ") as caught:
        arguments_of("f", parameters_of(f), {f"{n}{'x' * 5000}": n for n in range(100)})
    assert len(caught.value.reason) < 8200


def test_schema_of_a_function_is_the_same_every_time() -> None:
    def f(a: Point, b: Circle | Square, c: Note, d: tuple[int, str] = (1, "x")) -> None: ...

    first, second = (msgspec.json.encode(parameters_of(f).schema) for _ in range(2))
    assert first == second


def test_error_for_a_long_wrong_argument_shows_no_part_of_a_secret() -> None:
    def paint(colour: Literal["red"]) -> None:
        """Paint."""

    text = "no " * 320 + "sk-ant-api03-" + "Ab1" * 30
    with pytest.raises(InvalidArguments, match="no no") as caught:
        arguments_of("paint", parameters_of(paint), {"colour": text})
    assert "sk-ant" not in str(caught.value)
