"""The type of an agent's answers: its schema, and the answers that match it."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from msgspec import Meta
from pydantic import BaseModel, Field

from perdure.errors import WrongArgument
from perdure.tools import output
from perdure.tools.output import Output


@dataclasses.dataclass
class Stay:
    """Nights in a city."""

    city: str
    nights: Annotated[int, Meta(ge=1)]


class Trip(msgspec.Struct):
    stays: list[Stay]
    mood: Literal["good", "bad"] = "good"


class Ticket(TypedDict):
    price: float


class Nested(BaseModel):
    name: str = Field(description="Its name.")


class Plan(BaseModel):
    steps: list[Nested]
    note: str | None = None


def output_of(of: Any) -> Output:
    found = output.output_of(of)
    assert found is not None
    return found


def test_schema_rejects_unknown_keys_and_has_no_references() -> None:
    stay = {
        "type": "object",
        "description": "Nights in a city.",
        "properties": {"city": {"type": "string"}, "nights": {"type": "integer", "minimum": 1}},
        "additionalProperties": False,
        "required": ["city", "nights"],
    }
    assert output_of(Trip).schema == {
        "type": "object",
        "properties": {
            "stays": {"type": "array", "items": stay},
            "mood": {
                "type": "string",
                "enum": ["bad", "good"],
                "description": 'Default: "good".',
            },
        },
        "additionalProperties": False,
        "required": ["stays"],
    }


def test_nested_pydantic_model_can_be_an_output_type() -> None:
    found = output_of(Plan)
    assert found.schema["properties"]["steps"]["items"]["required"] == ["name"]
    assert found.value('{"steps": [{"name": "go"}]}') == Plan(steps=[Nested(name="go")])


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        (Stay, '{"city": "Rome", "nights": 2}', Stay("Rome", 2)),
        (Stay, '```json\n{"city": "Rome", "nights": 2}\n```', Stay("Rome", 2)),
        (Stay, '\n```\n{"city": "Rome",\n "nights": 2}```\n', Stay("Rome", 2)),
        (Ticket, ' {"price": 2.5} ', {"price": 2.5}),
    ],
)
def test_answer_is_converted_to_the_output_type(of: Any, text: str, value: object) -> None:
    found = output_of(of)
    assert found.value(text) == value
    assert found.problem(text) is None


@pytest.mark.parametrize(
    ("of", "text", "reason"),
    [
        (Stay, '{"city": "Rome", "nights": 0}', "nights: expected `int` >= 1"),
        (Stay, '{"city": "Rome"}', "missing required field `nights`"),
        (Stay, "Rome, two nights", "it is not JSON"),
        (Stay, "", "it is not JSON"),
        (Stay, 'Here: {"city": "Rome", "nights": 2}', "it is not JSON"),
        (Plan, '{"steps": [{}]}', "steps.0.name: Field required"),
        (Plan, "nothing", "Invalid JSON"),
    ],
)
def test_error_for_a_mismatching_answer_contains_the_reason(
    of: Any, text: str, reason: str
) -> None:
    problem = output_of(of).problem(text)
    assert problem is not None
    assert reason.lower() in problem.lower()


@pytest.mark.parametrize(
    "of", [list[Stay], str, int, dict[str, int], 7, "Stay", {"type": "object"}, object()]
)
def test_type_without_fields_is_rejected(of: Any) -> None:
    with pytest.raises(WrongArgument, match="output"):
        output_of(of)


def test_pydantic_field_in_a_dataclass_is_rejected() -> None:
    of = dataclasses.make_dataclass("Visit", [("nights", Annotated[int, Field(ge=1)])])
    with pytest.raises(WrongArgument, match=r"output Visit: .*Field of pydantic applies only"):
        output_of(of)


def test_validation_error_of_the_output_type_is_reported() -> None:
    class Even(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("n is odd")

    assert output_of(Even).problem('{"n": 3}') == "n is odd"
