"""The lease of a session during a turn: acquire it, renew it in time, release it.

If the store can change the lease in a commit, the first commit of a turn acquires the lease, and
the last commit releases it. In a store that can change the lease in a commit, only renewals of the
lease are writes of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from perdure.errors import LeaseHeld, StoreError
from perdure.session.clock import Clock
from perdure.session.ids import StreamId
from perdure.stores.access.cancellation import finished
from perdure.stores.access.lease_term import is_running
from perdure.stores.protocol import Commit, CommitResult, Lease, LeaseRequest, StreamState, Write
from perdure.stores.session_store import SessionStore

T = TypeVar("T")

_LED: set[LeaseHolder] = set()
"""The lease holders of this process, in all of its threads."""

_LED_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class Claim:
    """What a process needs to acquire the lease of one session.

    `is_gone` returns whether the owner of a lease is certainly dead; the lease of a dead owner is
    taken over at once. `owner` is a name that only this process uses. An old lease of this process,
    for example after a failed commit, is also taken over at once.
    Units: `ttl_ms` is the term of a lease in milliseconds.
    """

    store: SessionStore
    stream: StreamId
    clock: Clock
    owner: str
    ttl_ms: int
    is_gone: Callable[[str], bool] = lambda owner: False


async def led_elsewhere(claim: Claim) -> LeaseHeld | None:
    """Return an error that names the other process which holds the lease now; None if none does."""
    return led_by_other(claim, await claim.store.state(claim.stream))


def led_by_other(claim: Claim, state: StreamState) -> LeaseHeld | None:
    """Return an error that names the other process with the lease in `state`, if there is one."""
    lease = state.lease
    if lease is None or lease.owner == claim.owner or claim.is_gone(lease.owner):
        return None
    if not is_running(lease.until, claim.clock.now_ms()):
        return None
    return _lease_held(claim, lease.owner, lease.until)


def _lease_held(
    claim: Claim, owner: str, until: int, waiting: LeaseHolder | None = None
) -> LeaseHeld:
    """Return the error for a lease of `owner`; the error says whether this process is the owner.

    `waiting` is the holder that did not get the lease.
    """
    process, own = (name.rpartition(", ")[2] for name in (owner, claim.owner))
    with _LED_LOCK:
        others = [each for each in _LED if each is not waiting and each.leads(claim.stream, owner)]
    is_beside = owner == claim.owner and any(e.is_of(claim.store, claim.stream) for e in others)
    return LeaseHeld(claim.stream, owner, until, is_here=process == own, is_beside=is_beside)


def led_here(claim: Claim) -> LeaseHolder | None:
    """Return the holder in this process that has the claimed lease for the claim's owner, if any.

    The holder can belong to another store that has a session with the same id: see
    `LeaseHolder.can_stop`.
    """
    with _LED_LOCK:
        found = [each for each in _LED if each.leads(claim.stream, claim.owner)]
    return next((each for each in found if each.can_stop(claim)), found[0] if found else None)


def leads_here(store: object, stream: StreamId) -> bool:
    """Whether this process runs a turn of the session `stream` in the open `store`."""
    with _LED_LOCK:
        return any(each.is_of(store, stream) for each in _LED)


class Stopping(Protocol):
    """Receives requests to end a turn."""

    def ask(self, *, is_cancel: bool = False) -> None: ...


class LeaseHolder:
    """The lease of one session, held by this process. Created by `leading`.

    `stopping` receives requests to end the turn that the holder leads.
    """

    def __init__(self, claim: Claim, stopping: Stopping | None = None) -> None:
        self._claim = claim
        self._stopping = stopping
        self._loop = asyncio.get_running_loop()
        self._is_taking = False
        self._lease: Lease | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_renewing = False
        self._is_ending = False

    @property
    def lease(self) -> Lease:
        """Return the lease; it must have been acquired before."""
        assert self._lease is not None
        return self._lease

    async def take(self) -> None:
        """Acquire the lease now, unless this process already has it.

        Raises: LeaseHeld if another process holds the lease.
        """
        if self._lease is not None:
            return
        claim = self._claim

        async def take(dead_owner: str | None) -> None:
            self._hold(
                await claim.store.acquire_lease(
                    claim.stream, claim.owner, claim.ttl_ms, dead_owner=dead_owner
                )
            )

        await self._reporting_dead_holder(take)

    async def commit(self, commit: Commit, *, is_last: bool = False) -> CommitResult:
        """Execute `commit` as the lease holder; its first write is to the session.

        The lease is acquired first if necessary; with `is_last`, this commit releases the lease.
        Raises: LeaseHeld if another process has the lease; the errors of ``SessionStore.commit``.
        """
        is_able = self._claim.store.capabilities.leases_in_commits
        if self._lease is None and not is_able:
            await self.take()
        # A lease is not released while the store is renewing it.
        is_releasing = is_last and is_able and not self._is_renewing
        self._is_ending = is_releasing
        try:
            if self._lease is not None:
                led = _with(commit, lease=self._lease, is_releasing=is_releasing)
                committed = await self._claim.store.commit(led)
            else:
                committed = await self._taking(commit, is_releasing=is_releasing)
        except BaseException:
            self._is_ending = False
            raise
        if is_releasing:
            self._lease = None
        return committed

    async def ensure(self) -> None:
        """Renew the lease before an effect if it would expire soon.

        Raises: LeaseLost if another process has taken over the session, because this process was
        stopped too long.
        """
        left_ms = self.lease.until - self._claim.clock.now_ms()
        if left_ms < self._claim.ttl_ms / 2:
            await self.renew()

    async def renew(self) -> None:
        """Renew the lease for a full term from now on.

        Raises: LeaseLost if another process has taken over the session.
        """
        self._is_renewing = True
        try:
            self._lease = await self._claim.store.renew_lease(self.lease, self._claim.ttl_ms)
        finally:
            self._is_renewing = False

    async def end(self) -> None:
        """Release the lease if this process still has it."""
        # A lost lease shows at the turn's commit; a lost store at any call.
        ended = contextlib.suppress(asyncio.CancelledError, StoreError)
        keeping = self._keeping
        if keeping is not None:
            keeping.cancel()
            if self._is_renewing:  # a released lease must not be renewed
                with ended:
                    await keeping
        if self._lease is not None:
            with contextlib.suppress(StoreError):
                await self._claim.store.release_lease(self._lease)
        if keeping is not None and keeping.done():
            with ended:
                await keeping

    # ------------------------------------------------------------ inside

    async def _taking(self, commit: Commit, *, is_releasing: bool) -> CommitResult:
        claim = self._claim

        async def take(dead_owner: str | None) -> CommitResult:
            taking = LeaseRequest(claim.owner, claim.ttl_ms, dead_owner)
            led = _with(commit, taking=taking, is_releasing=is_releasing)
            committed = await claim.store.commit(led)
            self._hold(committed.leases[0])
            return committed

        return await self._reporting_dead_holder(take)

    async def _reporting_dead_holder(
        self, taken: Callable[[str | None], Coroutine[Any, Any, T]]
    ) -> T:
        """Return the result of `taken`, which acquires the lease if no holder needs it any more.

        `taken` receives the name of the former holder, or None if there was none. The former holder
        is a dead process, or this process if it runs no turn of the session. A cancelled caller
        still waits for the result, because a lease that was acquired must be released.
        """
        self._is_taking = True
        try:
            return await finished(self._from_the_dead(taken))
        finally:
            self._is_taking = False

    async def _from_the_dead(self, taken: Callable[[str | None], Coroutine[Any, Any, T]]) -> T:
        try:
            return await taken(None)
        except LeaseHeld as held:
            if not self._is_left(held.owner):
                raise _lease_held(self._claim, held.owner, held.until, self) from held
            return await taken(held.owner)

    def _is_left(self, owner: str) -> bool:
        """Return whether `owner` no longer needs its lease.

        The result is True if the owner is a dead process, or is this process but runs no turn of
        the session.
        """
        claim = self._claim
        if owner != claim.owner:
            return claim.is_gone(owner)
        with _LED_LOCK:
            others = [each for each in _LED if each is not self]
        return not any(each.leads(claim.stream, owner) for each in others)

    def leads(self, stream: StreamId, owner: str) -> bool:
        """Return whether this holder has the session's lease for `owner`, or might soon get it."""
        is_its = self._claim.stream == stream and self._claim.owner == owner
        return is_its and (self._lease is not None or self._is_taking)

    def is_of(self, store: object, stream: StreamId) -> bool:
        """Return whether this holder leads, or will soon lead, the session in the open `store`."""
        return self._claim.stream == stream and self._claim.store is store

    def can_stop(self, claim: Claim) -> bool:
        """Return whether this holder leads a turn of `claim`'s session in the same open store."""
        return self.is_of(claim.store, claim.stream) and self._stopping is not None

    def stop(self, *, is_cancel: bool = False) -> None:
        """Request the end of the holder's turn; any thread can call this."""
        if self._stopping is not None:
            ask = partial(self._stopping.ask, is_cancel=is_cancel)
            self._loop.call_soon_threadsafe(ask)

    def _hold(self, lease: Lease) -> None:
        self._lease = lease
        self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        """Renew the lease again and again, until the call is cancelled or the lease is lost."""
        while True:
            await self._claim.clock.sleep(self._claim.ttl_ms / 3000)
            if not self._is_ending:
                await self.renew()


@contextlib.asynccontextmanager
async def leading(
    claim: Claim, *, is_begun: bool = True, stopping: Stopping | None = None
) -> AsyncGenerator[LeaseHolder]:
    """Acquire the session's lease at the start of the block and release it at the end.

    If `is_begun` is False, the lease is acquired by the block's first commit, not at the start of
    the block.

    `stopping` receives requests from other chats in this process to end the turn.
    Raises: LeaseHeld if another process holds the lease.
    """
    leadership = LeaseHolder(claim, stopping)
    with _LED_LOCK:
        _LED.add(leadership)
    try:
        if is_begun:
            await leadership.take()
        yield leadership
    finally:
        try:
            await leadership.end()
        finally:
            with _LED_LOCK:
                _LED.discard(leadership)


def _with(commit: Commit, **what: Lease | LeaseRequest | bool) -> Commit:
    own, *others = commit.writes
    led: Write = msgspec.structs.replace(own, **what)
    return msgspec.structs.replace(commit, writes=(led, *others))
