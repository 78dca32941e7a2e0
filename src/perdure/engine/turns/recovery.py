"""Read the state of the newest turn from the log, for example to continue an open turn.

A turn writes the state that it inherits to its ``turn_started``, and all other state to its
entries. Recovery therefore reads only the entries of the newest turn, whatever the length of the
log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from perdure.engine.turns.carried import PAGE, carried_state
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.inputs import Aborted, Broken, Expired, Lost
from perdure.engine.turns.lease import Claim, LeaseHolder, leading
from perdure.engine.turns.machine import step
from perdure.engine.turns.rules.outcomes import NOT_IN_FORCE
from perdure.engine.turns.state import Phase, TurnState, fold
from perdure.engine.windows import FollowedWindow
from perdure.errors import HeadConflict, LeaseHeld, TurnOpen
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.ledger import History, Spending, TurnFinished
from perdure.session.messages import Message, decode_message
from perdure.session.notes import Pin
from perdure.stores.protocol import Commit, LogReader, StreamState, Write


async def open_turn(store: LogReader, stream: StreamId) -> TurnState | None:
    """Return the open turn of `stream`, folded from its log; None if no turn is open.

    Raises: SessionNotFound if the session does not exist.
    """
    state = await store.state(stream)
    if state.open_turn is None:
        return None
    before = TurnState(stream=stream, head=state.open_turn - 1)
    return fold(before, await store.entries(stream, after=state.open_turn - 1))


async def lost_effect(store: LogReader, turn: TurnState) -> Lost:
    """Return what is known about the effect that was open when the turn's process died."""
    if turn.phase is not Phase.CALLING or turn.open_call is None:
        return Lost()
    kept = await store.partial(turn.stream)
    if kept is None or kept[0] != turn.open_call.seq:
        return Lost()
    return Lost(has_begun=True, partial=_readable(kept[1]))


async def spent_in(store: LogReader, stream: StreamId) -> Spending:
    """Return what the session `stream` has spent on the model calls in its own log.

    Raises: SessionNotFound if the session does not exist.
    """
    state = await store.state(stream)
    return (await carried_state(store, stream, state.head)).spent


async def idle_state(store: LogReader, stream: StreamId) -> StreamState:
    """Return the state of a session without an open turn.

    Raises: SessionNotFound if the session does not exist; TurnOpen if a turn is open.
    """
    state = await store.state(stream)
    if state.open_turn is not None:
        raise TurnOpen(stream, state.open_turn)
    return state


class IdleState(msgspec.Struct, frozen=True):
    """State of a session without an open turn; if `has_ended`, a turn must reopen the session.

    `page` contains the newest entries up to `head`; `pins` contains the side entries of kind
    ``pin``. `page` and `pins` are set only if they were read together with the state.
    """

    head: int
    leaf: EntryId | None
    turns: int
    has_ended: bool = False
    page: Sequence[Entry] = ()
    pins: Sequence[Entry] | None = None


class Recollection:
    """Cache of the state that each turn of a session needs, so that not every turn reads it."""

    def __init__(self, store: LogReader, stream: StreamId, history: History = "full") -> None:
        self._store = store
        self._stream = stream
        self._history: History = history
        self.branch = FollowedWindow(store, stream, history)
        self.left: TurnState | None = None

    @property
    def standing(self) -> IdleState | None:
        """The state after the last turn, if no other writer appended after it; None if unknown."""
        left, leaf = self.left, self.branch.leaf
        if left is None or left.finished is None or left.ends_session or leaf is None:
            return None
        return IdleState(left.head, leaf, left.number)

    async def idle(self) -> IdleState:
        """Read the state of the session, and everything else that a new turn needs.

        Raises: SessionNotFound if the session does not exist; TurnOpen if a turn is open.
        """
        limit = PAGE if self.left is None else 0  # else `so_far` reads only what is new
        state, page, pins = await self._store.tail(self._stream, limit, (Pin.kind,))
        if state.open_turn is not None:
            raise TurnOpen(self._stream, state.open_turn)
        has_ended = state.info.status != "active"
        return IdleState(state.head, state.leaf, state.info.turns, has_ended, page, pins)

    async def so_far(self, head: int, page: Sequence[Entry] = ()) -> TurnState:
        """Return the state for a new turn; `head` is the seq of the last entry.

        Read only the entries that others have appended since the last turn. `page` contains the
        newest entries up to `head`, if they were already read.
        Raises: SessionNotFound if the session does not exist.
        """
        left = self.left
        if left is None or not 0 <= head - left.head <= PAGE:
            self.forget()
            return await carried_state(self._store, self._stream, head, page)
        if left.head < head:
            added = await self._store.entries(self._stream, left.head, head - left.head)
            self.branch.follow(added)
            left = self.left = fold(left, added)
        return left

    def forget(self) -> None:
        """Forget the cached state, so that everything is read again."""
        self.left = None
        self.branch = FollowedWindow(self._store, self._stream, self._history)


