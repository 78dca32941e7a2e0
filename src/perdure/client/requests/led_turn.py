"""Continue the open turn of a session, or follow the turn while it runs somewhere else."""

from __future__ import annotations

import asyncio
import contextlib

from perdure.client.requests.followed_turn import FollowedTurn
from perdure.engine.turns.lease import Claim, led_elsewhere, led_here
from perdure.engine.turns.session_turns import SessionTurns, Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import InvalidTransition, LeaseHeld

LOOK_S = 0.5
"""Pause between two checks whether a followed turn still runs."""


async def continue_or_follow(turns: SessionTurns, signals: Signals, turn: int) -> TurnState:
    """Return the state of the turn that began at seq `turn`, after the turn has ended.

    This process runs the turn, or follows the turn if something else already runs it. While this
    process follows the turn, `signals` names the other process, or the task in this process, that
    runs the turn. If the process that runs the turn dies or suspends the turn, this process
    continues it.
    """
    environment = turns.environment
    followed = FollowedTurn(environment, signals, turn=turn, is_told=False)
    while True:
        try:
            return await turns.lost_turn(signals, turn)
        except InvalidTransition:  # it has ended, and perhaps another one has begun since
            return await followed.ended()
        except LeaseHeld as held:
            leader = led_here(environment.claim) if held.owner == environment.owner else None
            is_reached = leader is not None and leader.can_stop(environment.claim)
            signals.leader, signals.held = (leader, None) if is_reached else (None, held)
        if signals.leader is not None and signals.stopping.is_asked:
            signals.leader.stop(is_cancel=signals.stopping.is_cancel)
        ended = await _followed(followed, environment.claim)
        signals.leader = signals.held = None
        if ended is not None:
            return ended


async def _followed(followed: FollowedTurn, claim: Claim) -> TurnState | None:
    """Return the turn's state after its end; None if no process runs the turn any more."""
    ending = asyncio.ensure_future(followed.ended())
    try:
        while True:
            await asyncio.wait((ending,), timeout=LOOK_S)
            if ending.done():
                return ending.result()
            if led_here(claim) is None and await led_elsewhere(claim) is None:
                return None
    finally:
        ending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((ending,))
