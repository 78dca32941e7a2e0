"""Turns that wait because no worker runs."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Runtime, Store
from perdure.client.cluster.runner import cluster_of
from perdure.stores.cluster.protocol import WorkerFacts
from tests.fakes.worker_program import HELPER
from tests.fakes.workers import READY_S, until

pytestmark = pytest.mark.full_only

SAID = "turns wait because no worker runs: start a worker"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.client.cluster.absent_workers.NOTICE_S", 0.05)


async def test_turns_without_a_worker_log_one_warning(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        first = (await runtime.start(HELPER)).send("hello")

        async def is_said() -> bool:
            return SAID in caplog.text

        await until(is_said)
        second = (await runtime.start(HELPER)).send("hello")
        await second.stored()
        await asyncio.sleep(0.5)
        assert caplog.text.count(SAID) == 1
        for turn in (first, second):
            turn.abort()
            assert (await turn).end == "aborted"


async def test_turn_that_waits_while_a_worker_runs_logs_no_warning(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # on a busy machine, a report can be older than usual
    monkeypatch.setattr("perdure.stores.postgres.cluster.limits.SILENCE_S", READY_S)
    facts = WorkerFacts(id="w", owner="w", version="1", namespaces=("default",), agents=(), slots=1)
    worker = cluster_of(store.backend).liveness(facts)
    await asyncio.to_thread(worker.start)
    try:
        async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
            turn = (await runtime.start(HELPER)).send("hello")
            await turn.stored()
            await asyncio.sleep(0.5)
            turn.abort()
        assert SAID not in caplog.text
    finally:
        await asyncio.to_thread(worker.stop)
