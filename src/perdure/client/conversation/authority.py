"""The parts of a session's log that are in force on this machine: the agent and the open turn.

Imported entries never give permissions. In an untrusted store, only the entries that this user's
perdure wrote give permissions. Entries that give no permissions remain history: they are shown,
exported and sent to models, but never applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from perdure.client.conversation.agent_binding import BINDING_KINDS, Binding, binding_in
from perdure.client.reads import OpenQuestion, open_questions, program_question
from perdure.engine.turns.carried import PAGE, carried_state, carrying_from
from perdure.engine.turns.state import TurnState
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId, entry_place
from perdure.session.info import received_entries
from perdure.session.ledger import Interrupted, TurnFinished, TurnStarted
from perdure.session.messages import MESSAGE
from perdure.session.notes import (
    AgentBound,
    Answer,
    Question,
    SessionReceived,
    SessionReopened,
    WorkspaceChanged,
    in_workspace,
)
from perdure.stores.access.lazy_modules import Later
from perdure.stores.marks import TURN_KINDS, marks_of
from perdure.stores.protocol import LogReader, StreamState

if TYPE_CHECKING:
    from perdure.client.conversation import workspace as workspaces
    from perdure.stores.session_store import SessionStore
else:
    workspaces = Later("perdure.client.conversation.workspace")

_COMMIT = 64
"""The most entries of a turn's commit; if a commit has more, its mark is not found."""

_TURN_NOTES = (
    *(TurnStarted.kind, TurnFinished.kind, Interrupted.kind),
    *(Question.kind, Answer.kind),
)
"""The kinds of turn entries in the index of notes. Other kinds have no effect outside a turn."""

Withheld = Literal["imported", "unknown"]
"""Why something is not in force: it was imported, or this user's perdure did not write it."""


class Authority(msgspec.Struct, frozen=True):
    """States whether the agent and the newest turn of a session are in force on this machine.

    Only an agent and a turn that are in force can give permissions.

    `bound` is the newest agent in the log of the session, whether it is in force or not.

    `agent` states why the agent is not in force; None if the agent is in force. `turn` states why
    the newest turn and its grants are not in force; None if they are in force. `workspace` is set
    if the session was forked to a folder and has no agent in force. If `workspace` is set, an agent
    of this machine works in that folder.
    """

    bound: Binding | None
    agent: Withheld | None = None
    turn: Withheld | None = None
    workspace: dict[str, object] | None = None

    @property
    def withheld(self) -> Withheld | None:
        """Why the session needs an agent of this machine; None if its own agent is in force."""
        return self.agent or self.turn


async def authority_of(store: LogReader, session: StreamId) -> Authority:
    """Return whether the agent and the newest turn of `session` can give permissions here.

    Raises: SessionNotFound if the session does not exist; the errors of reading a log.
    """
    kinds = (*BINDING_KINDS, WorkspaceChanged.kind, SessionReceived.kind)
    needed = 0 if marks_of(store).is_trusted else PAGE
    state, page, notes = await store.tail(session, needed, kinds)
    found = _newest(notes)
    received = {session: received_entries(state.header, session, notes)}
    turn = await _turn_withheld(store, state, page, received[session])
    place, bound = found or (-1, None)
    since = notes[max(place, 0) :]
    for stream in {note.stream for note in since} - {session}:  # a fork's turns are its own
        received[stream] = await _received(store, stream, notes)

    def withheld(note: Entry) -> Withheld | None:
        if note.seq < received[note.stream]:
            return "imported"
        return None if marks_of(store).is_own(note) else "unknown"

    agent = None if bound is None else withheld(notes[place])
    workspace: dict[str, object] | None = None
    for note in since:
        changed = body_of(note) if note.kind == WorkspaceChanged.kind else None
        if not isinstance(changed, WorkspaceChanged) or withheld(note) is not None:
            continue
        if bound is not None and agent is None:
            bound = in_workspace(bound, changed)
        else:
            workspace = changed.workspace
    return Authority(bound, agent, turn, workspace)


async def carried_in_force(store: LogReader, session: StreamId) -> tuple[TurnState, bool]:
    """Return the state that the next turn of `session` inherits, and whether it is in force.

    Raises: SessionNotFound; the errors of reading a log.
    """
    so_far = await carried_state(store, session, (await store.state(session)).head)
    return so_far, (await authority_of(store, session)).turn is None


