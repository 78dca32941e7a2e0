"""Rules for written values that are the same in the formats of pi and Operator."""

from __future__ import annotations

import msgspec
import pytest

from perdure.codecs.lines import LEVELS, read_line
from perdure.codecs.operator import codec as operator
from perdure.codecs.pi import codec as javascript
from perdure.codecs.style import Style, shallow, spelling, to_line

STYLES = pytest.mark.parametrize("style", [javascript.STYLE, operator.STYLE])


@STYLES
def test_deepest_readable_value_can_be_written(style: Style) -> None:
    def nested(depth: int) -> bytes:
        return b'[{"a":' * depth + b"0.5" + b"}]" * depth

    deepest = max(depth for depth in range(1, 200, 5) if read_line(nested(depth)).is_json)
    assert deepest > 50
    value = read_line(nested(deepest)).value
    assert to_line(value, style) == nested(deepest)


@STYLES
def test_deep_nesting_does_not_change_the_number_format(style: Style) -> None:
    def nested(depth: int) -> bytes:
        return b"[" * depth + b"1e-7" + b"]" * depth

    deepest = max(depth for depth in range(1, 400, 5) if read_line(nested(depth)).is_json)
    assert spelling(1e-7, style).encode() in to_line(read_line(nested(deepest)).value, style)


@STYLES
def test_very_deeply_nested_value_is_written(style: Style) -> None:
    value: object = 0.000005
    for _ in range(600):
        value = [value]
    assert msgspec.json.decode(to_line(value, style)) == value


def test_too_deeply_nested_part_of_a_value_becomes_text() -> None:
    deep = b'{"a":' * LEVELS + b'{"b":[1]}' + b"}" * LEVELS
    flat = shallow(deep)
    assert flat is not None
    line = msgspec.json.encode(flat)
    assert read_line(line).is_json
    assert line == b'{"a":' * LEVELS + b'"{\\"b\\":[1]}"' + b"}" * LEVELS
    assert shallow(line) is None
    assert shallow(b'{"a":[' + b"[]," * LEVELS + b"[]]}") is None
