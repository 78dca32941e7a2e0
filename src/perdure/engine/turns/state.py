"""A turn as the fold of its log: what is open, what is owed, what comes next can be read from it.

Rule: everything the machine knows about a turn is folded here from entries, and nowhere else. So a
process that dies loses nothing but the effect it was performing, and the process that takes over
reads the same state from the same log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

import msgspec

from perdure.context.tokens import estimate_tokens
from perdure.errors import UnsupportedVersion
from perdure.session.codec import Body, body_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import MESSAGE, Compaction
from perdure.session.ledger import (
    CallPurpose,
    Interrupted,
    InterruptPolicy,
    ModelCalled,
    ModelFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.session.messages import Message, ToolCallPart, ToolResultPart, Usage
from perdure.session.notes import Adopted, Answer, LeafMoved, Question, Queued

CORRECTABLE = frozenset({"unknown_tool", "invalid_arguments"})
"""Error codes of tool calls that the model itself can put right."""


class Phase(StrEnum):
    """Where a turn stands. In CALLING, RUNNING, BACKOFF and ASKING something outside is awaited."""

    IDLE = "idle"
    READY = "ready"
    CALLING = "calling the model"
    BACKOFF = "waiting to call again"
    RUNNING = "running a tool"
    UNSETTLED = "unsure whether a tool ran"
    ASKING = "waiting for an answer"
    FINISHED = "finished"


class OpenCall(msgspec.Struct, frozen=True):
    """A model call whose outcome is not in the log (or, in BACKOFF, the one to be repeated)."""

    seq: int
    call: int
    attempt: int
    model: str
    purpose: CallPurpose
    retry_at: int = 0


class OpenTool(msgspec.Struct, frozen=True):
    """A tool run whose outcome is not in the log, or is not known."""

    seq: int
    started: ToolStarted


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question nobody has acted upon; `answer` is there once somebody answered."""

    id: EntryId
    question: Question
    answer: Answer | None = None


class TurnState(msgspec.Struct, frozen=True):
    """A session's open turn.

    Shape: `head` is the last seq folded in; `pending` are the tool calls of the last answer that
    have no result yet, in order, the open one included; `awaits` is the message that the entry
    before said would follow; `queued` are entries of others that wait to be adopted.
    Units: `context_tokens` estimates what the next request will hold, None where nothing is known.
    """

    stream: StreamId
    head: int
    phase: Phase = Phase.IDLE
    turn_seq: int = -1
    number: int = 0
    base: EntryId | None = None
    on_interrupt: InterruptPolicy = "retry"
    calls: int = 0
    open_call: OpenCall | None = None
    pending: tuple[ToolCallPart, ...] = ()
    open_tool: OpenTool | None = None
    question: OpenQuestion | None = None
    queued: tuple[Entry, ...] = ()
    partial: Message | None = None
    answer: Message | None = None
    answer_id: EntryId | None = None
    awaits: EntryId | None = None
    owes_answer: bool = False
    tool_rounds: int = 0
    correctable_rounds: int = 0
    is_round_correctable: bool = False
    has_compacted: bool = False
    last_error: str | None = None
    context_tokens: int | None = None
    usage: Usage = Usage()
    ends_session: bool = False
    finished: TurnFinished | None = None


def fold(state: TurnState, entries: Iterable[Entry]) -> TurnState:
    """`state` after `entries`, which follow its head in log order."""
    for entry in entries:
        state = _after(state, entry)
    return state


def _after(state: TurnState, entry: Entry) -> TurnState:
    state = msgspec.structs.replace(state, head=entry.seq)
    rule = _RULES.get(entry.kind)
    if rule is None:
        return state
    try:
        body = body_of(entry)
    except UnsupportedVersion:
        # Of the turn's own ledger nothing may be guessed; a message may come from anybody.
        if entry.kind != MESSAGE:
            raise
        return state
    return rule(state, entry, body)


def _turn_started(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, TurnStarted)
    return TurnState(
        stream=state.stream,
        head=entry.seq,
        phase=Phase.READY,
        turn_seq=entry.seq,
        number=body.number,
        base=body.base,
        on_interrupt=body.on_interrupt,
        queued=state.queued,
        context_tokens=body.context_tokens,
    )


def _message(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, Message)
    if entry.id == state.awaits:
        calls = body.tool_calls
        return msgspec.structs.replace(
            state,
            answer=body,
            answer_id=entry.id,
            pending=calls,
            awaits=None,
            owes_answer=bool(calls),
            tool_rounds=state.tool_rounds + bool(calls),
            is_round_correctable=False,
        )
    if state.context_tokens is not None:
        tokens = state.context_tokens + estimate_tokens(body)
        state = msgspec.structs.replace(state, context_tokens=tokens)
    if body.role == "tool":
        return msgspec.structs.replace(state, pending=_still_pending(state.pending, body))
    if body.role == "user":
        return msgspec.structs.replace(state, owes_answer=True, has_compacted=False)
    return state


