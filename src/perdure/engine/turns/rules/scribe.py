"""Write the entries of a step, and apply each entry to the state when it is written.

Every decision of a step is based on the state that the log will have, and the resulting state
always equals the state computed from the entries. The ids of new entries are known in advance,
because the runner appends the entries only at the expected position (``expected_head``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.state import TurnState, after, fold
from perdure.session.codec import Body, body_of, new_side, new_tree, role_in
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, entry_id
from perdure.session.kinds import MESSAGE, TreeBody
from perdure.session.ledger import (
    ModelCalled,
    ModelFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from perdure.session.messages import Message, ToolCallPart
from perdure.session.notes import Adopted, Question, Queued, SideBody
from perdure.tools.approval import Bound, Ruling


def queued_of(entry: Entry) -> Queued:
    """Return the body of a ``queued`` entry."""
    body = body_of(entry)
    assert isinstance(body, Queued)
    return body


def is_user_message(queued: Queued) -> bool:
    """Return whether the queued entry requires an answer."""
    return queued.entry_kind == MESSAGE and role_in(queued.entry_body) == "user"


class Unexamined(Exception):
    """Raised if the decision about `call` could need facts that were not read before the step."""

    def __init__(self, call: ToolCallPart, place: int) -> None:
        super().__init__(call.id)
        self.call = call
        self.place = place


_NO_BOUNDS: Mapping[int, Bound] = {}


class Scribe:
    """Collects the entries of one step.

    Units: `at` is Unix milliseconds; a question expires `question_expires_s` seconds after `at`.
    `bounds` contains the facts to which the approval of a pending call is bound. A call is missing
    in `bounds` if its facts were not read. A key of `bounds` is the index of the call in
    `state.pending`, counted from the end.
    """

    def __init__(
        self,
        state: TurnState,
        at: int,
        bounds: Mapping[int, Bound] = _NO_BOUNDS,
        question_expires_s: float | None = None,
    ) -> None:
        self.state = state
        self.at = at
        self._question_expires_s = question_expires_s
        self._bounds = bounds
        self.entries: list[NewEntry] = []

    def ruling(self, config: TurnConfig, granted: frozenset[str], index: int = 0) -> Ruling:
        """Return the policy's decision about a pending call, with the grants in `granted`.

        Raises: Unexamined if the call could need a person's approval, and the facts to approve were
        not read yet.
        """
        call, place = self.state.pending[index], len(self.state.pending) - index
        ruling = config.judge(call, granted, self._bounds.get(place))
        if ruling.decision == "examine":
            raise Unexamined(call, place)
        return ruling

    def side(self, body: SideBody, about: EntryId | int | None = None) -> EntryId:
        """Write a side entry about the entry `about`.

        `about` is an id, or the seq of an entry of this stream.
        """
        about_id = entry_id(self.state.stream, about) if isinstance(about, int) else about
        body = _sign(body, self.state)
        if isinstance(body, Question) and self._question_expires_s is not None:
            expires_at = self.at + math.ceil(self._question_expires_s * 1000)
            body = msgspec.structs.replace(body, expires_at=expires_at)
        return self._write(new_side(body, about_id), body)

    def tree(self, body: Message | TreeBody) -> EntryId:
        """Write a tree entry at the leaf."""
        return self._write(new_tree(body), body)

    def ahead(self) -> EntryId:
        """Return the id of the entry after the next one."""
        return entry_id(self.state.stream, self.state.head + 2)

    def adopt(self, queued: Entry) -> None:
        """Add a queued entry to the tree unchanged."""
        body = queued_of(queued)
        adopted = NewEntry(body.entry_kind, bytes(body.entry_body), body.entry_v)
        self.side(Adopted(self._write(adopted)), queued.id)

    def _write(self, new: NewEntry, body: Body | None = None) -> EntryId:
        self.entries.append(new)
        seq = self.state.head + 1
        about = new.about if isinstance(new.about, str) else None
        written = Entry(
            self.state.stream, seq, new.lane, None, about, self.at, new.kind, new.v, new.body
        )
        if body is None:
            self.state = fold(self.state, (written,))
        else:  # decoding would only restore what was just encoded
            self.state = after(self.state, written, body)
        return written.id


def _sign(body: SideBody, state: TurnState) -> SideBody:
    """Return `body` with its agent, model or attempt filled in.

    A reader can understand the returned body without reading earlier entries.
    """
    replace = msgspec.structs.replace
    match body:
        case ModelCalled() | Question(topic="approval"):
            return replace(body, agent=state.agent)
        case ModelFinished():
            call = state.open_call
            assert call is not None
            return replace(body, agent=state.agent, model=call.model, attempt=call.attempt)
        case ToolStarted():
            model = state.answer.model if state.answer is not None else None
            return replace(body, agent=state.agent, model=model)
        case ToolFinished():
            runs = () if state.open_tool is None else (state.open_tool, *state.beside)
            run = next((run for run in runs if run.started.id == body.id), None)
            return replace(body, agent=state.agent, attempt=run.started.attempt if run else 1)
        case TurnFinished():
            model = state.answer.model if state.answer is not None else None
            return replace(body, model=model)
        case _:
            return body
