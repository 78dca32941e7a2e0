"""Telemetry is sent only by programs that have loaded OpenTelemetry."""

from __future__ import annotations

import sys

import pytest
from opentelemetry import metrics

from perdure.engine.telemetry.activation import chosen_cluster_report, chosen_observer
from perdure.engine.telemetry.cluster_metrics import ClusterMetrics
from perdure.engine.telemetry.isolation import Isolated
from perdure.engine.telemetry.spans import SpanObserver
from perdure.engine.turns.observer import SILENCE
from tests.fakes.clock import ManualClock


def test_program_with_opentelemetry_sends_telemetry() -> None:
    observer = chosen_observer({}, ManualClock())
    assert isinstance(observer, Isolated)
    assert isinstance(observer.observer, SpanObserver)


def test_program_with_broken_opentelemetry_sends_no_telemetry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("no meters")

    monkeypatch.setattr(metrics, "get_meter", broken)
    assert chosen_observer({}, ManualClock()) is SILENCE


def test_program_without_opentelemetry_sends_no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert chosen_observer({}, ManualClock()) is SILENCE


def test_worker_without_opentelemetry_sends_no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(chosen_cluster_report(), ClusterMetrics)
    monkeypatch.delitem(sys.modules, "opentelemetry.metrics")
    assert chosen_cluster_report() is None
