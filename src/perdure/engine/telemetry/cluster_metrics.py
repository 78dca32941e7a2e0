"""Measurements of queued turns, for OpenTelemetry: waiting turns, delays, and takeovers.

All workers of the same database report the same figures. This module loads the API of
OpenTelemetry, not its SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from perdure.engine.telemetry import names
from perdure.engine.telemetry.requests import LIBRARY
from perdure.stores.cluster.protocol import ClusterStatus

Observe = Callable[[str, ClusterStatus], Iterator[Observation]]


class ClusterMetrics:
    """Reports the newest status of each namespace, and how long each turn waited for its start."""

    def __init__(self, *, meters: MeterProvider | None = None) -> None:
        self._status: dict[str, ClusterStatus] = {}
        meter = metrics.get_meter(LIBRARY, meter_provider=meters)
        self._delay = meter.create_histogram(
            names.START_DELAY, unit="s", explicit_bucket_boundaries_advisory=names.SECONDS
        )
        for name, unit, observe in (
            (names.TURNS_WAITING, "{turn}", _waiting),
            (names.OLDEST_WAIT, "s", _oldest),
            (names.WORKERS, "{worker}", _workers),
            (names.TAKEOVERS, "{takeover}", _takeovers),
        ):
            meter.create_observable_gauge(name, [self._observer(observe)], unit=unit)

    def update(self, namespace: str, status: ClusterStatus) -> None:
        """Report `status` from now on."""
        self._status[namespace] = status

    def started(self, namespace: str, agent: str, delay_s: float) -> None:
        """Report that a turn began `delay_s` seconds after its request, or after it was due."""
        self._delay.record(max(0.0, delay_s), _labels(namespace, agent))

    def _observer(self, observe: Observe) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observed(_: CallbackOptions) -> Iterable[Observation]:
            return [
                each
                for namespace, status in self._status.items()
                for each in observe(namespace, status)
            ]

        return observed


def _labels(namespace: str, agent: str) -> dict[str, str]:
    return {names.NAMESPACE: namespace, names.AGENT_NAME: agent}


def _waiting(namespace: str, status: ClusterStatus) -> Iterator[Observation]:
    found: dict[tuple[str, bool], int] = {}
    for queue in status.queues:
        key = (queue.agent, bool(queue.served_by))
        found[key] = found.get(key, 0) + queue.waiting
    for (agent, is_served), waiting in found.items():
        labels = {**_labels(namespace, agent), names.IS_SERVED: is_served}
        yield Observation(waiting, labels)


def _oldest(namespace: str, status: ClusterStatus) -> Iterator[Observation]:
    found: dict[str, float] = {}
    for queue in status.queues:
        found[queue.agent] = max(found.get(queue.agent, 0.0), queue.oldest_s or 0.0)
    for agent, oldest_s in found.items():
        yield Observation(oldest_s, _labels(namespace, agent))


def _workers(_: str, status: ClusterStatus) -> Iterator[Observation]:
    for state in ("alive", "draining", "dead"):
        count = sum(worker.state == state for worker in status.workers)
        yield Observation(count, {names.WORKER_STATE: state})


def _takeovers(_: str, status: ClusterStatus) -> Iterator[Observation]:
    for name in ("takeovers", "false_takeovers"):
        yield Observation(status.counts.get(name, 0), {names.IS_FALSE: name != "takeovers"})
