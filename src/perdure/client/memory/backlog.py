"""Compute the missing vectors of texts in the background, while turns run."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from perdure.errors import PerdureError, StoreFull, StoreReadOnly
from perdure.models.embedders.protocol import Embedder
from perdure.secrets.mask import log_failure
from perdure.stores.access.cancellation import cancel_all
from perdure.stores.access.lazy_modules import Later
from perdure.stores.search.vectors import VectorModel
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.client.memory import embedding
else:
    embedding = Later("perdure.client.memory.embedding")

_log = logging.getLogger(__name__)


class Backlog:
    """Computes the vectors of texts in the background, for the agents of a runtime."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._tasks: dict[VectorModel, asyncio.Task[None]] = {}

    def wake(self, embedder: Embedder, dimension: int) -> None:
        """Compute the missing vectors of all texts, unless this computation is already running."""
        model = VectorModel(embedder.model, dimension)
        task = self._tasks.get(model)
        if task is None or task.done():
            self._tasks[model] = asyncio.create_task(self._follow(embedder, model))

    async def settle(self) -> None:
        """Wait until all texts have vectors."""
        while waiting := [task for task in self._tasks.values() if not task.done()]:
            await asyncio.wait(waiting)

    async def stop(self) -> None:
        """Stop immediately; the next recall continues the computation."""
        await cancel_all(self._tasks.values())

    async def _follow(self, embedder: Embedder, model: VectorModel) -> None:
        try:
            await embedding.TextVectors(self._store, embedder).follow(model)
        except (StoreReadOnly, StoreFull):
            pass
        except PerdureError as error:
            log_failure(_log, error, "not all texts got their vectors; the next recall continues")
