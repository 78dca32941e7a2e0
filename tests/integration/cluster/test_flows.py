"""Flows that workers run: kills, workers without the flow's folder, answers from any process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import perdure
from perdure import Flow, Flows, Runtime, Store
from perdure.client.cluster.performer import MAX_LOSSES
from perdure.client.cluster.runner import cluster_of
from perdure.client.cluster.status import cluster_status
from perdure.client.cluster.worker import SWEEP_S
from perdure.stores.cluster.limits import Limit
from tests.fakes.flow_workers import DEADLY, held, model, roles
from tests.fakes.mortal_flows import GRAPHS, RECORD, Kind
from tests.fakes.workers import effect_of, effects, of, until, workers

pytestmark = pytest.mark.full_only

PROGRAM = "tests.fakes.flow_workers"


@asynccontextmanager
async def flows_of(store: Store, kind: Kind = "two", *asking: str) -> AsyncGenerator[Flows]:
    """Return the flows of a program in which only workers run flows."""
    agents = roles(kind, asking)
    async with (
        Runtime(store, agents, models=model(kind, store), runner="workers") as runtime,
        Flows(runtime) as flows,
    ):
        yield flows


def notes(folder: Path) -> list[str]:
    return [text for _, text in effects(folder)]


async def test_flow_of_a_killed_worker_continues_on_another_worker(
    store: Store, address: str, tmp_path: Path
) -> None:
    async with (
        workers(2, address, tmp_path, factory=f"{PROGRAM}:two") as started,
        flows_of(store) as flows,
    ):
        flow = await flows.start(GRAPHS["two"], workspace=tmp_path, record_folder=RECORD)
        held(tmp_path, "done.md").touch()
        running = asyncio.ensure_future(flow.run())
        dead = of(await effect_of(tmp_path, "done.md"), started)
        dead.kill()
        held(tmp_path, "done.md").unlink()
        assert (await running).status == "awaiting_improvement_choice"
        await flow.choose_improvement("none", by="Ana")
        assert (await flow.run()).status == "completed"
    assert notes(tmp_path) == ["plan.md", "done.md", "done.md"]
    done = [pid for pid, text in effects(tmp_path) if text == "done.md"]
    assert done[0] == dead.pid != done[1]


async def work_of(store: Store) -> list[tuple[int, int, int]]:
    """For each queue of flows, return the numbers of waiting flows, running flows and workers."""
    found = (await cluster_status(store.backend, store.outside.clock)).queues
    return [
        (each.waiting, each.running, len(each.served_by))
        for each in found
        if each.agent.startswith("flow: ")
    ]


async def asked(store: Store, flow: Flow) -> str:
    """Wait until `flow` asks a person and uses no slot; return the id of the question."""

    async def is_parked() -> bool:
        running = [each for _, each, _ in await work_of(store)]
        return bool(await flow.waiting()) and not any(running)

    await until(is_parked)
    (waiting,) = await flow.waiting()
    assert waiting.topic == "consent"
    return str(waiting.question)


async def test_flow_waits_for_worker_that_has_its_folder_and_agents(
    store: Store, address: str, tmp_path: Path
) -> None:
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    place.mkdir()
    before = len(await work_of(store))
    async with flows_of(store, "three") as flows:
        async with workers(1, address, place, factory=f"{PROGRAM}:two"):  # it has no reviewer
            flow = await flows.start(GRAPHS["three"], workspace=place, record_folder=RECORD)
            running = asyncio.ensure_future(flow.run())

            async def is_stuck() -> bool:
                return (1, 0, 0) in await work_of(store)

            await until(is_stuck)
            await asyncio.sleep(SWEEP_S)
            assert await is_stuck()
        place.rename(elsewhere)
        (place / RECORD).mkdir(parents=True)  # another machine may have a folder of that path
        async with workers(1, address, place.parent, factory=f"{PROGRAM}:runtime") as started:
            await asyncio.sleep(SWEEP_S)
            assert await is_stuck()
            started[0].kill()
        (place / RECORD).rmdir()
        place.rmdir()
        elsewhere.rename(place)
        async with workers(1, address, place, factory=f"{PROGRAM}:runtime"):
            run = await running
        (waiting,) = await flow.waiting()
        assert (waiting.topic, waiting.target) == ("prompt-human", "end")
        assert run.running_nodes == ()
        assert len(await work_of(store)) == before + 1
        await flows.delete(flow.id)


async def test_flow_that_kills_its_workers_waits_for_a_person(
    store: Store, address: str, tmp_path: Path
) -> None:
    limits = cluster_of(store.backend).limits
    await limits.set_limit(Limit(subject="namespace:default", turns=1))  # so each needs a slot
    async with flows_of(store) as flows:
        flow = await flows.start(GRAPHS["two"], workspace=tmp_path, record_folder=RECORD)
        (tmp_path / DEADLY).touch()
        running = asyncio.ensure_future(flow.run())
        for _ in range(MAX_LOSSES):
            async with workers(1, address, tmp_path, factory=f"{PROGRAM}:two") as (deadly,):
                await asyncio.to_thread(deadly.end)
        async with workers(1, address, tmp_path, factory=f"{PROGRAM}:two"):
            await running
            (waiting,) = await flow.waiting()
            assert (waiting.topic, waiting.target) == ("autonomous-abort", "owner-intake")
            assert f"{MAX_LOSSES} workers died while they ran this flow" in waiting.text
            assert notes(tmp_path) == ["plan.md"] * MAX_LOSSES
            (tmp_path / DEADLY).unlink()
            await flow.reply("`owner-intake` started", by="Ana")
            assert (await flow.run()).status == "awaiting_improvement_choice"
    await limits.set_limit(Limit(subject="namespace:default"))


@pytest.mark.all_only
async def test_flow_that_waits_for_an_answer_uses_no_slot(
    store: Store, address: str, tmp_path: Path
) -> None:
    async with flows_of(store, "two", "developer") as flows:
        flow = await flows.start(GRAPHS["two"], workspace=tmp_path, record_folder=RECORD)
        running = asyncio.ensure_future(flow.run())
        async with workers(1, address, tmp_path, factory=f"{PROGRAM}:asking"):
            question = await asked(store, flow)
            await store.answer(question, "allow", by="Ana")
            assert (await running).status == "awaiting_improvement_choice"
    assert notes(tmp_path) == ["plan.md", "done.md"]


async def test_waiting_flow_of_a_dead_worker_obeys_stop_and_reply(
    store: Store, address: str, tmp_path: Path
) -> None:
    async with flows_of(store, "two", "developer") as flows:
        flow = await flows.start(GRAPHS["two"], workspace=tmp_path, record_folder=RECORD)
        running = asyncio.ensure_future(flow.run(until_completed=True))
        async with workers(1, address, tmp_path, factory=f"{PROGRAM}:asking"):
            await asked(store, flow)
        async with perdure.open(address) as other, flows_of(other) as elsewhere:
            await (await elsewhere.open(flow.id)).stop("build", by="Ana")
        async with workers(1, address, tmp_path, factory=f"{PROGRAM}:asking"):

            async def is_stopped() -> bool:
                return [each.target for each in await flow.waiting()] == ["build"]

            await until(is_stopped)
            await flow.reply("`build` started", "build", by="Ana")
            await store.answer(await asked(store, flow), "allow", by="Ana")

            async def is_closed() -> bool:
                return (await flow.state()).run.status == "awaiting_improvement_choice"

            await until(is_closed)
            await flow.choose_improvement("none", by="Ana")
            assert (await running).status == "completed"
    assert notes(tmp_path) == ["plan.md", "done.md"]


async def test_flow_of_stopped_worker_is_taken_over(
    store: Store, address: str, tmp_path: Path
) -> None:
    options = ("--drain-seconds", "0")
    async with (
        workers(2, address, tmp_path, *options, factory=f"{PROGRAM}:two") as started,
        flows_of(store) as flows,
    ):
        flow = await flows.start(GRAPHS["two"], workspace=tmp_path, record_folder=RECORD)
        held(tmp_path, "plan.md").touch()
        running = asyncio.ensure_future(flow.run())
        left = of(await effect_of(tmp_path, "plan.md"), started)
        left.send(signal.SIGTERM)
        assert await asyncio.to_thread(left.end) == 0
        held(tmp_path, "plan.md").unlink()
        assert (await running).status == "awaiting_improvement_choice"
    assert notes(tmp_path) == ["plan.md", "plan.md", "done.md"]
