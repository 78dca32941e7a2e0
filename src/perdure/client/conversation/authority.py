"""What of a session's log is in force here: its agent, and what its open turn was doing.

Imported entries give no authority. Neither do entries that this user's perdure did not write,
where a store is not trusted. They stay history: shown, exported, sent to models, never obeyed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from perdure.client.conversation.binding import BINDING_KINDS, Binding, binding_in
from perdure.client.reading import OpenQuestion
from perdure.engine.turns.recovery import carrying_from
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, entry_place
from perdure.session.messages import MESSAGE
from perdure.session.notes import SessionReceived
from perdure.stores.marks import TURN_KINDS, marks_of
from perdure.stores.protocol import SessionStore

Withheld = Literal["imported", "unknown"]
"""Why something is not in force: it was imported, or this user's perdure did not write it."""


class Authority(msgspec.Struct, frozen=True):
    """What is in force of a session. `bound` is the newest agent in its log, in force or not.

    `agent` and `turn` say why the agent, and the newest turn with what was granted in it, are not
    in force; None where they are.
    """

    bound: Binding | None
    agent: Withheld | None = None
    turn: Withheld | None = None

    @property
    def withheld(self) -> Withheld | None:
        """Why the session needs an agent of this machine; None where it has one."""
        return self.agent or self.turn


async def authority_of(store: SessionStore, session: StreamId) -> Authority:
    """What of `session` is in force.

    Raises: SessionNotFound; as reading a log does.
    """
    notes = await store.notes(session, (*BINDING_KINDS, SessionReceived.kind))
    found = _newest(notes)
    received = await _received(store, session, notes)
    turn = await _turn_withheld(store, session, received)
    if found is None:
        return Authority(None, None, turn)
    entry, bound = found
    if entry.stream != session:  # a fork's, whose turns are its own
        of_origin = await _received(store, entry.stream, notes)
        return Authority(bound, _withheld(store, entry, of_origin), turn)
    return Authority(bound, _withheld(store, entry, received), turn)


async def questions_in_force(
    store: SessionStore, asked: Sequence[OpenQuestion]
) -> list[OpenQuestion]:
    """Those of `asked` whose turn is in force: no other turn ever acts on an answer.

    Costs, of each session that asks, what its newest turn is long.
    """
    asking = {entry_place(question.id)[0] for question in asked}
    withheld = {stream for stream in asking if (await authority_of(store, stream)).turn}
    return [each for each in asked if entry_place(each.id)[0] not in withheld]


def _newest(notes: list[Entry]) -> tuple[Entry, Binding] | None:
    for note in reversed(notes):
        bound = binding_in((note,))
        if bound is not None:
            return note, bound
    return None


async def _received(store: SessionStore, session: StreamId, notes: list[Entry]) -> int:
    """How many entries at the beginning of `session` came from a file."""
    header = (await store.state(session)).header
    told = [n.seq for n in notes if n.kind == SessionReceived.kind and n.stream == session]
    return max(header.received, *told, 0)


def _withheld(store: SessionStore, entry: Entry, received: int) -> Withheld | None:
    if entry.seq < received:
        return "imported"
    return None if marks_of(store).is_own(entry) else "unknown"


async def _turn_withheld(store: SessionStore, session: StreamId, received: int) -> Withheld | None:
    """Why the newest turn of `session` is not in force; None where it is, or there is none.

    Costs what the turn is long.
    """
    state = await store.state(session)
    entries = await carrying_from(store, session, state.head)
    open_from = state.head + 1 if state.open_turn is None else state.open_turn
    told = [entry for entry in entries if _gives_authority(entry, open_from)]
    if any(entry.seq < received for entry in told):
        return "imported"
    own = marks_of(store).own_among(entries)
    return None if all(entry.seq in own for entry in told) else "unknown"


def _gives_authority(entry: Entry, open_from: int) -> bool:
    if entry.kind in TURN_KINDS:
        return True
    return entry.lane == "tree" and entry.kind == MESSAGE and entry.seq > open_from
