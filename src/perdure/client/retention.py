"""Retention and quotas of a store's namespace: looked at, set, and carried out."""

from __future__ import annotations

from perdure.client.conversation.scratch import delete_scratch
from perdure.client.store import Store
from perdure.errors import SessionNotFound, Unsupported
from perdure.session.ids import StreamId
from perdure.stores.retention.policy import (
    KEY_WINDOW_MS,
    Retention,
    RetentionReport,
    RetentionService,
    expiring,
)
from perdure.stores.retention.quotas import Quota, QuotaService, Usage


async def retention(store: Store) -> Retention:
    """How long the namespace keeps its sessions. Raises: Unsupported."""
    return await _retaining(store).retention()


async def set_retention(store: Store, policy: Retention) -> None:
    """`policy` is that of the namespace from now on; `apply_retention` carries it out.

    Raises: Unsupported.
    """
    await _retaining(store).set_retention(policy)


async def apply_retention(
    store: Store, policy: Retention | None = None, *, is_dry_run: bool = False
) -> RetentionReport:
    """Remove the sessions that `policy` (default: the namespace's own) lets go of, one by one.

    Others write meanwhile; a session that was gone on with stays. Idempotency keys older than 30
    days are forgotten, and free space is given back. A dry run only says what would go.
    Durable: each session goes whole or stays, also when this is killed.
    Raises: Unsupported.
    """
    backend = _retaining(store)
    own = await backend.retention() if policy is None else policy
    now = store.outside.clock.now_ms()
    is_due = not own.is_empty and await backend.is_due(own)
    plan = expiring(await backend.holdings() if is_due else (), own, now)
    if is_dry_run:
        return RetentionReport(plan=plan)
    gone = [each for each in plan.expiring if await _is_removed(backend, each.stream)]
    await delete_scratch(store.backend, [each.stream for each in gone])
    return RetentionReport(
        plan=plan,
        sessions=len(gone),
        entries=sum(each.entries for each in gone),
        bytes=sum(each.bytes for each in gone),
        keys=await backend.forget_keys(now - KEY_WINDOW_MS),
        freed_bytes=await backend.give_back(),
    )


async def _is_removed(backend: RetentionService, stream: StreamId) -> bool:
    """Whether `stream` was removed now; not where something holds it, or somebody was faster."""
    try:
        return await backend.remove(stream)
    except SessionNotFound:
        return False


async def quota(store: Store) -> tuple[Quota, Usage]:
    """What the namespace may hold, and what it holds. Raises: Unsupported."""
    return await _limiting(store).quota()


async def set_quota(store: Store, quota: Quota) -> None:
    """`quota` is the namespace's from now on: a commit that goes over it raises QuotaExceeded.

    Raises: Unsupported.
    """
    await _limiting(store).set_quota(quota)


def _retaining(store: Store) -> RetentionService:
    if not isinstance(store.backend, RetentionService):
        raise Unsupported("retention", store.backend.address.partition(":")[0])
    return store.backend


def _limiting(store: Store) -> QuotaService:
    if not isinstance(store.backend, QuotaService):
        raise Unsupported("quotas", store.backend.address.partition(":")[0])
    return store.backend
