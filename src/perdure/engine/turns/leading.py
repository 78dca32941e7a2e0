"""Holding a session's lease while a turn runs: taken, renewed in time, given back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from perdure.engine.turns.environment import Environment
from perdure.errors import StoreError
from perdure.stores.protocol import Lease


class Leadership:
    """The lease of one session in this process's hands. Made by `leading`."""

    def __init__(self, environment: Environment, lease: Lease) -> None:
        self._environment = environment
        self.lease = lease

    async def ensure(self) -> None:
        """Make sure, right before an effect, that the lease lasts long enough to begin it.

        Raises: LeaseLost when somebody took the session over (this process was stopped too long).
        """
        left_ms = self.lease.until - self._environment.clock.now_ms()
        if left_ms < self._environment.lease_ttl_ms / 2:
            await self.renew()

    async def renew(self) -> None:
        """Hold the lease for a whole term from now on.

        Raises: LeaseLost.
        """
        environment = self._environment
        self.lease = await environment.store.renew_lease(self.lease, environment.lease_ttl_ms)

    async def keep(self) -> None:
        """Renew again and again, until cancelled or the lease is lost."""
        while True:
            await self._environment.clock.sleep(self._environment.lease_ttl_ms / 3000)
            await self.renew()


@contextlib.asynccontextmanager
async def leading(environment: Environment) -> AsyncGenerator[Leadership]:
    """Lead the session for the duration of the block.

    Raises: LeaseHeld when another process leads it.
    """
    store = environment.store
    lease = await store.acquire_lease(
        environment.stream, environment.owner, environment.lease_ttl_ms
    )
    leadership = Leadership(environment, lease)
    keeping = asyncio.create_task(leadership.keep())
    try:
        yield leadership
    finally:
        keeping.cancel()
        # A lease that was lost shows when the turn commits; a store that is gone, anywhere.
        with contextlib.suppress(asyncio.CancelledError, StoreError):
            await keeping
        with contextlib.suppress(StoreError):
            await store.release_lease(leadership.lease)
