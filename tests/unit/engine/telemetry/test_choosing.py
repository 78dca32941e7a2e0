"""Telemetry is used where the program has loaded it."""

from __future__ import annotations

import sys

import pytest

from perdure.engine.telemetry.choosing import chosen_observer
from perdure.engine.telemetry.spans import SpanObserver
from perdure.engine.turns.observing import SILENCE
from tests.fakes.clock import ManualClock


def test_a_program_that_has_loaded_it_is_observed() -> None:
    assert isinstance(chosen_observer({}, ManualClock()), SpanObserver)


def test_a_program_without_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert chosen_observer({}, ManualClock()) is SILENCE