def _still_pending(pending: tuple[ToolCallPart, ...], results: Message) -> tuple[ToolCallPart, ...]:
    # Providers repeat call ids now and then: a result settles the first call of its id only.
    left = list(pending)
    for part in results.parts:
        if isinstance(part, ToolResultPart):
            settled = next((call for call in left if call.id == part.call_id), None)
            if settled is not None:
                left.remove(settled)
    return tuple(left)


def _model_called(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, ModelCalled)
    open_call = OpenCall(entry.seq, body.call, body.attempt, body.model, body.purpose)
    return msgspec.structs.replace(
        state,
        phase=Phase.CALLING,
        open_call=open_call,
        calls=body.call,
        partial=None,
        question=None,
        context_tokens=body.tokens_estimated or state.context_tokens,
    )


def _model_finished(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, ModelFinished)
    usage = body.usage or Usage()
    call = state.open_call
    is_summary = call is not None and call.purpose == "summary"
    is_answer = call is not None and not is_summary and body.error is None
    tokens = usage.total_tokens if is_answer and usage.total_tokens else state.context_tokens
    state = msgspec.structs.replace(
        state,
        phase=Phase.READY,
        usage=state.usage + usage,
        context_tokens=tokens,
        owes_answer=state.owes_answer and not is_answer,
        awaits=body.answer,
        last_error=body.error_code,
        # A summary that failed for good is not tried again before the next message of the user's.
        has_compacted=state.has_compacted or (is_summary and body.wait_s is None),
    )
    if body.wait_s is None or call is None:
        return msgspec.structs.replace(state, open_call=None)
    waiting = msgspec.structs.replace(call, retry_at=entry.at + round(body.wait_s * 1000))
    return msgspec.structs.replace(state, phase=Phase.BACKOFF, open_call=waiting)


def _tool_started(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, ToolStarted)
    return msgspec.structs.replace(
        state, phase=Phase.RUNNING, open_tool=OpenTool(entry.seq, body), question=None
    )


def _tool_finished(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, ToolFinished)
    if body.outcome == "unknown" and body.result is None:
        return msgspec.structs.replace(state, phase=Phase.UNSETTLED)
    is_correctable = body.error_code in CORRECTABLE
    counts = is_correctable and not state.is_round_correctable
    return msgspec.structs.replace(
        state,
        phase=Phase.READY,
        open_tool=None,
        question=None,
        correctable_rounds=state.correctable_rounds + counts,
        is_round_correctable=state.is_round_correctable or is_correctable,
        ends_session=state.ends_session or body.ends_session,
    )


def _question(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, Question)
    question = OpenQuestion(entry.id, body)
    return msgspec.structs.replace(state, phase=Phase.ASKING, question=question)


def _answer(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, Answer)
    asked = state.question
    if asked is None or asked.id != entry.about or asked.answer is not None:
        return state
    return msgspec.structs.replace(state, question=msgspec.structs.replace(asked, answer=body))


def _queued(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, Queued)
    return msgspec.structs.replace(state, queued=(*state.queued, entry))


def _adopted(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, Adopted)
    left = tuple(waiting for waiting in state.queued if waiting.id != entry.about)
    return msgspec.structs.replace(state, queued=left)


def _interrupted(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, Interrupted)
    return msgspec.structs.replace(state, partial=body.partial)


def _compaction(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, Compaction)
    return msgspec.structs.replace(state, has_compacted=True, context_tokens=body.tokens_after)


def _leaf(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, LeafMoved)
    return msgspec.structs.replace(state, owes_answer=False)


def _turn_finished(state: TurnState, entry: Entry, body: Body) -> TurnState:
    assert isinstance(body, TurnFinished)
    return msgspec.structs.replace(
        state, phase=Phase.FINISHED, finished=body, open_call=None, open_tool=None, question=None
    )


_RULES: Mapping[str, Callable[[TurnState, Entry, Body], TurnState]] = {
    MESSAGE: _message,
    TurnStarted.kind: _turn_started,
    ModelCalled.kind: _model_called,
    ModelFinished.kind: _model_finished,
    ToolStarted.kind: _tool_started,
    ToolFinished.kind: _tool_finished,
    Question.kind: _question,
    Answer.kind: _answer,
    Queued.kind: _queued,
    Adopted.kind: _adopted,
    Interrupted.kind: _interrupted,
    Compaction.kind: _compaction,
    LeafMoved.kind: _leaf,
    TurnFinished.kind: _turn_finished,
}
