"""pi's session files as a codec: file names, times, first line, JSON."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.pi.codec import PI, STYLE, to_line
from perdure.codecs.style import spelling
from tests.fakes.samples import case

AT = 1_705_314_600_000


def test_file_is_named_by_time_in_utc() -> None:
    assert PI.file_name(AT, "s") == "2024-01-15T10-30-00-000Z_s.jsonl"


def test_time_can_be_text_or_milliseconds() -> None:
    assert PI.time_of("2024-01-15T10:30:00.000Z") == PI.time_of(float(AT)) == AT
    assert PI.time_of(None) is PI.time_of(1e300) is PI.time_of("soon") is None


def test_pi_files_below_version_3_are_not_appended_to() -> None:
    assert (PI.oldest_version, PI.has_leaf_record, PI.most_header_bytes) == (3, False, 512)


FINITE = st.floats(allow_nan=False, allow_infinity=False)


def test_numbers_are_spelled_as_in_javascript() -> None:
    for number, text in [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (0.1, "0.1"),
        (5e-06, "0.000005"),
        (1e-06, "0.000001"),
        (9.99e-07, "9.99e-7"),
        (1.5e-10, "1.5e-10"),
        (1e20, "100000000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (1.25e22, "1.25e+22"),
        (1735689600.0, "1735689600"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
    ]:
        with case((number, text)):
            assert spelling(number, STYLE) == text


@given(FINITE)
def test_written_number_is_read_as_same_number(number: float) -> None:
    assert float(spelling(number, STYLE)) == number


@given(FINITE)
def test_number_is_written_with_an_exponent_only_outside_the_decimal_range(number: float) -> None:
    is_decimal = number == 0 or 1e-6 <= math.fabs(number) < 1e21
    assert ("e" in spelling(number, STYLE)) == (not is_decimal)


def test_json_is_written_in_compact_form_except_for_numbers() -> None:
    value = {"b": [True, None, "ä\u2028\n", 7], "a": {"x": (0.5, -0.0)}}
    assert to_line(value) == '{"b":[true,null,"ä\u2028\\n",7],"a":{"x":[0.5,0]}}'.encode()


def test_raw_json_value_is_written_unchanged() -> None:
    assert to_line({"a": msgspec.Raw(b"1.50")}) == b'{"a":1.50}'
