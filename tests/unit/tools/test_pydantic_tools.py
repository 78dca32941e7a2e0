"""Tools whose arguments and results are models of pydantic, dataclasses and other types."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

import pydantic
import pytest

import perdure
from perdure.errors import InvalidArguments
from perdure.testing import ScriptedModel
from perdure.tools.decorator import tool
from perdure.tools.schema import arguments_of, json_of, parameters_of


class Guest(pydantic.BaseModel):
    """A guest."""

    name: str
    age: int = pydantic.Field(gt=0, description="In years")


class Booking(pydantic.BaseModel):
    """A booking."""

    arrives: datetime
    guests: list[Guest]
    host: Guest | None = None


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Room:
    number: int
    name: str = "none"


class Place(TypedDict):
    city: str


def book(booking: Booking, others: list[Guest], host: Guest | None = None) -> Booking:
    """Book a room.

    Args:
        booking: What to book.
    """
    assert host is None
    assert len(others) == 1
    return booking


def other_types(room: Room, place: Place, level: Level, at: datetime) -> Room:
    """Take other types."""
    assert place == {"city": "Ulm"}
    assert (level, at) == (Level.HIGH, datetime(2026, 1, 2, tzinfo=UTC))
    return Room(room.number + 1)


GUEST = {"name": "Ann", "age": 30}
BOOKING = {"arrives": "2026-01-02T00:00:00Z", "guests": [GUEST]}


def called(function: Any, args: Mapping[str, object]) -> str:
    """The JSON of what `function` returns for the arguments of a model."""
    given = arguments_of("book", parameters_of(function), args)
    return json_of(function(**given)).decode()


def test_schema_of_pydantic_model_has_no_references() -> None:
    schema: Any = parameters_of(book).schema
    assert schema["required"] == ["booking", "others"]
    booking = schema["properties"]["booking"]
    assert booking["description"] == "What to book."
    guest = booking["properties"]["guests"]["items"]
    assert guest["properties"]["age"]["description"] == "In years (> 0)"
    assert booking["properties"]["arrives"]["description"] == "(format: date-time)"
    assert "$ref" not in json.dumps(schema)


def test_pydantic_model_gets_an_instance_and_returns_json() -> None:
    out = json.loads(called(book, {"booking": BOOKING, "others": [GUEST]}))
    assert out == {**BOOKING, "host": None}


@pytest.mark.parametrize(
    ("booking", "reason"),
    [
        ({**BOOKING, "guests": [{"name": "Ann", "age": -1}]}, "guests.0.age: Input should be"),
        ({"guests": []}, "arrives: Field required"),
    ],
)
def test_wrong_arguments_name_the_place(booking: object, reason: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        called(book, {"booking": booking, "others": [GUEST]})
    assert reason in str(refused.value)
    assert "pydantic.dev" not in str(refused.value)


def test_dataclass_typed_dict_enum_and_time_are_converted() -> None:
    args = {
        "room": {"number": 1},
        "place": {"city": "Ulm"},
        "level": "high",
        "at": "2026-01-02T00:00:00Z",
    }
    assert json.loads(called(other_types, args)) == {"number": 2, "name": "none"}


async def test_agent_calls_tool_with_pydantic_model() -> None:
    call = perdure.tool_call("c1", "book", {"booking": BOOKING, "others": [GUEST]})
    models = ScriptedModel([perdure.assistant(call), "Booked."])
    agent = perdure.Agent("desk", model="test:m", tools=[tool(book)])
    async with (
        perdure.open("memory:") as store,
        perdure.Runtime(store, [agent], models=models) as runtime,
    ):
        chat = await runtime.start("desk")
        assert (await chat.send("Book.")).text == "Booked."
        (result,) = [each for each in await chat.session.messages() if each.role == "tool"]
    assert json.loads(result.text)["guests"] == [GUEST]


def test_tool_without_pydantic_does_not_import_it() -> None:
    program = (
        "import sys, perdure\n"
        "@perdure.tool\n"
        "def f(x: int) -> int:\n"
        "    'F.'\n"
        "    return x\n"
        "print('pydantic' in sys.modules)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "False\n"
