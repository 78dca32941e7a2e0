"""A turn of this process that begins later: its request waits in the log until the turn is due."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from perdure.client.requests.followed_turn import FollowedTurn
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.lease import led_elsewhere
from perdure.engine.turns.requests import STOPPED, refuse_request, requested_stop
from perdure.engine.turns.session_turns import Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import IdempotencyMismatch, LeaseHeld, RequestAnswered, TurnOpen
from perdure.session.codec import new_side
from perdure.session.ledger import TurnRequested
from perdure.stores.session_store import append_to

BUSY_S = 0.5
"""Pause between two attempts to begin a due turn while its session has another turn."""

LOOK_S = 60.0
"""Longest pause before the clock is read again: a machine may sleep, or its clock may be set."""

Begin = Callable[[int], Awaitable[TurnState]]
"""Runs the turn that answers the request with this seq."""


async def store_request(
    environment: Environment,
    request: TurnRequested,
    contents: tuple[bytes, ...],
    key: str | None = None,
    place: str | None = None,
) -> int:
    """Append the request of a turn, and return its seq.

    Durable: all changes are stored when this returns. `key` is the idempotency key that the message
    has in its session. If `key` is None, `place` is the idempotency key of the commit. Raises:
    IdempotencyMismatch if another message used `key`.
    """
    store, stream, at = environment.store, environment.stream, environment.clock.now_ms()
    stored = place if key is None else f"send:{stream}/{key}"
    try:
        new = new_side(request)
        return (await append_to(store, stream, new, at=at, key=stored, blobs=contents))[0].seq
    except IdempotencyMismatch as error:
        raise error if key is None else IdempotencyMismatch(key) from None


async def turn_when_due(
    environment: Environment, signals: Signals, request: int, due_at: int, begin: Begin
) -> TurnState:
    """Return the state of the turn that answers `request`, after the turn has ended.

    The turn begins in this process when it is due; if another process began it first, this process
    only follows it.
    Raises: the errors of `begin`; TurnFailed if the request was rejected.
    """
    followed = FollowedTurn(environment, signals, request=request)
    wait_s = 0.0
    while True:
        if signals.stopping.is_asked:
            await followed.stop()
            return await followed.ended()
        left_s = max((due_at - environment.clock.now_ms()) / 1000, wait_s)
        state = await _ended_within(environment, signals, followed, min(left_s, LOOK_S))
        if state is not None:
            return state
        if signals.stopping.is_asked or environment.clock.now_ms() < due_at:
            continue
        wait_s = BUSY_S
        try:
            if await requested_stop(environment.store, environment.stream, request, request):
                await refuse_request(environment.claim, request, *STOPPED)
            elif not signals.begun.done() and await led_elsewhere(environment.claim) is None:
                return await begin(request)
        except (LeaseHeld, TurnOpen, RequestAnswered):
            continue


async def _ended_within(
    environment: Environment, signals: Signals, followed: FollowedTurn, seconds: float
) -> TurnState | None:
    """Return the turn's state if it ends within `seconds` and before a stop is requested."""
    ending = asyncio.ensure_future(signals.stopping.uncut(followed.ended()))
    sleeping = asyncio.ensure_future(environment.clock.sleep(seconds))
    try:
        await asyncio.wait((ending, sleeping), return_when=asyncio.FIRST_COMPLETED)
        return ending.result() if ending.done() else None
    finally:
        ending.cancel()
        sleeping.cancel()
        await asyncio.wait((ending, sleeping))
