"""Close turns that no process runs any more, also those of invoked agents."""

from __future__ import annotations

from contextlib import suppress

from perdure.client.conversation.lineage import children_of
from perdure.client.processes import is_gone, this_process
from perdure.engine.turns.environment import LEASE_TTL_MS
from perdure.engine.turns.lease import Claim
from perdure.engine.turns.recovery import expire, give_up
from perdure.errors import LeaseHeld
from perdure.session.clock import Clock
from perdure.session.ids import StreamId
from perdure.stores.session_store import SessionStore


async def abandon_turn(store: SessionStore, clock: Clock, session: StreamId) -> bool:
    """Close the open turn of `session` as aborted, and those of the agents it invoked.

    Shape: whether a turn was open in `session`.
    Raises: LeaseHeld if a live process runs the turn, or if that is unknown and its lease is valid.
    """
    closed = None
    if (await store.state(session)).open_turn is not None:
        closed = await give_up(claim_of(store, clock, session))
    await abandon_invoked(store, clock, session)
    return closed is not None


async def abandon_invoked(store: SessionStore, clock: Clock, session: StreamId) -> None:
    """Close the open turns of the agents that `session` invoked, at any depth.

    A turn that another process runs stays open.
    """
    for child in await children_of(store, session):
        with suppress(LeaseHeld):
            await abandon_turn(store, clock, child.info.id)


async def expire_question(store: SessionStore, clock: Clock, session: StreamId) -> bool:
    """Close the open turn of `session` if its question has expired; whether it was closed."""
    return await expire(claim_of(store, clock, session)) is not None


def claim_of(store: SessionStore, clock: Clock, session: StreamId) -> Claim:
    """Return what this process takes the lease of `session` with."""
    return Claim(store, session, clock, this_process(), LEASE_TTL_MS, is_gone)
