from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs import fields

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(ANYTHING)
def test_field_of_wrong_type_is_ignored(value: object) -> None:
    record = {"key": value}
    assert isinstance(fields.object_in(record, "key"), dict | None)
    assert isinstance(fields.list_in(record, "key"), list | None)
    assert isinstance(fields.text_in(record, "key"), str | None)
    assert isinstance(fields.flag_in(record, "key"), bool)
    assert isinstance(fields.number_in(record, "key"), int | float | None)
    assert fields.count_in(record, "key") >= 0
    assert isinstance(fields.time_in(record, "key"), int | None)
    assert all(isinstance(text, str) for text in fields.texts_in(record, "key"))


@given(ANYTHING)
def test_token_counts_read_together_equal_counts_read_one_by_one(
    value: object,
) -> None:
    record = {"a": value, "b": 3}
    expected = [fields.count_in(record, key) for key in ("a", "b", "c")]
    assert fields.counts_in(record, ("a", "b", "c")) == expected


def test_name_field_must_be_a_nonempty_text() -> None:
    assert fields.name_in({"id": "x"}, "id") == "x"
    assert fields.name_in({"id": ""}, "id") is None


def test_boolean_is_not_read_as_a_number() -> None:
    assert fields.number_in({"n": True}, "n") is None
    assert fields.count_in({"n": True}, "n") == 0


@pytest.mark.parametrize("number", [-1, math.nan, math.inf, 1e30, None, "12"])
def test_invalid_token_count_is_read_as_zero(number: object) -> None:
    assert fields.count_in({"n": number}, "n") == 0


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("2026-03-31T23:33:20.005Z", 1_775_000_000_005),
        ("2026-03-31T23:33:20.005+00:00", 1_775_000_000_005),
        ("2026-04-01T01:33:20+02:00", 1_775_000_000_000),
        ("2026-03-31T23:33:20", 1_775_000_000_000),
        ("1969-12-31T23:59:59.999Z", -1),
        (1_775_000_000_000, 1_775_000_000_000),
        (1_775_000_000_000.4, 1_775_000_000_000),
        ("yesterday", None),
        (2**60, None),
        (True, None),
    ],
)
def test_times_are_read_in_whole_milliseconds(value: object, time: int | None) -> None:
    assert fields.time_in({"at": value}, "at") == time


def test_list_of_texts_omits_values_that_are_not_text() -> None:
    assert fields.texts_in({"files": ["a", 1, None, "b"]}, "files") == ("a", "b")


@pytest.mark.parametrize(
    ("written", "time"),
    [
        (1750000000.25, 1_750_000_000_250),
        (1750000000, 1_750_000_000_000),
        (0, 0),
        ("1750000000", None),
        (None, None),
        (1e300, None),
        (math.inf, None),
        (math.nan, None),
        (True, None),
    ],
)
def test_time_can_be_a_number_of_seconds(written: object, time: int | None) -> None:
    assert fields.seconds_in({"key": written}, "key") == time
