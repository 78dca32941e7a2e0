"""A turn with an idempotency key: a repeated call follows the turn of the first call."""

from __future__ import annotations

from perdure.client.requests.due_turn import BUSY_S, Begin
from perdure.client.requests.followed_turn import FollowedTurn
from perdure.client.requests.led_turn import continue_or_follow
from perdure.engine.turns.requests import closing_entry
from perdure.engine.turns.session_turns import SessionTurns, Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import LeaseHeld, RequestAnswered, TurnOpen
from perdure.session.ledger import TurnStarted


async def keyed_turn(
    turns: SessionTurns, signals: Signals, request: int, begin: Begin
) -> TurnState:
    """Return the state of the turn that answers `request`, after the turn has ended.

    The turn begins in this process, unless it has begun before. The turn waits while another turn
    of the session runs.
    Raises: the errors of `begin`; TurnFailed if the request was rejected.
    """
    environment = turns.environment
    followed = FollowedTurn(environment, signals, request=request)
    while True:
        closing = await closing_entry(environment.store, environment.stream, request)
        if closing is not None and closing.kind == TurnStarted.kind:
            return await continue_or_follow(turns, signals, closing.seq)
        if closing is None and signals.stopping.is_asked:
            await followed.stop()
        if closing is not None or signals.stopping.is_asked:
            return await followed.ended()
        try:
            return await begin(request)
        except RequestAnswered:
            continue
        except TurnOpen:  # of the process that began this one, or an interrupted one
            if await closing_entry(environment.store, environment.stream, request) is None:
                raise
        except LeaseHeld:
            await environment.clock.sleep(BUSY_S)
