"""End a turn, and answer tool calls that do not run."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.engine.turns.rules.scribe import Scribe
from perdure.engine.turns.state import OpenTool
from perdure.session.ledger import (
    Delegated,
    Failure,
    Interrupted,
    ToolFinished,
    ToolOutcome,
    TurnEnd,
    TurnFinished,
)
from perdure.session.media_storage.embedded_base64 import stored_message
from perdure.session.messages import Message, ToolCallPart, ToolResultPart
from perdure.session.notes import QuestionWithdrawn, SessionEnded, WithdrawalReason

_REASONS: Mapping[TurnEnd, WithdrawalReason] = {
    "aborted": "aborted",
    "cancelled": "cancelled",
    "interrupted": "interrupted",
}


def withdraw_question(scribe: Scribe, reason: WithdrawalReason) -> None:
    """Withdraw the question that the turn waits for, unless it was answered."""
    asked = scribe.state.question
    if asked is not None and asked.answer is None:
        scribe.side(QuestionWithdrawn(reason), asked.id)


def settle_call(
    scribe: Scribe,
    call: ToolCallPart,
    outcome: ToolOutcome,
    text: str,
    *,
    error_code: str | None = None,
    delegated: Delegated | None = None,
) -> None:
    """Answer `call` with the error `text` instead of a result of its tool."""
    open_tool = scribe.state.open_tool
    part = ToolResultPart(call.id, text, is_error=True, name=call.name)
    finished = ToolFinished(
        id=call.id,
        tool=call.name,
        outcome=outcome,
        succeeded=False,
        result=scribe.ahead(),
        error=text,
        error_code=error_code,
        delegated=delegated,
    )
    if open_tool is None:
        asked_at = scribe.state.answered_at
        never_ran = msgspec.structs.replace(
            finished, input=call.args, called_at=asked_at, duration_ms=0
        )
        scribe.side(never_ran, scribe.state.answer_id)
    else:
        ran_ms = duration_ms(scribe, open_tool)
        scribe.side(msgspec.structs.replace(finished, duration_ms=ran_ms), open_tool.seq)
    scribe.tree(Message("tool", (part,)))


def settle_open(scribe: Scribe, text: str) -> None:
    """Answer every call that still runs with `text`, which says that the outcome is unknown."""
    while scribe.state.open_tool is not None:
        call = scribe.state.pending[0]
        settle_call(scribe, call, "unknown", text, error_code="unknown_outcome")


def interrupted_by(partial: Message) -> Interrupted:
    """Return the body for `partial`, without the tool calls that contain bytes.

    The tool calls of a partial answer never ran, so omitting them loses no result.
    """
    parts = tuple(
        part
        for part in partial.parts
        if not isinstance(part, ToolCallPart)
        or not stored_message(Message("assistant", (part,)))[1]
    )
    return Interrupted(msgspec.structs.replace(partial, parts=parts))


def duration_ms(scribe: Scribe, open_tool: OpenTool) -> int:
    """Return the time from the start of `open_tool` until now.

    If the end of a tool run is unknown, the log records the result of this function as the duration
    of the run.
    """
    return max(0, scribe.at - open_tool.started.called_at)


def refuse_pending(scribe: Scribe, outcome: ToolOutcome, text: str, error_code: str) -> None:
    """Answer every call that is still pending with `text`."""
    while scribe.state.pending:
        settle_call(scribe, scribe.state.pending[0], outcome, text, error_code=error_code)


def finish(
    scribe: Scribe, end: TurnEnd, *, failure: Failure | None = None, error: str | None = None
) -> None:
    """End the turn; adopt all messages that are still queued, so that none is lost.

    An open question is withdrawn.
    """
    withdraw_question(scribe, _REASONS.get(end, "failed"))
    for waiting in scribe.state.queued:
        scribe.adopt(waiting)
    finished = TurnFinished(end=end, usage=scribe.state.usage, failure=failure, error=error)
    ends_session = scribe.state.ends_session and end == "stop"
    scribe.side(finished, scribe.state.turn_seq)
    if ends_session:
        scribe.side(SessionEnded(by="agent", reason=scribe.state.end_reason))
