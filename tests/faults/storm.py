"""A run of faults on busy workers, and its results."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import msgspec

import perdure
from tests.fakes.workers import WorkerProcess, until
from tests.faults.checking import Findings, findings
from tests.faults.load import load
from tests.faults.network import Network, network
from tests.faults.plans import OF_SERVER, Fault, drawn
from tests.faults.servers import Servers
from tests.faults.takeovers import Held, Watcher

BUSY_S = 5.0
"""How long a fault waits until its worker runs a turn: a new worker first opens its queues."""

SURVIVORS = 2
"""How many workers besides the worker of the fault must accept work."""


class Outcome(msgspec.Struct):
    """The results of a run.

    Units: seconds. `pauses_s` contains the pauses after faults of the server.
    """

    faults: Counter[str]
    is_apart: bool
    takeovers_s: list[float]
    pauses_s: list[float]
    counts: dict[str, int]
    findings: Findings
    slow: list[str]


class Storm:
    """The workers, by machine, and the server that they share."""

    def __init__(self, servers: Servers, net: Network, folder: Path, machines: int) -> None:
        self._servers = servers
        self._network = net
        self._folder = folder
        self._workers = [self._started(machine) for machine in range(machines)]
        self._watcher = Watcher(servers.near_address)
        self.takeovers_s: list[float] = []
        self.pauses_s: list[float] = []
        self.slow: list[str] = []

    async def ready(self) -> None:
        """Wait until every worker accepts work."""

        async def are_ready() -> bool:
            return all(each.is_ready() for each in self._workers)

        await until(are_ready)

    async def suffer(self, fault: Fault) -> None:
        """Cause the fault, wait until work continues, and repair the damage."""
        await self._ready_for(fault)
        await asyncio.sleep(fault.pause_s)
        if fault.kind == "restart":
            await asyncio.to_thread(self._servers.restart)
            self.pauses_s.append(await self._watcher.goes_on())
        elif fault.kind == "failover":
            await asyncio.to_thread(self._servers.fail_over)
            self.pauses_s.append(await self._watcher.goes_on())
            await asyncio.to_thread(self._servers.follow)
        else:
            await self._worker_fault(fault)

    async def _ready_for(self, fault: Fault) -> None:
        """Wait until enough workers accept work; before a fault of the server, until all do."""
        if fault.kind in OF_SERVER:
            await self.ready()
            return

        async def are_ready() -> bool:
            others = [w for n, w in enumerate(self._workers) if n != fault.machine and w.is_ready()]
            return len(others) >= SURVIVORS and self._workers[fault.machine].is_ready()

        await until(are_ready)

    async def counts(self) -> dict[str, int]:
        """Return the counters of the cluster."""
        counted = await self._watcher.counts()
        await self._watcher.close()
        return counted

    def end(self) -> None:
        """Kill the workers."""
        for each in self._workers:
            each.kill()

    async def _worker_fault(self, fault: Fault) -> None:
        worker, machine = self._workers[fault.machine], fault.machine
        held = await self._busy(worker.id)
        if fault.kind == "kill":
            worker.send(signal.SIGKILL)
        elif fault.kind == "stop":
            worker.send(signal.SIGSTOP)
        else:
            self._network.part(machine)
        try:
            watching = asyncio.ensure_future(self._watcher.taken_over(held))
            if fault.kind != "kill":
                await asyncio.sleep(fault.hold_s)
            taken_s = await watching
        finally:
            if fault.kind == "stop":
                worker.send(signal.SIGCONT)
            elif fault.kind == "partition":
                self._network.join(machine)
        if fault.kind == "kill":
            worker.end()
            self._workers[machine] = self._started(machine)
        self.takeovers_s += taken_s
        self.slow += [f"{fault.kind} of {machine}: {each:.2f} s" for each in taken_s if each > 2]

    async def _busy(self, worker: str) -> list[Held]:
        """Wait for a limited time until the worker runs a turn; return its sessions."""
        held = await self._watcher.held(worker)
        loop = asyncio.get_running_loop()
        last = loop.time() + BUSY_S
        while not held and loop.time() < last:
            await asyncio.sleep(0.05)
            held = await self._watcher.held(worker)
        return held

    def _started(self, machine: int) -> WorkerProcess:
        return WorkerProcess(
            self._servers.address,
            self._folder,
            "runtime",
            within=self._network.within(machine),
        )


async def storm(
    seed: int,
    count: int,
    machines: int,
    tell: Callable[[int, Fault], None] = lambda number, fault: None,
    logs: Path | None = None,
) -> Outcome:
    """Run `count` faults from `seed` on workers under load; check all goals.

    The logs of the workers are copied to the folder `logs` at the end.
    """
    with (
        tempfile.TemporaryDirectory(prefix="perdure-faults-", ignore_cleanup_errors=True) as name,
        network(machines) as net,
        ExitStack() as made,
    ):
        folder = Path(name)
        if logs is not None:
            made.callback(copy_logs, folder, logs)
        plan = drawn(seed, count, machines, can_part=net.is_apart)
        async with _running(folder, net, machines) as (servers, blown):
            async with load(servers.near_address, seed) as sending:
                for number, fault in enumerate(plan):
                    tell(number, fault)
                    await blown.suffer(fault)
            async with perdure.open(servers.near_address) as store:
                found = await findings(store, sending.sent, folder)
            return Outcome(
                Counter(fault.kind for fault in plan),
                net.is_apart,
                blown.takeovers_s,
                blown.pauses_s,
                await blown.counts(),
                found,
                blown.slow,
            )


@asynccontextmanager
async def _running(
    folder: Path, net: Network, machines: int
) -> AsyncGenerator[tuple[Servers, Storm]]:
    servers = Servers(folder, net)
    try:
        await asyncio.to_thread(servers.start)
        async with perdure.open(servers.near_address):
            pass  # the schema is there before the workers
        blown = Storm(servers, net, folder, machines)
        try:
            await blown.ready()
            yield servers, blown
        finally:
            blown.end()
    finally:
        servers.stop()


def copy_logs(folder: Path, logs: Path) -> None:
    """Copy the logs of the workers and the effects of their tools."""
    logs.mkdir(parents=True, exist_ok=True)
    for file in (*folder.glob("worker-*.log"), folder / "effects"):
        if file.exists():
            shutil.copy(file, logs)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of `values` lie; 0 if there are no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