async def is_in_force(store: LogReader, entry: Entry) -> bool:
    """Return whether `entry` is in force on this machine.

    In an untrusted store, the result is False for entries without a mark, such as messages. Raises:
    SessionNotFound.
    """
    notes = await store.notes(entry.stream, (SessionReceived.kind,))
    if entry.seq < await _received(store, entry.stream, notes):
        return False
    # The mark of a turn's commit covers entries before this one.
    near = await store.entries(entry.stream, max(entry.seq - _COMMIT, -1), _COMMIT)
    return entry.seq in marks_of(store).own_among(near)


async def questions_in_force(
    store: LogReader, asking: Iterable[Entry], at: int
) -> list[OpenQuestion]:
    """Return the questions in `asking` that are open at `at` and in force on this machine.

    A turn that was imported, or that is not trusted here, is not in force: an answer to its
    question has no effect. The running time is proportional to the length of the newest turn of
    each asking session.
    """
    asking = tuple(asking)
    asked = open_questions(asking, at)
    streams = {entry_place(question.id)[0] for question in asked}
    withheld = {stream for stream in streams if (await authority_of(store, stream)).turn}
    found = [each for each in asked if entry_place(each.id)[0] not in withheld]
    for entry in asking:
        question = program_question(entry)
        if question is not None and await is_in_force(store, entry):
            found.append(question)
    return sorted(found, key=lambda question: question.at)


def _newest(notes: list[Entry]) -> tuple[int, Binding] | None:
    """Return the newest binding, and its index in `notes`."""
    for place in range(len(notes) - 1, -1, -1):
        bound = binding_in((notes[place],))
        if bound is not None:
            return place, bound
    return None


async def _received(store: LogReader, session: StreamId, notes: list[Entry]) -> int:
    """Return the number of entries at the beginning of `session` that came from a file."""
    return received_entries((await store.state(session)).header, session, notes)


async def _turn_withheld(
    store: LogReader, state: StreamState, page: Sequence[Entry], received: int
) -> Withheld | None:
    """Return why the newest turn is not in force; None if it is in force or there is no turn.

    `page` are the newest entries of the session. The running time of this function is proportional
    to the length of the turn. If the session's state counts no turns, the notes are read as well,
    because the count of an imported file can be wrong.
    """
    if received == 0 and marks_of(store).is_trusted:
        return None
    session = state.header.id
    if state.info.turns == 0 and state.open_turn is None:
        notes = await store.notes(session, _TURN_NOTES)
        if not any(note.stream == session for note in notes):
            return None
    entries = await carrying_from(store, session, state.head, page)
    open_from = state.head + 1 if state.open_turn is None else state.open_turn
    told = [entry for entry in entries if _gives_authority(entry, open_from)]
    if any(entry.seq < received for entry in told):
        return "imported"
    if _are_own(store, told, entries):
        return None
    if entries and (first := entries[0].seq) > 0:
        # The mark of a turn that reopened the session also covers the entry before the turn.
        before = await store.entries(session, first - 2, 1)
        if before[0].kind == SessionReopened.kind and _are_own(store, told, [*before, *entries]):
            return None
    return "unknown"


def _are_own(store: LogReader, told: Sequence[Entry], entries: Sequence[Entry]) -> bool:
    """Whether this user's perdure wrote all entries in `told`, which are among `entries`."""
    own = marks_of(store).own_among(entries)
    return all(entry.seq in own for entry in told)


def _gives_authority(entry: Entry, open_from: int) -> bool:
    if entry.kind in TURN_KINDS:
        return True
    return entry.lane == "tree" and entry.kind == MESSAGE and entry.seq > open_from


async def agent_of_fork(
    store: SessionStore, session: StreamId, folder: str | None
) -> tuple[NewEntry, ...]:
    """Return the first entries of a fork of `session`, so that its agent works in `folder`.

    If `folder` is None, the workspace does not change.
    If the store copies the entries of forks, the result contains the whole agent.
    If the agent is not in force, only the folder is recorded, and the fork is resumed with another
    agent.
    Raises: ConfigError if the agent's instructions use a name that has no value in `folder`.
    """
    is_copied = not store.capabilities.pointer_fork
    if folder is None and not is_copied:
        return ()
    known = await authority_of(store, session)
    bound = known.bound
    if bound is None or known.agent is not None:
        return () if folder is None else (new_side(WorkspaceChanged({"working_dir": folder})),)
    kept = workspaces.kept_workspace(bound.workspace)
    change = None
    if folder is not None:
        change = workspaces.change_of(bound, workspaces.moved_to(kept, folder))
    if not is_copied:
        return () if change is None else (new_side(change),)
    bound = bound if change is None else in_workspace(bound, change)
    return (new_side(AgentBound(bound.agent or {}, bound.workspace, bound.system_prompt)),)
