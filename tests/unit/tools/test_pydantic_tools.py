"""Tools whose arguments and results are models of pydantic, dataclasses and other types."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

import perdure
from perdure.errors import InvalidArguments
from perdure.testing import ScriptedModel
from perdure.tools.decorator import tool
from perdure.tools.permission_check import judge_call
from perdure.tools.permissions import Permissions
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


class Payment(pydantic.BaseModel):
    amount: int
    receiver: str = pydantic.Field(repr=False)
    reference: str = pydantic.Field(exclude=True)
    guests: list[Guest] = []

    def __repr__(self) -> str:
        return "nothing"


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Room:
    number: int
    name: str = "none"


class Place(TypedDict):
    city: str


Limit = Annotated[int, pydantic.Field(ge=1, description="How many")]


@dataclass
class Page:
    limit: Limit
    after: Page | None = None


@dataclass
class DefaultPage:
    limit: int = pydantic.Field(default=3, ge=1)


class PageDict(TypedDict):
    limit: Limit


class PageStruct(msgspec.Struct):
    limit: Limit | None = None


@pydantic.dataclasses.dataclass
class CheckedPage:
    limit: int


class PageModel(pydantic.BaseModel):
    limit: Limit


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
    """Return the JSON result of `function` for the arguments of a model."""
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


def test_tool_receives_pydantic_instance_and_result_is_json() -> None:
    out = json.loads(called(book, {"booking": BOOKING, "others": [GUEST]}))
    assert out == {**BOOKING, "host": None}


@pytest.mark.parametrize(
    ("booking", "reason"),
    [
        ({**BOOKING, "guests": [{"name": "Ann", "age": -1}]}, "guests.0.age: Input should be"),
        ({"guests": []}, "arrives: Field required"),
    ],
)
def test_error_for_wrong_arguments_mentions_the_wrong_field(booking: object, reason: str) -> None:
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


@pytest.mark.parametrize(
    ("annotation", "ignored"),
    [
        (Limit, "Field"),
        (list[Limit] | None, "Field"),
        (Annotated[str, pydantic.StringConstraints(max_length=3)], "StringConstraints"),
        (pydantic.PositiveInt, "Gt"),
        (Page, "Field"),
        (DefaultPage, "Field"),
        (dict[str, PageDict], "Field"),
        (PageStruct, "Field"),
        (CheckedPage, "CheckedPage, a dataclass"),
    ],
)
def test_pydantic_annotation_outside_a_model_is_rejected(annotation: Any, ignored: str) -> None:
    def find(limit: Any) -> None:
        """Find."""

    find.__annotations__["limit"] = annotation
    with pytest.raises(TypeError, match=f"parameter 'limit'.* {ignored} of pydantic.* BaseModel"):
        tool(find)


def test_pydantic_field_as_default_is_rejected() -> None:
    def find(limit: int = pydantic.Field(default=3, ge=1)) -> None:
        """Find."""

    with pytest.raises(TypeError, match=r"'limit': Field of pydantic .*msgspec\.Meta\(ge=1"):
        tool(find)


def test_tool_checks_limits_of_msgspec_or_pydantic_model() -> None:
    def find(
        page: PageModel, limit: Annotated[int, msgspec.Meta(ge=1, description="How many")] = 3
    ) -> list[int]:
        """Find."""
        return [page.limit, limit]

    schema: Any = parameters_of(find).schema
    assert schema["properties"]["limit"]["description"] == "How many Default: 3."
    assert schema["properties"]["page"]["properties"]["limit"]["minimum"] == 1
    assert called(find, {"page": {"limit": 2}}) == "[2,3]"
    for wrong in ({"page": {"limit": 0}}, {"page": {"limit": 1}, "limit": 0}):
        with pytest.raises(InvalidArguments, match="limit"):
            called(find, wrong)


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


def test_approval_shows_all_fields_of_a_model() -> None:
    @tool(needs_approval=True)
    def pay(payment: Payment) -> str:
        return str(payment)

    payment = {"amount": 5, "receiver": "mallory", "reference": "x1", "guests": [GUEST]}
    ruling = judge_call(pay, {"payment": payment}, Permissions())
    shown = ruling.text[ruling.text.index("{") : ruling.text.rindex("}") + 1]
    assert json.loads(shown) == {"payment": payment}


def test_tool_without_pydantic_types_does_not_import_pydantic() -> None:
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


class Trip(pydantic.BaseModel):
    origin: str = pydantic.Field(alias="from")


def test_tool_arguments_and_result_use_field_aliases() -> None:
    def book(trip: Trip) -> Trip:
        return trip

    parameters = parameters_of(book)
    given: dict[str, object] = {"trip": {"from": "Oslo"}}
    schema: Any = parameters.schema
    assert list(schema["properties"]["trip"]["properties"]) == ["from"]
    trip = arguments_of("book", parameters, given)["trip"]
    assert json_of(book(trip)) == b'{"from":"Oslo"}'  # pyright: ignore[reportArgumentType] - of any type


class Login(pydantic.BaseModel):
    name: str = pydantic.Field(deprecated=True)
    word: pydantic.SecretStr


def test_schema_keywords_without_validation_are_omitted() -> None:
    def log_in(login: Login) -> str:
        return login.word.get_secret_value()

    schema: Any = parameters_of(log_in).schema
    properties = schema["properties"]["login"]["properties"]
    assert properties == {
        "name": {"type": "string"},
        "word": {"type": "string", "description": "(format: password)"},
    }


UNKNOWN = pydantic.Field(json_schema_extra={"x-unit": "metre"})


class Leg(pydantic.BaseModel):
    length: int = UNKNOWN


class Walk(pydantic.BaseModel):
    legs: list[Leg]


class Plan(pydantic.BaseModel):
    walks: dict[str, Walk | None]


@dataclass
class Journey:
    plan: Plan


@pytest.mark.parametrize(
    ("annotation", "path"),
    [
        (Leg, "Leg.length"),
        (list[Leg], "Leg.length"),
        (Walk, "Walk.legs[].length"),
        (Plan, "Plan.walks.*.legs[].length"),
        (Journey, "Plan.walks.*.legs[].length"),
    ],
)
def test_error_for_an_unsupported_schema_keyword_contains_the_field(
    annotation: Any, path: str
) -> None:
    def measure(given: object) -> str:
        return str(given)

    measure.__annotations__["given"] = annotation
    with pytest.raises(TypeError) as caught:
        parameters_of(measure)
    told = str(caught.value)
    assert "parameter 'given': " in told
    assert told.endswith(
        f": {path}: its schema needs x-unit, which not every provider accepts: use str"
    )


class Node(pydantic.BaseModel):
    children: list[Node]


def test_error_for_a_recursive_model_contains_the_path_of_its_field() -> None:
    def plant(root: Node) -> str:
        return str(root)

    with pytest.raises(TypeError, match=r": Node\.children\[\]: Node contains itself"):
        parameters_of(plant)
