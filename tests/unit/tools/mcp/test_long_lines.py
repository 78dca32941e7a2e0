"""The codec of a server's lines: UTF-8 with a maximum line length."""

from __future__ import annotations

import codecs

import pytest

from perdure.bounds.limits import InputLimits
from perdure.tools.mcp.long_lines import LINES_WITHIN, LineTooLong, stop_at_long_line


def test_lines_within_the_limit_are_decoded_as_they_arrive() -> None:
    decoder = codecs.getincrementaldecoder(LINES_WITHIN)("strict")
    assert decoder.decode("a\né".encode()[:-1]) == "a\n"
    assert decoder.decode("é".encode()[-1:]) == "é"
    assert "é".encode(LINES_WITHIN) == "é".encode()


def test_line_beyond_the_limit_stops_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.bounds.limits._in_force", [InputLimits(mcp_answer_bytes=10)])
    stopped: list[bool] = []
    stop_at_long_line(lambda: stopped.append(True))
    decoder = codecs.getincrementaldecoder(LINES_WITHIN)("strict")
    assert decoder.decode(b"123456789\n123456789\n12345") == "123456789\n123456789\n12345"
    with pytest.raises(LineTooLong):
        decoder.decode(b"678901")
    assert stopped == [True]
