"""Choose the observer: OpenTelemetry is used only if the program has imported it.

Without OpenTelemetry, the cost is one look-up in the table of loaded modules per session.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from perdure.engine.telemetry.isolation import Isolated, attempt
from perdure.engine.turns.observer import SILENCE, Observer
from perdure.models.protocol import ModelClient
from perdure.session.clock import Clock

if TYPE_CHECKING:
    from perdure.stores.cluster.protocol import ClusterStatus

CONTENT = "PERDURE_OTEL_CONTENT"
"""If this environment variable is 1 or true, spans also contain message content."""

_API = "opentelemetry.trace"
_SPANS = "perdure.engine.telemetry.spans"
_METRICS_API = "opentelemetry.metrics"
_CLUSTER = "perdure.engine.telemetry.cluster_metrics"


class ClusterReport(Protocol):
    """Receives the measurements of a worker."""

    def update(self, namespace: str, status: ClusterStatus) -> None: ...

    def started(self, namespace: str, agent: str, delay_s: float) -> None: ...


def chosen_cluster_report() -> ClusterReport | None:
    """Return the receiver of a worker's measurements; None without OpenTelemetry."""
    if _METRICS_API not in sys.modules:
        return None
    return attempt(
        lambda: cast("ClusterReport", importlib.import_module(_CLUSTER).ClusterMetrics()), None
    )


def told_models(models: ModelClient, observer: Observer) -> ModelClient:
    """Return a client that reports requests to `observer`.

    Without OpenTelemetry, return `models`.
    """
    if _SPANS not in sys.modules:
        return models
    listener = cast("Any", observer.observer if isinstance(observer, Isolated) else observer)
    if not isinstance(listener, cast("Any", sys.modules[_SPANS]).SpanObserver):
        return models
    return attempt(lambda: cast("ModelClient", listener.models(models)), models)


def chosen_observer(
    environment: Mapping[str, str],
    clock: Clock,
    *,
    has_content: bool | None = None,
    namespace: str | None = None,
) -> Observer:
    """Return the observer for this program's sessions.

    If `has_content`, spans contain message content; if it is None, the environment variable
    `CONTENT` decides.
    """
    if _API not in sys.modules:
        return SILENCE
    if has_content is None:
        has_content = environment.get(CONTENT, "").lower() in ("1", "true", "yes", "on")
    make = importlib.import_module(_SPANS).SpanObserver
    options = {"has_content": has_content, "environment": environment, "namespace": namespace}
    made = attempt(lambda: Isolated(cast("Observer", make(clock, **options))), None)
    return SILENCE if made is None else made
