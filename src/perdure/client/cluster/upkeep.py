"""Maintenance of one namespace by workers: retention, the search index, vectors of texts.

The store assigns each task to one worker at a time, and assigns it again only after a while. If the
worker of a task dies, another worker continues the task, because each task commits its work in
small steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from perdure.client.agents.runtime import Runtime
from perdure.client.cluster.runner import cluster_of
from perdure.client.memory.embedding import embed_all, resolved
from perdure.client.retention import apply_retention
from perdure.errors import PerdureError, Unsupported
from perdure.models.embedders.protocol import Embedder, EmbedderName
from perdure.secrets.mask import log_failure
from perdure.stores.access.cancellation import cancel_all
from perdure.stores.search.vectors import VectorModel

RETENTION_S = 600.0
INDEX_S = 30.0
VECTORS_S = 60.0

_log = logging.getLogger(__name__)


class Upkeep:
    """Runs the maintenance tasks of one namespace in one worker."""

    def __init__(self, runtime: Runtime, worker: str) -> None:
        self._store = runtime.host.store
        self._agents = runtime.host.agents
        self._cluster = cluster_of(self._store.backend)
        self._worker = worker
        self._tasks: dict[str, tuple[float, Callable[[], Awaitable[None]]]] = {
            "retention": (RETENTION_S, self._apply_retention),
            "index": (INDEX_S, self._store.index),
        }
        if self._embedders():
            self._tasks["vectors"] = (VECTORS_S, self._embed)
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Start the tasks that are due, unless another worker runs them. Raises: StoreError."""
        every_s = {
            name: after_s for name, (after_s, _) in self._tasks.items() if name not in self._running
        }
        for name in await self._cluster.take_upkeep(self._worker, every_s):
            self._running[name] = task = asyncio.create_task(self._done(name))
            task.add_done_callback(lambda _, name=name: self._running.pop(name))

    async def aclose(self) -> None:
        """Stop immediately; another worker continues."""
        await cancel_all(self._running.values())

    async def _done(self, name: str) -> None:
        try:
            await self._tasks[name][1]()
        except Unsupported as error:
            _log.info("upkeep of %s: %s", name, error)
        except Exception as error:  # noqa: BLE001 - it is due again, whatever failed
            log_failure(_log, error, f"upkeep failed: {name}; it is tried again later")
        try:
            await self._cluster.end_upkeep(self._worker, name)
        except PerdureError as error:  # it belongs to this worker until that ends
            log_failure(_log, error, f"the end of the upkeep could not be stored: {name}")

    async def _apply_retention(self) -> None:
        planned = await apply_retention(self._store, is_dry_run=True)
        if planned.plan.expiring:
            report = await apply_retention(self._store)
            _log.info("retention removed %s sessions", report.sessions)

    def _embedders(self) -> list[Embedder | EmbedderName]:
        named = [each.memory.embedder for each in self._agents.values() if each.memory is not None]
        return [each for each in named if each is not None]

    async def _embed(self) -> None:
        for named in self._embedders():
            embedder = await resolved(named)
            if await self._has_unembedded(embedder.model):
                await embed_all(self._store.backend, embedder, is_only=False)

    async def _has_unembedded(self, model: str) -> bool:
        """Whether a text lacks a vector of `model`; the embedder is called only in this case."""
        search = self._store.backend.search
        stored = [each for each in await search.vector_models() if each.name == model]
        asked = stored or [VectorModel(model, 1)]  # of no vector yet: its size does not matter
        return any([(await search.unembedded(each)).texts for each in asked])
