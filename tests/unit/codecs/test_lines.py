from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.lines import (
    LEVELS,
    TOO_DEEP,
    ReadLine,
    lines_of,
    plain_fields,
    read_line,
)


@given(st.binary())
def test_lines_joined_by_line_feeds_equal_the_file(content: bytes) -> None:
    lines = list(lines_of(content))
    assert b"\n".join(line.content for line in lines) == content.removesuffix(b"\n")
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    for line in lines:
        end = line.offset + len(line.content)
        assert content[line.offset : end] == line.content


def test_only_a_line_feed_ends_a_line() -> None:
    text = '{"a":"x\u2028y\u0085z"}\r'.encode()
    assert [line.content for line in lines_of(text + b"\n" + text)] == [text, text]


def test_line_feed_at_the_end_of_a_file_begins_no_line() -> None:
    assert [line.content for line in lines_of(b"a\n\n")] == [b"a", b""]
    assert list(lines_of(b"")) == []


def test_last_line_without_line_feed_counts_as_incomplete() -> None:
    assert [line.is_ended for line in lines_of(b"a\nb")] == [True, False]
    assert [line.is_ended for line in lines_of(b"a\nb\n")] == [True, True]


def test_line_of_white_space_is_blank() -> None:
    assert [line.is_blank for line in lines_of(b" \r\t\n.")] == [True, False]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"a":[1,2.5,null,true]}\r', {"a": [1, 2.5, None, True]}),
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b'"\\ud83d and \\ud83d\\ude00"', "\ufffd and \U0001f600"),
        (b'{"\\udc00":"\xff"}', {"\ufffd": "\ufffd"}),
        (b"[NaN,-Infinity,1e400,-1e400]", ["NaN", "-Infinity", "1e400", "-1e400"]),
        (b"[" + b"9" * 5000 + b"]", ["9" * 5000]),
    ],
)
def test_valid_line_is_read(line: bytes, value: object) -> None:
    reading = read_line(line)
    assert reading.is_json
    assert reading.value == value


def test_line_with_invalid_unicode_is_reported_as_a_problem() -> None:
    assert read_line(b'"\\ud800"').problem
    assert read_line(b'"\xff"').problem
    assert read_line('"\u2028 ä"'.encode()).problem is None
    assert read_line(b'\xef\xbb\xbf"a"').problem is None
    assert read_line(b'\xef\xbb\xbf"\\ud800"').problem


@pytest.mark.parametrize("line", [b"", b"{", b"{}{}", b"1],[2", b'{"a":}', b"\xff", b'"a\tb"'])
def test_invalid_json_is_rejected_with_reason(line: bytes) -> None:
    reading = read_line(line)
    assert not reading.is_json
    assert reading.problem


def test_deeply_nested_json_line_is_rejected() -> None:
    for depth in (2_000, 100_000):
        assert read_line(b"[" * depth + b"]" * depth).problem == TOO_DEEP
        assert read_line(b"[" * depth + b"NaN" + b"]" * depth).problem == TOO_DEEP


def test_brackets_side_by_side_do_not_count_as_nesting() -> None:
    value = [[n] for n in range(LEVELS * 10)]
    assert read_line(json.dumps(value).encode()).value == value


def test_unbalanced_brackets_are_rejected() -> None:
    filling = b"[]," * (LEVELS * 10)
    assert not read_line(b"1],[" + filling + b"2").is_json


@given(
    st.binary(max_size=200)
    | st.dictionaries(st.text(), st.floats()).map(json.dumps).map(str.encode)
)
def test_only_a_valid_json_object_has_fields(
    line: bytes,
) -> None:
    fields = plain_fields(line)
    is_plain = isinstance(read_line(line).value, dict) and read_line(line).problem is None
    assert fields == (read_line(line).value if is_plain else None)


def test_too_deeply_nested_line_has_no_fields() -> None:
    for depth, is_plain in ((LEVELS, True), (LEVELS + 1, False)):
        line = b'{"":' * (depth - 1) + b"{}" + b"}" * (depth - 1)
        assert (plain_fields(line) is not None) == is_plain == read_line(line).is_json


@given(st.binary(max_size=200))
def test_value_of_any_read_line_is_written_and_read_back_unchanged(line: bytes) -> None:
    reading = read_line(line)
    if reading.is_json:
        assert msgspec.json.decode(msgspec.json.encode(reading.value)) == reading.value


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
def test_any_json_written_by_python_is_read(value: object) -> None:
    assert read_line(json.dumps(value).encode()).is_json


def test_line_with_few_brackets_can_still_be_too_deep() -> None:
    assert read_line(b"[" * 400 + b"]" * 400) == ReadLine(None, is_json=False, problem=TOO_DEEP)
    assert read_line(b"[" * LEVELS + b"]" * LEVELS).is_json


def read_below(frames: int, line: bytes) -> ReadLine:
    return read_line(line) if frames == 0 else read_below(frames - 1, line)


@pytest.mark.parametrize("frames", [0, 100, 400])
@pytest.mark.parametrize("depth", [LEVELS - 1, LEVELS, LEVELS + 1, LEVELS + 50])
def test_all_readers_share_nesting_limit(frames: int, depth: int) -> None:
    line = b'[{"a":' * (depth // 2) + b"[" * (depth % 2) + b"NaN"
    line += b"]" * (depth % 2) + b"}]" * (depth // 2)
    assert read_below(frames, line).is_json == (depth <= LEVELS)
    exact = line.replace(b"NaN", b"1")
    assert read_below(frames, exact).is_json == (depth <= LEVELS)
