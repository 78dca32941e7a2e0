"""Checks whether a server accepts requests: its store is writable, and it is not being stopped."""

from __future__ import annotations

import asyncio

from perdure.client.store import Store
from perdure.errors import PerdureError

CHECK_S = 1.0
"""How long a result is reused: anyone can call the route, and calls must not burden the store."""

TIMEOUT_S = 5.0


class Readiness:
    """Tests whether a store accepts writes, without changing the store.

    `is_draining` is True if the server will be stopped soon. `is_stopping` is True if the server
    accepts no more requests.
    """

    def __init__(self, store: Store) -> None:
        self.is_draining = False
        self.is_stopping = False
        self._store = store
        self._checking = asyncio.Lock()
        self._known: tuple[float, str | None] | None = None

    async def problem(self) -> str | None:
        """Return the reason why the server accepts no requests; None if it accepts them."""
        if self.is_draining:
            return "draining"
        async with self._checking:
            now = asyncio.get_running_loop().time()
            if self._known is None or now - self._known[0] >= CHECK_S:
                self._known = now, await self._check()
            return self._known[1]

    async def _check(self) -> str | None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._store.backend.maintenance.check_writable()
        except TimeoutError:
            return "store_timeout"
        except PerdureError as error:
            return error.code
        return None
