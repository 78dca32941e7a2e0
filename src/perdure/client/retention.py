"""Retention and quotas of a store's namespace: looked at, set, and carried out."""

from __future__ import annotations

from perdure.client.conversation.scratch import delete_scratch
from perdure.client.store import Store
from perdure.errors import SessionNotFound
from perdure.session.ids import StreamId
from perdure.stores.retention.policy import KEY_WINDOW_MS, Retention, RetentionReport, expiring
from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.session_store import RetentionService


async def retention(store: Store) -> Retention:
    """How long the namespace keeps its sessions. Raises: Unsupported."""
    return await store.backend.retention.policy()


async def set_retention(store: Store, policy: Retention) -> None:
    """`policy` is that of the namespace from now on; `apply_retention` carries it out.

    Raises: Unsupported.
    """
    await store.backend.retention.set_policy(policy)


async def apply_retention(
    store: Store, policy: Retention | None = None, *, is_dry_run: bool = False
) -> RetentionReport:
    """Remove the sessions that `policy` (default: the namespace's own) lets go of, one by one.

    Others write meanwhile; a session that was gone on with stays. Idempotency keys older than 30
    days are forgotten, and free space is given back. A dry run only says what would go.
    Durable: each session goes whole or stays, also when this is killed.
    Raises: Unsupported.
    """
    service = store.backend.retention
    own = await service.policy() if policy is None else policy
    now = store.outside.clock.now_ms()
    is_due = not own.is_empty and await service.is_due(own)
    plan = expiring(await service.holdings() if is_due else (), own, now)
    if is_dry_run:
        return RetentionReport(plan=plan)
    gone = [each for each in plan.expiring if await _is_removed(service, each.stream)]
    await delete_scratch(store.backend, [each.stream for each in gone])
    return RetentionReport(
        plan=plan,
        sessions=len(gone),
        entries=sum(each.entries for each in gone),
        bytes=sum(each.bytes for each in gone),
        keys=await service.forget_keys(now - KEY_WINDOW_MS),
        freed_bytes=await service.give_back(),
    )


async def _is_removed(service: RetentionService, stream: StreamId) -> bool:
    """Whether `stream` was removed now; not where something holds it, or somebody was faster."""
    try:
        return await service.remove(stream)
    except SessionNotFound:
        return False


async def quota(store: Store) -> tuple[Quota, Usage]:
    """What the namespace may hold, and what it holds. Raises: Unsupported."""
    return await store.backend.retention.quota()


async def set_quota(store: Store, quota: Quota) -> None:
    """`quota` is the namespace's from now on: a commit that goes over it raises QuotaExceeded.

    Raises: Unsupported.
    """
    await store.backend.retention.set_quota(quota)
