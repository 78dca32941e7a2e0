"""Operator's session files as a codec: file names, times and JSON."""

from __future__ import annotations

import json
import re

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.operator.codec import OPERATOR, STYLE, to_line
from perdure.codecs.style import spelling

AT = 1_705_314_600_250


def test_file_is_named_by_local_time_with_microseconds() -> None:
    name = OPERATOR.file_name(AT, "s")
    assert re.fullmatch(r"2024-01-1[456]T\d\d-\d\d-00-250000_s\.jsonl", name)


def test_time_can_be_seconds_or_text() -> None:
    assert OPERATOR.time_of(AT / 1000) == OPERATOR.time_of("2024-01-15T10:30:00.250Z") == AT
    assert OPERATOR.time_of(None) is OPERATOR.time_of(1e300) is None


def test_first_line_has_no_size_limit() -> None:
    assert OPERATOR.most_header_bytes is None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (9e-6, "9e-6"),
        (1e-5, "0.00001"),
        (1735689600.0, "1735689600.0"),
        (1750000000.25, "1750000000.25"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e+16"),
        (1.5e300, "1.5e+300"),
        (-2.5e-7, "-2.5e-7"),
        (5e-324, "5e-324"),
    ],
)
def test_example_numbers_are_written_in_the_operator_format(number: float, text: str) -> None:
    assert spelling(number, STYLE) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_is_written_in_the_operator_format(number: float) -> None:
    assert spelling(number, STYLE) == pydantic_core.to_json(number).decode()


_texts = st.text(st.characters(codec="utf-8"))


@given(_texts, _texts)
def test_written_line_contains_no_unescaped_line_end(key: str, text: str) -> None:
    line = to_line({key: text}).decode()
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {key: text}


def test_values_without_a_special_format_stay_unchanged() -> None:
    value = {"b": [1, 2.0, None, True], "a": {"é": "漢字"}}
    assert to_line(value).decode() == '{"b":[1,2.0,null,true],"a":{"é":"漢字"}}'
