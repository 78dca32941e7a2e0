"""The measurements of a worker process about the turns that it runs."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from perdure import Runtime, Store
from tests.fakes.measured_worker import FILE
from tests.fakes.worker_program import HELPER
from tests.fakes.workers import workers

pytestmark = pytest.mark.full_only


def measured(folder: Path) -> dict[str, list[Any]]:
    """Map each metric to its points, read from the file that the worker wrote before it ended."""
    (resource,) = json.loads((folder / FILE).read_text())["resource_metrics"]
    (scope,) = resource["scope_metrics"]
    return {metric["name"]: metric["data"]["data_points"] for metric in scope["metrics"]}


@pytest.mark.all_only
async def test_worker_measures_start_delay_and_state_of_cluster(
    store: Store, address: str, folder: Path
) -> None:
    async with workers(1, address, folder, factory="measured", is_forked=False) as (worker,):
        async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
            await (await runtime.start(HELPER)).send("hello")
        worker.send(signal.SIGTERM)
        assert await asyncio.to_thread(worker.end) == 0
    points = measured(folder)
    (delay,) = points["perdure.turn.start_delay"]
    assert delay["count"] == 1
    about = {"perdure.namespace": "default", "gen_ai.agent.name": "helper"}
    assert delay["attributes"] == about
    (running,) = points["perdure.turns.running"]
    assert (running["value"], running["attributes"]) == (0, about)
    alive = [
        point["value"]
        for point in points["perdure.workers"]
        if point["attributes"] == {"perdure.worker.state": "alive"}
    ]
    assert alive == [1]
    assert {point["value"] for point in points["perdure.takeovers"]} == {0}


async def test_start_delay_of_waiting_turn_is_measured(
    store: Store, address: str, folder: Path
) -> None:
    async with (
        workers(1, address, folder, factory="measured") as (worker,),
        Runtime(store, agents=[HELPER], runner="workers") as runtime,
    ):
        chat = await runtime.start(HELPER)
        async for event in chat.send('/tool publish {"text": "it"}'):
            if event.type == "agent:approval_requested":
                break
        worker.send(signal.SIGTERM)
        assert await asyncio.to_thread(worker.end) == 0
    (delay,) = measured(folder)["perdure.turn.start_delay"]
    assert delay["count"] == 1
