"""Close turns that no process runs any more, including the turns of invoked agents."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from perdure.client.processes import is_gone, this_process
from perdure.engine.turns.environment import LEASE_TTL_MS
from perdure.engine.turns.lease import Claim
from perdure.errors import LeaseHeld
from perdure.session.clock import Clock
from perdure.session.ids import StreamId
from perdure.stores.access.lazy_modules import Later
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.client.conversation import lineage
    from perdure.engine.turns import recovery
else:
    lineage = Later("perdure.client.conversation.lineage")
    recovery = Later("perdure.engine.turns.recovery")


async def abandon_turn(store: SessionStore, clock: Clock, session: StreamId) -> bool:
    """Abort the open turn of `session` and the open turns of the agents that it invoked.

    Shape: the result is True if a turn was open in `session`.
    Raises: LeaseHeld if a live process runs the turn, or if the lease is valid and it is unknown
    whether its process is alive.
    """
    closed = None
    if (await store.state(session)).open_turn is not None:
        closed = await recovery.give_up(claim_of(store, clock, session))
    await abandon_invoked(store, clock, session)
    return closed is not None


async def abandon_invoked(store: SessionStore, clock: Clock, session: StreamId) -> None:
    """Close the open turns of the agents that `session` invoked, at any depth.

    A turn that another process runs stays open.
    """
    for child in await lineage.children_of(store, session):
        with suppress(LeaseHeld):
            await abandon_turn(store, clock, child.info.id)


async def expire_question(store: SessionStore, clock: Clock, session: StreamId) -> bool:
    """Close the open turn of `session` if its question has expired; return True if closed."""
    return await recovery.expire(claim_of(store, clock, session)) is not None


def claim_of(store: SessionStore, clock: Clock, session: StreamId) -> Claim:
    """Return the claim that this process uses to take the lease of `session`."""
    return Claim(store, session, clock, this_process(), LEASE_TTL_MS, is_gone)
