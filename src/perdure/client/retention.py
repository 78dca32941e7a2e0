"""Read, set and apply the retention policy and quota of a namespace."""

from __future__ import annotations

from perdure.client.conversation.scratch import delete_scratch
from perdure.client.erase import erase_session
from perdure.client.store import Store
from perdure.errors import HeadConflict, SessionHasForks, SessionNotFound
from perdure.session.codec import readable
from perdure.session.ids import StreamId, entry_place
from perdure.session.memory.kinds import FACT_TEXTS, FactCorrected, FactRemembered
from perdure.stores.retention.policy import (
    KEY_WINDOW_MS,
    ExpiringSession,
    Retention,
    RetentionReport,
    expiring,
)
from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.session_store import RetentionService, SessionStore


async def retention(store: Store) -> Retention:
    """Return the retention policy of the namespace. Raises: Unsupported."""
    return await store.backend.retention.policy()


async def set_retention(store: Store, policy: Retention) -> None:
    """Set the retention policy of the namespace; `apply_retention` and workers apply it.

    Raises: Unsupported.
    """
    await store.backend.retention.set_policy(policy)


async def apply_retention(
    store: Store, policy: Retention | None = None, *, is_dry_run: bool = False
) -> RetentionReport:
    """Remove, one by one, the sessions that `policy` (default: the namespace's policy) selects.

    Other processes can write during the call; a session that gets new entries is not removed. The
    call also removes idempotency keys older than 30 days, and frees space. A dry run only lists the
    sessions.
    Durable: each session is removed completely or not at all, even if the process is killed.
    Raises: Unsupported.
    """
    service = store.backend.retention
    own = await service.policy() if policy is None else policy
    now = store.outside.clock.now_ms()
    is_due = not own.is_empty and await service.is_due(own)
    plan = expiring(await service.holdings() if is_due else (), own, now)
    if is_dry_run:
        return RetentionReport(plan=plan)
    sources = await _sources(store.backend) if plan.expiring else set[StreamId]()
    gone = [
        each
        for each in plan.expiring
        if (each.stream not in sources or await _is_erased(store, each))
        and await _is_removed(service, each, is_erased=each.stream in sources)
    ]
    await delete_scratch(store.backend, [each.stream for each in gone])
    return RetentionReport(
        plan=plan,
        sessions=len(gone),
        entries=sum(each.entries for each in gone),
        bytes=sum(each.bytes for each in gone),
        keys=await service.forget_keys(now - KEY_WINDOW_MS),
        freed_bytes=await service.give_back(),
    )


async def _is_removed(
    service: RetentionService, planned: ExpiringSession, *, is_erased: bool
) -> bool:
    """Remove the session; return False if it does not exist or cannot be removed now."""
    head = None if is_erased else planned.entries - 1
    try:
        return await service.remove(planned.stream, is_erased=is_erased, expected_head=head)
    except SessionNotFound:
        return False


async def _sources(store: SessionStore) -> set[StreamId]:
    """Return the sessions from which facts were taken."""
    found: set[StreamId] = set()
    for note in await store.notes_of_all(FACT_TEXTS):
        body = readable(note)
        if isinstance(body, FactRemembered | FactCorrected):
            found |= {entry_place(source)[0] for source in body.sources}
    return found


async def _is_erased(store: Store, planned: ExpiringSession) -> bool:
    """Erase the session and the facts from it; return False if it cannot be erased now."""
    backend, stream, head = store.backend, planned.stream, planned.entries - 1
    try:
        if await backend.retention.holder(stream) is not None:
            return False
        await erase_session(
            backend, store.outside, stream, forks="refuse", by="retention", expected_head=head
        )
    except (SessionNotFound, SessionHasForks, HeadConflict):
        return False
    return True


async def quota(store: Store) -> tuple[Quota, Usage]:
    """Return the quota of the namespace and its usage. Raises: Unsupported."""
    return await store.backend.retention.quota()


async def set_quota(store: Store, quota: Quota) -> None:
    """Set the quota of the namespace; a commit that would exceed the quota raises QuotaExceeded.

    Raises: Unsupported.
    """
    await store.backend.retention.set_quota(quota)
