"""The stop reasons in Operator's files: each reason of perdure is written and read back."""

from __future__ import annotations

from typing import get_args

import pytest

from perdure.codecs.operator.words import STOP_REASONS, WORDS
from perdure.session.messages import StopReason


@pytest.mark.parametrize("reason", get_args(StopReason))
def test_written_stop_reason_is_read_back_unchanged(reason: StopReason) -> None:
    assert STOP_REASONS[WORDS[reason]] == reason
