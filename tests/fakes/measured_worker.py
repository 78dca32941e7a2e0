"""OpenTelemetry in a worker: the worker writes its measurements to a file when it ends."""

from __future__ import annotations

from multiprocessing.util import Finalize
from pathlib import Path

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

FILE = "metrics.json"


def begin(folder: Path) -> None:
    """Start to measure; a file in `folder` gets the measurements when the process ends."""
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))

    def write() -> None:
        data = reader.get_metrics_data()
        assert data is not None
        (folder / FILE).write_text(data.to_json())

    Finalize(None, write, exitpriority=0)  # a fork does not run what `atexit` registered
