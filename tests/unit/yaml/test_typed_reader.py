from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from perdure.yaml.nodes import YamlReader
from perdure.yaml.typed_reader import read_as


class Part(msgspec.Struct, frozen=True):
    size: Annotated[int, Meta(ge=1, le=9)]
    ratio: Annotated[float, Meta(gt=0)] = 1.0

    def __post_init__(self) -> None:
        if self.size == 7:
            raise ValueError("seven is never right")


class Whole(msgspec.Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1, pattern="^[a-z]+$")]
    mode: Literal["on", "off"] = "on"
    parts: tuple[Part, ...] = ()
    limit: Annotated[int | None, Meta(description="Most.")] = None
    is_open: bool = False
    names: dict[str, int] = {}
    anything: Any = None


def read(text: str) -> tuple[Whole | None, tuple[str, ...]]:
    nodes = YamlReader()
    root = nodes.root(text)
    assert root is not None
    return read_as(nodes, root, Whole), nodes.faults


def test_valid_yaml_file_is_read_as_a_typed_value() -> None:
    text = (
        "name: tides\nmode: off\nparts:\n  - {size: 2, ratio: 3}\nlimit: null\nis_open: true\n"
        "names: {a: 1}\nanything: [1, {b: c}]\n"
    )
    whole, faults = read(text)
    assert faults == ()
    assert whole == Whole(
        "tides",
        "off",
        (Part(2, 3.0),),
        None,
        is_open=True,
        names={"a": 1},
        anything=[1, {"b": "c"}],
    )
    assert whole is not None
    assert isinstance(whole.parts[0].ratio, float)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("mode: on\n", "line 1: 'name' is missing"),
        ("name: ''\n", "line 1: '' does not fit ^[a-z]+$"),
        ("name: A\n", "line 1: 'A' does not fit ^[a-z]+$"),
        ("name: [a]\n", "line 1: expected text"),
        ("name: a\nmode: perhaps\n", "line 2: 'perhaps' is not one of off, on"),
        ("name: a\nmode: 3\n", "line 2: this is not one of off, on"),
        ("name: a\nparts:\n  - size: 0\n", "line 3: 0 is less than 1"),
        ("name: a\nparts:\n  - size: 10\n", "line 3: 10 is more than 9"),
        ("name: a\nparts:\n  - {size: 1, ratio: 0}\n", "line 3: 0 is not more than 0"),
        ("name: a\nparts:\n  - size: 7\n", "line 3: seven is never right"),
        ("name: a\nparts: 3\n", "line 2: expected a list"),
        ("name: a\nlimit: much\n", "line 2: expected a whole number"),
        ("name: a\nis_open: 'yes'\n", "line 2: expected true or false"),
        ("name: a\nnames: {a: b}\n", "line 2: expected a whole number"),
        ("name: a\nname: b\n", "line 2: 'name' is a duplicate key"),
    ],
)
def test_value_that_does_not_match_its_type_is_reported_with_its_line(
    text: str, fault: str
) -> None:
    whole, faults = read(text)
    assert whole is None
    assert any(found.startswith(fault) for found in faults), faults


def test_all_faults_of_a_yaml_file_are_reported_together() -> None:
    _, faults = read("nme: a\nmode: x\nparts: [{size: 0}, {size: 7}]\n")
    assert [fault.partition(":")[0] for fault in faults] == [
        "line 1", "line 1", "line 2", "line 3", "line 3",
    ]  # fmt: skip
