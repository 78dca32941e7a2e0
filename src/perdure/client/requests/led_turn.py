"""Continue the open turn of a session, or follow it while another process runs it."""

from __future__ import annotations

import asyncio
import contextlib

from perdure.client.requests.followed_turn import FollowedTurn
from perdure.engine.turns.lease import led_elsewhere
from perdure.engine.turns.session_turns import SessionTurns, Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import InvalidTransition, LeaseHeld

LOOK_S = 2.0
"""How often the lease of a followed turn is read: its process may have died."""


async def continue_or_follow(turns: SessionTurns, signals: Signals, turn: int) -> TurnState:
    """Return the state of the turn begun at seq `turn`, once it has ended.

    Runs it, unless another process does; then `signals.held` names that process. If that process
    dies, the turn is continued here.
    """
    environment = turns.environment
    while True:
        try:
            return await turns.lost_turn(signals)
        except InvalidTransition:  # it has ended, or another turn has begun since
            return await FollowedTurn(environment, signals, turn=turn).ended()
        except LeaseHeld as held:
            signals.held = held
        ended = await _followed(FollowedTurn(environment, signals, turn=turn), turns)
        signals.held = None
        if ended is not None:
            return ended


async def _followed(followed: FollowedTurn, turns: SessionTurns) -> TurnState | None:
    """Return the end of the turn; None if no process runs it any more."""
    ending = asyncio.ensure_future(followed.ended())
    try:
        while True:
            await asyncio.wait((ending,), timeout=LOOK_S)
            if ending.done():
                return ending.result()
            if await led_elsewhere(turns.environment.claim) is None:
                return None
    finally:
        ending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((ending,))
