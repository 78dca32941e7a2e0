"""A worker: runs queued turns of its namespaces, and continues turns of workers that died."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any
from weakref import WeakValueDictionary

from perdure.client.agents.runtime import Runtime
from perdure.client.cluster.flow_work import requested_flows, with_folders
from perdure.client.cluster.limits import Slots
from perdure.client.cluster.performer import Performer, end_tasks
from perdure.client.cluster.recovery import Recovery
from perdure.client.cluster.requirements import FLOW_QUEUE, is_served, own_queues
from perdure.client.cluster.runner import cluster_of
from perdure.client.cluster.scheduler import Scheduler
from perdure.client.cluster.status import cluster_status
from perdure.client.cluster.upkeep import Upkeep
from perdure.client.processes import is_gone
from perdure.engine.telemetry.activation import chosen_cluster_report
from perdure.errors import ConfigError, StoreUnavailable, TurnSuspended
from perdure.errors.advice import install_of
from perdure.session.ids import StreamId
from perdure.stores.cluster.protocol import Liveness, Work, WorkerFacts

SLOTS = 32
"""Maximum number of turns that a worker runs at a time, per kind of agent and namespace."""

QUEUES_S = 0.5
"""How often a worker looks for queues of other agents that it can serve."""

SWEEP_S = 5.0
"""How often a worker compares the log with the queue."""

IDLE_S = 30.0
"""How often a worker looks for idle sessions, expired questions and facts that are due."""

_QUEUE = "perdure.client.cluster.dbos_queue"

_log = logging.getLogger(__name__)


class Worker:
    """Runs the queued turns of `runtimes` (one per namespace) here; a process can have one worker.

    Raises: ConfigError if the store is not shared, if there is no runtime, or without the extra
    "cluster".
    """

    def __init__(self, runtimes: Mapping[str, Runtime], *, slots: int = SLOTS) -> None:
        if not runtimes:
            raise ConfigError("a worker needs the runtime of at least one namespace")
        self._runtimes = dict(runtimes)
        first = next(iter(self._runtimes.values()))
        self._cluster = cluster_of(first.host.store.backend)
        self._report = chosen_cluster_report()
        self.id = first.host.store.outside.random(8).hex()
        self._turn_slots = Slots(self._cluster.limits, self.id)
        self._performers = {
            name: Performer(each, self._turn_slots, self._report)
            for name, each in self._runtimes.items()
        }
        self._recoveries = [Recovery(each.host) for each in self._runtimes.values()]
        self._upkeeps = [Upkeep(each, self.id) for each in self._runtimes.values()]
        self._schedulers = [Scheduler(each) for each in self._runtimes.values()]
        self._slots = slots
        self._running: Counter[Work] = Counter()
        self._is_idle = asyncio.Event()
        self._handed_over = asyncio.Event()
        self._sessions: WeakValueDictionary[tuple[str, StreamId], asyncio.Lock]
        self._sessions = WeakValueDictionary()
        self._facts = WorkerFacts(
            id=self.id,
            owner=first.host.owner,
            version=version("perdure"),
            namespaces=tuple(self._runtimes),
            agents=tuple(
                sorted({id for each in self._runtimes.values() for id in each.host.agents})
            ),
            slots=slots,
        )
        self._module = _queue_module()

    @asynccontextmanager
    async def taking(self, drain_s: float) -> AsyncGenerator[str]:
        """Take work inside the ``with`` block, and finish the running work at the end of the block.

        The block gets the id of the worker.

        Turns that still run `drain_s` after the exit stay open, and other workers continue them.
        Raises: StoreUnavailable on entry if the server becomes unavailable or rejects the worker.
        If the cause of the StoreUnavailable is temporary, the caller can enter the block again.
        """
        queue, liveness = await self._started()
        keeping = [
            asyncio.ensure_future(self._keep(queue, liveness)),
            asyncio.ensure_future(self._end_idle()),
            *(asyncio.ensure_future(each.keep_planned(SWEEP_S)) for each in self._schedulers),
        ]
        asking = asyncio.ensure_future(self._turn_slots.keep())
        try:
            yield self.id
        finally:
            await end_tasks(*keeping)
            for upkeep in self._upkeeps:
                await upkeep.aclose()
            await self._drain(queue, liveness, drain_s)
            await end_tasks(asking)

    async def _started(self) -> tuple[Any, Liveness]:
        """Start the queue and the heartbeats of the worker, and return both."""
        cluster = self._cluster
        for runtime in self._runtimes.values():
            await cluster_of(runtime.host.store.backend).limit_stalls()
        queue = self._module.DbosQueue(
            cluster.conninfo, self.id, self._perform, self._slots, direct=cluster.direct
        )
        liveness = cluster.liveness(self._facts)
        liveness.running = lambda: len(self._running)
        try:
            await asyncio.to_thread(queue.launch)
            await asyncio.to_thread(liveness.start)
        except self._module.SERVER_ERRORS as error:
            await asyncio.to_thread(queue.close)
            store = next(iter(self._runtimes.values())).host.store.backend
            cause = self._module.cause_of(error)
            raise StoreUnavailable(
                store.address,
                str(cause).partition("\n")[0] or type(cause).__name__,
                is_lasting=not cluster.may_pass(cause),
            ) from error
        for runtime in self._runtimes.values():
            runtime.host.owner = self._facts.owner
            runtime.host.is_gone = lambda owner: is_gone(owner) or owner in liveness.dead_owners
        return queue, liveness

    async def _perform(self, work: Work) -> str:
        self._running[work] += 1
        self._is_idle.clear()
        try:
            try:
                async with self._session(work):
                    return await self._performers[work.namespace].perform(work)
            finally:
                self._running -= Counter((work,))
                if not self._running:
                    self._is_idle.set()
        except TurnSuspended:
            await self._handed_over.wait()
            raise

    def _session(self, work: Work) -> asyncio.Lock:
        """Return the lock that prevents two runs in the session of `work` at the same time.

        Work is assigned a second time if other workers declare this worker dead although it is
        alive. If work is assigned twice, the first run completes the turn, and the second run finds
        it completed.
        """
        return self._sessions.setdefault((work.namespace, work.stream), asyncio.Lock())

    async def _drain(self, queue: Any, liveness: Liveness, drain_s: float) -> None:
        liveness.is_draining = True
        await asyncio.to_thread(queue.stop_taking)
        self._turn_slots.stop()
        if self._running:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_idle.wait(), drain_s)
        for performer in self._performers.values():
            await performer.parked.aclose()
            await performer.flows.suspend()
        for runtime in self._runtimes.values():
            await runtime.suspend()
        await self._hand_over()
        self._handed_over.set()
        await asyncio.to_thread(queue.close)
        await asyncio.to_thread(liveness.stop)

    async def _hand_over(self) -> None:
        """Queue again the work that has begun here; wait while the store cannot be reached."""
        while True:
            try:
                await self._cluster.requeue(self.id, await self._cluster.begun(self.id))
            except StoreUnavailable as error:
                _log.warning("begun work could not be queued again: %s", error)
                await asyncio.sleep(QUEUES_S)
            else:
                return

    # ------------------------------------------------------------ upkeep

    async def _keep(self, queue: Any, liveness: Liveness) -> None:
        """Repeatedly serve new queues, and queue work that is only in the log."""
        loop = asyncio.get_running_loop()
        swept_at = -SWEEP_S
        listened: set[str] = set()
        missing: set[Work] = set()
        while True:
            try:
                missing = await self._claims_without_run(missing)
                queue.flows = flows = await self._flows_here()
                wanted = await self._servable(flows)
                if wanted != listened:
                    await asyncio.to_thread(queue.listen, wanted)
                    listened = wanted
                    liveness.queues = frozenset(wanted)
                if loop.time() - swept_at >= SWEEP_S:
                    swept_at = loop.time()
                    for recovery in self._recoveries:
                        await recovery.run()
                    for performer in self._performers.values():
                        await performer.flows.queue_lost()
                    for upkeep in self._upkeeps:
                        await upkeep.run()
                    await asyncio.to_thread(queue.forget_done)
                    await self._measure()
            except Exception:  # noqa: BLE001 - the next pass is due whatever failed in this one
                _log.warning("queued turns could not be looked for", exc_info=True)
            await asyncio.sleep(QUEUES_S)

    async def _measure(self) -> None:
        """Report the state of the cluster to OpenTelemetry if the program uses OpenTelemetry."""
        if self._report is not None:
            for namespace, runtime in self._runtimes.items():
                store = runtime.host.store
                status = await cluster_status(store.backend, store.outside.clock)
                self._report.update(namespace, status)

    async def _claims_without_run(self, before: set[Work]) -> set[Work]:
        """Return the work that is claimed for this worker and does not run here.

        `before` is the result of the previous call. If `before` already contained work that does
        not run, the reply to its claim was lost, so the work is queued again and not returned.
        """
        begun = await self._cluster.begun(self.id)
        missing = {work for work in begun if work not in self._running}
        if lost := missing & before:
            _log.warning("claims were lost, so the work is queued again: %s", len(lost))
            await self._cluster.requeue(self.id, list(lost))
        return missing - lost

    async def _end_idle(self) -> None:
        """End idle sessions, expire questions, and extract facts that are due.

        Every worker runs this task. If several workers end a session at the same time, only the
        first commit succeeds. The worker that has the lease of the memory stream extracts the
        facts.
        """
        while True:
            for runtime in self._runtimes.values():
                try:
                    await runtime.end_idle()
                except Exception:  # noqa: BLE001 - the next pass is due whatever failed in this one
                    _log.warning("idle sessions could not be ended", exc_info=True)
            await asyncio.sleep(IDLE_S)

    async def _flows_here(self) -> dict[str, list[StreamId]]:
        """Return the requested flows whose folders are on this machine, by queue."""
        found: dict[str, list[StreamId]] = {}
        for runtime in self._runtimes.values():
            requested = await requested_flows(runtime.host.store.backend)
            for queue, requests in requested.items():
                found[queue] = await asyncio.to_thread(with_folders, requests)
        return found

    async def _servable(self, flows: Mapping[str, list[StreamId]]) -> set[str]:
        """Return the queues that this worker can serve; of flow queues, only those in `flows`."""
        found: set[str] = set()
        for namespace, runtime in self._runtimes.items():
            agents = runtime.host.agents
            found |= own_queues(namespace, agents.values()).keys()
            required = await cluster_of(runtime.host.store.backend).requirements()
            for queue, content in required.items():
                is_here = not queue.startswith(FLOW_QUEUE) or bool(flows.get(queue))
                if is_here and is_served(content, agents):
                    found.add(queue)
        return found


def _queue_module() -> Any:
    """Return the module that implements the queues.

    Raises: ConfigError without the extra "cluster".
    """
    try:
        return importlib.import_module(_QUEUE)
    except ModuleNotFoundError as error:
        if error.name not in ("dbos", "sqlalchemy"):
            raise
        raise ConfigError(f'a worker needs the extra "cluster": {install_of("cluster")}') from error
