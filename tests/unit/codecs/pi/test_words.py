"""The constants of pi's files: each written stop reason is read back."""

from __future__ import annotations

from typing import get_args

import pytest

from perdure.codecs.pi.records import answer
from perdure.codecs.pi.words import STOP_REASONS
from perdure.session.messages import Message, StopReason
from tests.fakes.session_lines import writing_of

WRITING = writing_of({}, {}, "aaaaaaaa")


@pytest.mark.parametrize("reason", get_args(StopReason))
def test_written_stop_reason_is_read_back(reason: StopReason) -> None:
    written = answer(Message("assistant", (), stop_reason=reason), 0, None, WRITING)["stopReason"]
    expected = "error" if reason == "content_filter" else reason
    assert STOP_REASONS[written] == expected
