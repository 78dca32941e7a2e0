"""Holding a session's lease while a turn runs: taken, renewed in time, given back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from perdure.errors import LeaseHeld, StoreError
from perdure.session.clock import Clock
from perdure.session.ids import StreamId
from perdure.stores.protocol import Lease, SessionStore


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants to lead which session.

    `is_gone` says of the owner of a lease that it is certainly dead; its lease is then taken over
    at once. Units: `ttl_ms` milliseconds, the term of a lease.
    """

    store: SessionStore
    stream: StreamId
    clock: Clock
    owner: str
    ttl_ms: int
    is_gone: Callable[[str], bool] = lambda owner: False


class Leadership:
    """The lease of one session in this process's hands. Made by `leading`."""

    def __init__(self, claim: Claim, lease: Lease) -> None:
        self._claim = claim
        self.lease = lease
        self.is_renewing = False

    async def ensure(self) -> None:
        """Make sure, right before an effect, that the lease lasts long enough to begin it.

        Raises: LeaseLost when somebody took the session over (this process was stopped too long).
        """
        left_ms = self.lease.until - self._claim.clock.now_ms()
        if left_ms < self._claim.ttl_ms / 2:
            await self.renew()

    async def renew(self) -> None:
        """Hold the lease for a whole term from now on.

        Raises: LeaseLost.
        """
        self.is_renewing = True
        try:
            self.lease = await self._claim.store.renew_lease(self.lease, self._claim.ttl_ms)
        finally:
            self.is_renewing = False

    async def keep(self) -> None:
        """Renew again and again, until cancelled or the lease is lost."""
        while True:
            await self._claim.clock.sleep(self._claim.ttl_ms / 3000)
            await self.renew()


@contextlib.asynccontextmanager
async def leading(claim: Claim) -> AsyncGenerator[Leadership]:
    """Lead the session for the duration of the block.

    Raises: LeaseHeld when another process leads it.
    """
    leadership = Leadership(claim, await _acquired(claim))
    keeping = asyncio.create_task(leadership.keep())
    try:
        yield leadership
    finally:
        keeping.cancel()
        # A lease that was lost shows when the turn commits; a store that is gone, anywhere.
        ended = contextlib.suppress(asyncio.CancelledError, StoreError)
        if leadership.is_renewing:  # what is given back must not be renewed after that
            with ended:
                await keeping
        with contextlib.suppress(StoreError):
            await claim.store.release_lease(leadership.lease)
        with ended:
            await keeping


async def _acquired(claim: Claim) -> Lease:
    store = claim.store
    try:
        return await store.acquire_lease(claim.stream, claim.owner, claim.ttl_ms)
    except LeaseHeld as held:
        if not claim.is_gone(held.owner):
            raise
        return await store.acquire_lease(
            claim.stream, claim.owner, claim.ttl_ms, dead_owner=held.owner
        )
