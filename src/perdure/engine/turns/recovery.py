"""Reading an open turn back from the log, to go on with it in this process."""

from __future__ import annotations

from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.inputs import Aborted, Lost
from perdure.engine.turns.leading import Claim, leading
from perdure.engine.turns.machine import step
from perdure.engine.turns.state import Phase, TurnState, fold
from perdure.session.ids import StreamId
from perdure.session.messages import Message, decode_message
from perdure.stores.protocol import Commit, LogReading, Write


async def open_turn(store: LogReading, stream: StreamId) -> TurnState | None:
    """The turn that is open in `stream`, as its log tells it; None when none is.

    Raises: SessionNotFound.
    """
    state = await store.state(stream)
    if state.open_turn is None:
        return None
    before = TurnState(stream=stream, head=state.open_turn - 1)
    return fold(before, await store.entries(stream, after=state.open_turn - 1))


async def lost(store: LogReading, turn: TurnState) -> Lost:
    """What is known of the effect that was open when the turn's process died."""
    if turn.phase is not Phase.CALLING or turn.open_call is None:
        return Lost()
    kept = await store.partial(turn.stream)
    if kept is None or kept[0] != turn.open_call.seq:
        return Lost()
    return Lost(has_begun=True, partial=_readable(kept[1]))


async def give_up(claim: Claim) -> TurnState | None:
    """Close the open turn of a process that is gone, without performing anything more of it.

    What had arrived of an answer stays on the branch; calls without a result are told as aborted.
    Shape: None when no turn is open.
    Raises: LeaseHeld while that process is alive.
    """
    async with leading(claim) as leadership:
        turn = await open_turn(claim.store, claim.stream)
        if turn is None:
            return None
        gone = await lost(claim.store, turn)
        at = claim.clock.now_ms()
        config = TurnConfig(agent="", model="", tools={})  # an abort decides nothing by it
        closed = step(turn, Aborted(gone.partial), config, at)
        write = Write(
            stream=claim.stream,
            entries=closed.entries,
            expected_head=turn.head,
            lease=leadership.lease,
        )
        await claim.store.commit(Commit(writes=(write,), at=at))
        return closed.state


def _readable(content: bytes) -> Message | None:
    # The side table is not hashed: a part that cannot be read is a part that was not kept.
    try:
        message = decode_message(content)
    except ValueError:
        return None
    return message if message.parts else None
