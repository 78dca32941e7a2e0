"""The metrics of a worker, through the SDK of OpenTelemetry."""

from __future__ import annotations

from typing import Any

from perdure.engine.telemetry.cluster_metrics import ClusterMetrics
from perdure.stores.cluster.protocol import ClusterStatus, QueueInfo, WorkerInfo, WorkerState
from tests.fakes.telemetry import Telemetry


def worker(state: WorkerState) -> WorkerInfo:
    return WorkerInfo(
        id=f"w-{state}",
        owner="pid 1",
        version="1",
        protocol=2,
        namespaces=("a",),
        agents=("desk",),
        slots=4,
        running=1,
        state=state,
        up_s=10.0,
        silent_s=0.1,
    )


def queue(waiting: int, oldest_s: float | None, *served_by: str) -> QueueInfo:
    return QueueInfo(
        queue=f"q{waiting}",
        agent="desk",
        waiting=waiting,
        scheduled=0,
        running=0,
        oldest_s=oldest_s,
        served_by=served_by,
    )


def values(told: Telemetry, metric: str, label: str) -> dict[Any, float]:
    """Return the values of `metric` by one of their attributes."""
    return {point.attributes[label]: point.value for point in told.points(metric)}


def test_status_is_reported_by_namespace_agent_and_state() -> None:
    told = Telemetry()
    metrics = ClusterMetrics(meters=told.meters)
    status = ClusterStatus(
        workers=(worker("alive"), worker("dead")),
        queues=(queue(3, 2.5, "w-alive"), queue(4, 9.0), queue(1, None, "w-alive")),
        counts={"takeovers": 2, "false_takeovers": 1, "requeued": 7},
    )
    metrics.update("a", status)
    assert values(told, "perdure.turns.waiting", "perdure.queue.is_served") == {True: 4, False: 4}
    (oldest,) = told.points("perdure.turns.oldest_wait")
    assert oldest.value == 9.0
    assert dict(oldest.attributes) == {"perdure.namespace": "a", "gen_ai.agent.name": "desk"}
    assert values(told, "perdure.workers", "perdure.worker.state") == {
        "alive": 1,
        "draining": 0,
        "dead": 1,
    }
    assert values(told, "perdure.takeovers", "perdure.takeover.is_false") == {False: 2, True: 1}


def test_newer_cluster_status_replaces_the_earlier_status() -> None:
    told = Telemetry()
    metrics = ClusterMetrics(meters=told.meters)
    for waiting in (5, 1):
        metrics.update("a", ClusterStatus(workers=(), queues=(queue(waiting, 1.0),), counts={}))
    metrics.update("b", ClusterStatus(workers=(), queues=(queue(2, 1.0),), counts={}))
    assert values(told, "perdure.turns.waiting", "perdure.namespace") == {"a": 1, "b": 2}


def test_measured_start_delays_are_never_negative() -> None:
    told = Telemetry()
    metrics = ClusterMetrics(meters=told.meters)
    metrics.started("a", "desk", 0.25)
    metrics.started("a", "desk", -0.1)
    (point,) = told.points("perdure.turn.start_delay")
    assert (point.count, point.sum, point.min) == (2, 0.25, 0.0)
    assert dict(point.attributes) == {"perdure.namespace": "a", "gen_ai.agent.name": "desk"}
