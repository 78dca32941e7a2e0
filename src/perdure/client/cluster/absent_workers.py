"""A warning for turns that wait because no worker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from perdure.errors import StoreError
from perdure.stores.cluster.limits import LimitService

NOTICE_S = 5.0
"""How long a turn waits before perdure checks whether a worker runs."""

_log = logging.getLogger(__name__)


class AbsentWorkers:
    """Logs one warning if turns of a runtime wait and no worker runs.

    Each waiting turn checks once whether a worker runs. After the warning, waiting turns stop
    checking for workers until another turn has begun.
    """

    def __init__(self) -> None:
        self._has_warned = False

    @asynccontextmanager
    async def noticed(
        self, limits: LimitService, begun: asyncio.Future[int]
    ) -> AsyncGenerator[None]:
        """Inside the ``with`` block, check for workers if the turn does not begin in time."""
        check = asyncio.ensure_future(self._check(limits, begun))
        try:
            yield
        finally:
            check.cancel()

    async def _check(self, limits: LimitService, begun: asyncio.Future[int]) -> None:
        await asyncio.wait((begun,), timeout=NOTICE_S)
        if begun.done():
            self._has_warned = False
        elif not self._has_warned:
            with suppress(StoreError):  # the turn itself reports a store that cannot be reached
                if not await limits.has_worker():
                    self._warn()

    def _warn(self) -> None:
        if not self._has_warned:  # another turn has perhaps just warned
            self._has_warned = True
            _log.warning(
                "turns wait because no worker runs: start a worker for this store and namespace, "
                'as in docs/guides/cluster.md (runner="embedded" runs turns in this process)'
            )