async def give_up(claim: Claim) -> TurnState | None:
    """Close the open turn of a dead process, without continuing it.

    A received part of an answer stays on the branch; calls without a result are marked as aborted.
    Shape: the result is None if no turn is open.
    Raises: LeaseHeld if the process of the turn is alive.
    """
    async with leading(claim) as leadership:
        while (turn := await open_turn(claim.store, claim.stream)) is not None:
            gone = await lost_effect(claim.store, turn)
            with suppress(HeadConflict):  # others may append while this process leads
                return await close_turn(claim, leadership, turn, Aborted(gone.partial))
    return None


async def interrupt(claim: Claim) -> None:
    """Close an open turn as interrupted, without performing any of its effects.

    Raises: LeaseHeld if the process of the turn is alive.
    """
    async with leading(claim) as leadership:
        while (state := await claim.store.state(claim.stream)).open_turn is not None:
            with suppress(HeadConflict):  # others may append while this process leads
                await _interrupt_turn(claim, leadership, state)


async def _interrupt_turn(claim: Claim, leadership: LeaseHolder, state: StreamState) -> None:
    """Close the session's open turn, even if the turn's entries are invalid."""
    at = claim.clock.now_ms()
    try:
        turn = await open_turn(claim.store, claim.stream)
        assert turn is not None
        gone = await lost_effect(claim.store, turn)
        config = TurnConfig(agent="", model="", tools={})
        happened = Aborted(gone.partial, is_interrupted=True)
        head, entries = turn.head, step(turn, happened, config, at).entries
    except Exception:  # noqa: BLE001 - any program may have written the turn
        ended = TurnFinished("interrupted", failure="cancelled", error=NOT_IN_FORCE)
        head, entries = state.head, (new_side(ended),)
    write = Write(stream=claim.stream, entries=entries, expected_head=head)
    await leadership.commit(Commit(writes=(write,), at=at))


async def expire(claim: Claim) -> TurnState | None:
    """Close the open turn if its question has expired and no process runs it.

    Shape: the result is None if no question has expired, or if a live process runs the turn and
    closes it itself.
    """
    if not _has_expired(await open_turn(claim.store, claim.stream), claim.clock.now_ms()):
        return None
    try:
        async with leading(claim) as leadership:
            while True:
                turn = await open_turn(claim.store, claim.stream)
                if turn is None or not _has_expired(turn, claim.clock.now_ms()):
                    return None
                with suppress(HeadConflict):  # an answer, or another entry, came first
                    return await close_turn(claim, leadership, turn, Expired())
    except LeaseHeld:
        return None


def _has_expired(turn: TurnState | None, at: int) -> bool:
    asked = None if turn is None else turn.question
    return asked is not None and asked.answer is None and asked.question.is_expired(at)


async def close_turn(
    claim: Claim, leadership: LeaseHolder, turn: TurnState, happened: Aborted | Expired | Broken
) -> TurnState:
    """Append the entries that end `turn` because of `happened`.

    Raises: HeadConflict if another writer appended first; LeaseLost if the session was taken over.
    """
    at = claim.clock.now_ms()
    config = TurnConfig(agent="", model="", tools={})  # none of them decides anything by it
    closed = step(turn, happened, config, at)
    write = Write(stream=claim.stream, entries=closed.entries, expected_head=turn.head)
    await leadership.commit(Commit(writes=(write,), at=at))
    return closed.state


def _readable(content: bytes) -> Message | None:
    # The side table is not hashed: treat an unreadable part as missing.
    try:
        message = decode_message(content)
    except ValueError:
        return None
    return message if message.parts else None
