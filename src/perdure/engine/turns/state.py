"""Compute the state of a turn from its log: the open effect, the pending work, the next step.

Rule: everything that the turn machine knows about a turn is folded from log entries in this module
only. A process that dies loses only the effect it was performing. The process that takes over folds
the same state from the same log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from perdure.context.tokens import estimate_tokens
from perdure.errors import UnsupportedVersion
from perdure.session.codec import Body, body_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.kinds import MESSAGE, Compaction
from perdure.session.ledger import (
    BudgetNoted,
    CallPurpose,
    Interrupted,
    InterruptPolicy,
    ModelCalled,
    ModelFinished,
    OutputRefused,
    Spending,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.session.memory.kinds import ContextRecalled
from perdure.session.messages import Message, ToolCallPart, ToolResultPart, Usage
from perdure.session.notes import (
    PROGRAM,
    Adopted,
    Answer,
    CompactionUndone,
    GrantRevoked,
    LeafMoved,
    Question,
    QuestionWithdrawn,
    Queued,
)

CORRECTABLE = frozenset({"unknown_tool", "invalid_arguments", "tool_denied"})
"""Error codes of tool calls that the model can correct. The model can also correct failed reads."""


class Phase(StrEnum):
    """The phase of a turn. In CALLING, RUNNING, BACKOFF and ASKING, the turn waits for an event."""

    IDLE = "idle"
    READY = "ready"
    CALLING = "calling the model"
    BACKOFF = "waiting to call again"
    RUNNING = "running a tool"
    UNSETTLED = "unsure whether a tool ran"
    ASKING = "waiting for an answer"
    FINISHED = "finished"


class OpenCall(msgspec.Struct, frozen=True):
    """A model call without an outcome in the log; in the phase BACKOFF, the call to repeat.

    `tries` counts the attempts with the current model, and `attempt` counts all attempts of the
    call. `next_link` is the chain index of the model for the next attempt.
    """

    seq: int
    call: int
    attempt: int
    model: str
    purpose: CallPurpose
    retry_at: int = 0
    link: int = 0
    tries: int = 1
    next_link: int = 0
    tokens_estimated: int | None = None


class OpenTool(msgspec.Struct, frozen=True):
    """A tool run whose outcome is unknown or not yet in the log."""

    seq: int
    started: ToolStarted


class PendingQuestion(msgspec.Struct, frozen=True):
    """A question whose answer has no effect yet; `answer` is None until a person answers."""

    id: EntryId
    question: Question
    answer: Answer | None = None


class TurnState(msgspec.Struct, frozen=True):
    """A session's open turn.

    Shape: `head` is the seq of the last entry that the state includes. `pending` are the tool calls
    of the last answer that have no result yet, in order. `pending` begins with the running calls:
    first `open_tool`, then the parallel calls in `beside`. `lost` maps the idempotency key of a
    pending call to the number of its lost runs. `awaits` is the id of the message that the previous
    entry announced. `queued` are entries from other writers that wait to be adopted. `ran` counts
    the session's turns that called a model, including this turn after its first call. `parked` maps
    each paused provider to the end of its pause (Unix milliseconds). `renewed` are the providers
    whose key was renewed. `granted` are the grants with which tools can act without asking a
    person. `recalled` are the texts recalled from memory. `refused_answers` counts the answers that
    do not fit the type of the agent's answers. `summary_error` is the reason why the turn's last
    summary failed.
    Units: `started_at` and `answered_at` are Unix milliseconds. `context_tokens` estimates the size
    of the next request in tokens; it is None if unknown. `limit_microcents` is the higher limit
    that a person granted instead of the budget's limit.
    """

    stream: StreamId
    head: int
    phase: Phase = Phase.IDLE
    turn_seq: int = -1
    started_at: int = 0
    agent: str | None = None
    number: int = 0
    ran: int = 0
    base: EntryId | None = None
    on_interrupt: InterruptPolicy = "retry"
    calls: int = 0
    open_call: OpenCall | None = None
    pending: tuple[ToolCallPart, ...] = ()
    open_tool: OpenTool | None = None
    beside: tuple[OpenTool, ...] = ()
    lost: Mapping[str, int] = {}
    question: PendingQuestion | None = None
    queued: tuple[Entry, ...] = ()
    partial: Message | None = None
    answer: Message | None = None
    answer_id: EntryId | None = None
    answered_at: int = 0
    awaits: EntryId | None = None
    owes_answer: bool = False
    tool_rounds: int = 0
    correctable_rounds: int = 0
    is_round_correctable: bool = False
    refused_answers: int = 0
    has_compacted: bool = False
    summary_error: str | None = None
    last_error: str | None = None
    context_tokens: int | None = None
    usage: Usage = Usage()
    ends_session: bool = False
    end_reason: str | None = None
    finished: TurnFinished | None = None
    said_nothing: bool = False
    spent: Spending = Spending()
    limit_microcents: int | None = None
    unpriced_allowed: frozenset[str] = frozenset()
    is_warned: bool = False
    parked: Mapping[str, int] = {}
    renewed: frozenset[str] = frozenset()
    granted: frozenset[str] = frozenset()
    recalled: ContextRecalled | None = None


def fold(state: TurnState, entries: Iterable[Entry]) -> TurnState:
    """Return the state that follows from `state` and the next `entries` of the log."""
    for entry in entries:
        state = _after(state, entry)
    return state


def after(state: TurnState, entry: Entry, body: Body) -> TurnState:
    """Return the state that follows from `state` and the next entry, whose body is `body`."""
    state = msgspec.structs.replace(state, head=entry.seq)
    rule = _RULES.get(entry.kind)
    return state if rule is None else rule(state, entry, body)


def _after(state: TurnState, entry: Entry) -> TurnState:
    if entry.kind not in _RULES:
        return msgspec.structs.replace(state, head=entry.seq)
    try:
        body = body_of(entry)
    except UnsupportedVersion:
        # Reject unknown versions of the turn's own entries; a message may come from any writer.
        if entry.kind != MESSAGE:
            raise
        return msgspec.structs.replace(state, head=entry.seq)
    return after(state, entry, body)


def _context_recalled(state: TurnState, entry: Entry, body: ContextRecalled) -> TurnState:
    return msgspec.structs.replace(state, recalled=body)


def _turn_started(state: TurnState, entry: Entry, body: TurnStarted) -> TurnState:
    return TurnState(
        stream=state.stream,
        head=entry.seq,
        phase=Phase.READY,
        turn_seq=entry.seq,
        started_at=entry.at,
        agent=body.agent,
        number=body.number,
        ran=body.number - 1 if body.ran is None else body.ran,
        base=body.base,
        on_interrupt=body.on_interrupt,
        queued=state.queued,
        context_tokens=body.context_tokens,
        spent=state.spent if body.spent is None else body.spent,
        limit_microcents=body.granted_microcents,
        parked=body.parked,
        granted=frozenset(body.grants),
    )


def _message(state: TurnState, entry: Entry, body: Message) -> TurnState:
    if entry.id == state.awaits:
        calls = body.tool_calls
        return msgspec.structs.replace(
            state,
            answer=body,
            answer_id=entry.id,
            answered_at=entry.at,
            partial=None,
            pending=calls,
            awaits=None,
            owes_answer=bool(calls),
            tool_rounds=state.tool_rounds + bool(calls),
            is_round_correctable=False,
            said_nothing=_says_nothing(body),
        )
    if state.context_tokens is not None:
        tokens = state.context_tokens + estimate_tokens(body)
        state = msgspec.structs.replace(state, context_tokens=tokens)
    if body.role == "tool":
        return msgspec.structs.replace(state, pending=_still_pending(state.pending, body))
    if body.role == "user":
        return msgspec.structs.replace(state, owes_answer=True, has_compacted=False)
    return state


def _says_nothing(answer: Message) -> bool:
    """Return whether the answer has neither text nor calls, or lacks calls that it announces."""
    if answer.tool_calls:
        return False
    return not answer.text.strip() or answer.stop_reason == "tool_calls"


def _still_pending(pending: tuple[ToolCallPart, ...], results: Message) -> tuple[ToolCallPart, ...]:
    # Providers sometimes repeat call ids: a result settles only the first call of its id.
    left = list(pending)
    for part in results.parts:
        if isinstance(part, ToolResultPart):
            settled = next((call for call in left if call.id == part.call_id), None)
            if settled is not None:
                left.remove(settled)
    return tuple(left)


def _model_called(state: TurnState, entry: Entry, body: ModelCalled) -> TurnState:
    before = state.open_call
    is_again = before is not None and (before.call, before.link) == (body.call, body.link)
    open_call = OpenCall(
        seq=entry.seq,
        call=body.call,
        attempt=body.attempt,
        model=body.model,
        purpose=body.purpose,
        link=body.link,
        tries=before.tries + 1 if before is not None and is_again else 1,
        next_link=body.link,
        tokens_estimated=body.tokens_estimated,
    )
    return msgspec.structs.replace(
        state,
        phase=Phase.CALLING,
        open_call=open_call,
        ran=state.ran + (state.calls == 0),
        calls=body.call,
        partial=None,
        question=None,
        context_tokens=body.tokens_estimated or state.context_tokens,
    )


def _model_finished(state: TurnState, entry: Entry, body: ModelFinished) -> TurnState:
    usage = body.usage or Usage()
    call = state.open_call
    is_summary = call is not None and call.purpose == "summary"
    is_answer = call is not None and not is_summary and body.error is None
    tokens = usage.total_tokens if is_answer and usage.total_tokens else state.context_tokens
    provider, parked = None if call is None else provider_of(call.model), state.parked
    if provider is not None and body.parked_until is not None:
        parked = {**parked, provider: body.parked_until}
    state = msgspec.structs.replace(
        state,
        phase=Phase.READY,
        usage=state.usage + usage,
        spent=state.spent.plus(body.usage),
        parked=parked,
        renewed=state.renewed | _one(provider if body.is_renewed else None),
        said_nothing=is_answer,
        context_tokens=tokens,
        owes_answer=state.owes_answer and not is_answer,
        awaits=body.answer,
        last_error=body.error_code,
        summary_error=body.error if is_summary else state.summary_error,
        # A summary that failed for good is not retried before the user's next message.
        has_compacted=state.has_compacted or (is_summary and body.wait_s is None),
    )
    if body.wait_s is None or call is None:
        return msgspec.structs.replace(state, open_call=None)
    next_link = call.link if body.next_link is None else body.next_link
    retry_at = entry.at + round(body.wait_s * 1000)
    waiting = msgspec.structs.replace(call, retry_at=retry_at, next_link=next_link)
    return msgspec.structs.replace(state, phase=Phase.BACKOFF, open_call=waiting)


def provider_of(model: str) -> str:
    """Return the part of ``provider:name`` before the colon."""
    return model.partition(":")[0]


def _budget_noted(state: TurnState, entry: Entry, body: BudgetNoted) -> TurnState:
    return msgspec.structs.replace(state, is_warned=True)


def _output_refused(state: TurnState, entry: Entry, body: OutputRefused) -> TurnState:
    return msgspec.structs.replace(state, refused_answers=state.refused_answers + 1)


def _tool_started(state: TurnState, entry: Entry, body: ToolStarted) -> TurnState:
    started = OpenTool(entry.seq, body)
    if state.phase is Phase.RUNNING:
        return msgspec.structs.replace(state, beside=(*state.beside, started))
    return msgspec.structs.replace(state, phase=Phase.RUNNING, open_tool=started, question=None)


def _tool_finished(state: TurnState, entry: Entry, body: ToolFinished) -> TurnState:
    if body.outcome == "unknown" and body.result is None:
        for run in state.beside:
            if entry_id(state.stream, run.seq) == entry.about:
                return _without(state, run)
        return msgspec.structs.replace(state, phase=Phase.UNSETTLED)
    started = state.open_tool.started if state.open_tool is not None else None
    is_failed_read = body.outcome == "error" and started is not None and started.effect == "read"
    is_correctable = body.error_code in CORRECTABLE or is_failed_read
    counts = is_correctable and not state.is_round_correctable
    onward = state.beside[0] if state.beside and body.result is not None else None
    return msgspec.structs.replace(
        state,
        phase=Phase.READY if onward is None else Phase.RUNNING,
        open_tool=onward,
        beside=state.beside if onward is None else state.beside[1:],
        question=None,
        correctable_rounds=state.correctable_rounds + counts,
        is_round_correctable=state.is_round_correctable or is_correctable,
        ends_session=state.ends_session or body.ends_session,
        spent=state.spent.and_below(body.delegated),
        end_reason=_end_reason(started, body) or state.end_reason,
    )


def _without(state: TurnState, run: OpenTool) -> TurnState:
    """Return `state` without the lost `run` of a parallel tool; its tool call remains pending."""
    lost = {**state.lost, run.started.idempotency_key: run.started.attempt}
    left = tuple(other for other in state.beside if other.seq != run.seq)
    return msgspec.structs.replace(state, beside=left, lost=lost)


def _end_reason(started: ToolStarted | None, body: ToolFinished) -> str | None:
    reason = started.input.get("reason") if body.ends_session and started is not None else None
    return reason if isinstance(reason, str) else None


def _question(state: TurnState, entry: Entry, body: Question) -> TurnState:
    if body.topic == PROGRAM:
        return state
    question = PendingQuestion(entry.id, body)
    return msgspec.structs.replace(state, phase=Phase.ASKING, question=question)


def _answer(state: TurnState, entry: Entry, body: Answer) -> TurnState:
    asked = state.question
    if asked is None or asked.id != entry.about or asked.answer is not None:
        return state
    question = asked.question
    state = msgspec.structs.replace(state, question=msgspec.structs.replace(asked, answer=body))
    if question.topic == "budget" and body.choice == "continue":
        allowed = state.unpriced_allowed | _one(question.grant)
        limit = question.limit_microcents or state.limit_microcents
        return msgspec.structs.replace(state, limit_microcents=limit, unpriced_allowed=allowed)
    if question.topic == "approval" and body.choice == "always" and question.grant:
        return msgspec.structs.replace(state, granted=state.granted | _one(question.grant))
    return state


def _question_withdrawn(state: TurnState, entry: Entry, body: Body) -> TurnState:
    if state.question is None or state.question.id != entry.about:
        return state
    return msgspec.structs.replace(state, phase=Phase.READY, question=None)


def _one(name: str | None) -> frozenset[str]:
    return frozenset((name,)) if name else frozenset[str]()


def _grant_revoked(state: TurnState, entry: Entry, body: GrantRevoked) -> TurnState:
    left = state.granted - _one(body.grant) if body.grant else frozenset[str]()
    return msgspec.structs.replace(state, granted=left)


def _on_queued(state: TurnState, entry: Entry, body: Queued) -> TurnState:
    return msgspec.structs.replace(state, queued=(*state.queued, entry))


def _on_adopted(state: TurnState, entry: Entry, body: Adopted) -> TurnState:
    left = tuple(waiting for waiting in state.queued if waiting.id != entry.about)
    return msgspec.structs.replace(state, queued=left)


def _on_interrupted(state: TurnState, entry: Entry, body: Interrupted) -> TurnState:
    return msgspec.structs.replace(state, partial=body.partial)


def _compaction(state: TurnState, entry: Entry, body: Compaction) -> TurnState:
    return msgspec.structs.replace(state, has_compacted=True, context_tokens=body.tokens_after)


def _leaf(state: TurnState, entry: Entry, body: LeafMoved) -> TurnState:
    return msgspec.structs.replace(state, owes_answer=False, context_tokens=None)


def _undone(state: TurnState, entry: Entry, body: Body) -> TurnState:
    return msgspec.structs.replace(state, context_tokens=None)


def _turn_finished(state: TurnState, entry: Entry, body: TurnFinished) -> TurnState:
    return msgspec.structs.replace(
        state,
        phase=Phase.FINISHED,
        finished=body,
        open_call=None,
        open_tool=None,
        beside=(),
        question=None,
    )


_RULES: Mapping[str, Callable[[TurnState, Entry, Any], TurnState]] = {
    MESSAGE: _message,
    TurnStarted.kind: _turn_started,
    ContextRecalled.kind: _context_recalled,
    ModelCalled.kind: _model_called,
    ModelFinished.kind: _model_finished,
    BudgetNoted.kind: _budget_noted,
    OutputRefused.kind: _output_refused,
    ToolStarted.kind: _tool_started,
    ToolFinished.kind: _tool_finished,
    Question.kind: _question,
    Answer.kind: _answer,
    QuestionWithdrawn.kind: _question_withdrawn,
    GrantRevoked.kind: _grant_revoked,
    Queued.kind: _on_queued,
    Adopted.kind: _on_adopted,
    Interrupted.kind: _on_interrupted,
    Compaction.kind: _compaction,
    LeafMoved.kind: _leaf,
    CompactionUndone.kind: _undone,
    TurnFinished.kind: _turn_finished,
}
