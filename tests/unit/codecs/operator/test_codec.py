"""Operator's session files as a codec: their names and times."""

from __future__ import annotations

import re

from perdure.codecs.operator.codec import OPERATOR

AT = 1_705_314_600_250


def test_file_is_named_by_local_time_with_microseconds() -> None:
    name = OPERATOR.file_name(AT, "s")
    assert re.fullmatch(r"2024-01-1[456]T\d\d-\d\d-00-250000_s\.jsonl", name)


def test_time_is_seconds_or_a_text() -> None:
    assert OPERATOR.time_of(AT / 1000) == OPERATOR.time_of("2024-01-15T10:30:00.250Z") == AT
    assert OPERATOR.time_of(None) is OPERATOR.time_of(1e300) is None


def test_first_line_has_no_limit() -> None:
    assert OPERATOR.most_header_bytes is None
