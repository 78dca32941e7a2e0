"""Rules of the turn machine for the start of a turn, and for the outcomes of the turn's effects."""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.engine.turns import inputs
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.rules.chain import Advance, Again, course_after, parked_until
from perdure.engine.turns.rules.progress import (
    attempt_again,
    call_for_summary,
    call_model,
    open_call,
    running_tool,
    start_tools,
    wind_up,
)
from perdure.engine.turns.rules.scribe import Scribe
from perdure.engine.turns.rules.turn_end import (
    finish,
    interrupted_by,
    refuse_pending,
    settle_call,
    settle_open,
    withdraw_question,
)
from perdure.engine.turns.state import OpenCall, Phase
from perdure.errors import ContextOverflow, ModelError
from perdure.secrets.mask import mask_part
from perdure.session.ledger import Failure, ModelFinished, ToolFinished, TurnStarted
from perdure.session.messages import Message, TextPart, ThinkingPart, ToolResultPart
from perdure.session.notes import SessionReopened

SUMMARY_CHARACTERS = 500
"""Maximum characters of a tool's output in its outcome; the message contains all of the output."""

FAILURES: dict[str, Failure] = {
    "model_unavailable": "provider_unavailable",
    "malformed_response": "provider_unavailable",
    "rate_limited": "provider_rate_limit",
    "context_overflow": "context_overflow",
    "model_refused": "provider_refused",
    "credentials_refused": "provider_auth",
}
"""Maps the code of a model error to the failure of the turn. Other codes are ``internal``."""

NOT_IN_FORCE = "the turn was not begun by this user's perdure, so it is not continued here"
"""Reason for ending a turn that came with an import or from a received store."""


def begin(scribe: Scribe, happened: inputs.Begin, config: TurnConfig) -> None:
    """Open the turn, adopt the queued entries, append the user's message, and call the model."""
    if happened.is_reopening:
        scribe.side(SessionReopened())
    started = TurnStarted(
        number=happened.number,
        agent=config.agent,
        base=happened.base,
        on_interrupt=config.on_interrupt,
        context_tokens=happened.context_tokens,
        ran=happened.ran,
        spent=happened.spent,
        granted_microcents=happened.granted_microcents,
        parked=happened.parked,
        grants=happened.grants,
    )
    turn = scribe.side(started, happened.request)
    if happened.recalled is not None:
        scribe.side(happened.recalled, turn)
    for waiting in scribe.state.queued:
        scribe.adopt(waiting)
    scribe.tree(happened.message)
    limit = config.limits.max_turns
    if happened.ran >= limit:
        reason = (
            f"the session has had its {limit} turns; raise max_turns to go on: "
            "Runtime(limits=Limits(max_turns=...))"
        )
        finish(scribe, "error", failure="turn_limit", error=reason)
    else:
        call_model(scribe, config)


def on_answer(scribe: Scribe, happened: inputs.Answered, config: TurnConfig) -> None:
    """Record the answer; run its tools, or end the turn with it."""
    call = open_call(scribe)
    message = happened.message
    if happened.trimmed is not None:
        scribe.side(happened.trimmed, call.seq)
    finished = ModelFinished(
        stop_reason=message.stop_reason,
        usage=message.usage,
        answer=scribe.ahead() if message.parts else None,
        is_estimated=happened.is_estimated,
        spent=scribe.state.spent.plus(message.usage),
    )
    scribe.side(finished, call.seq)
    if message.parts:
        scribe.tree(message)
    if message.stop_reason in ("length", "content_filter"):
        _end_cut_short(scribe, message)
        return
    limit = config.limits.max_tool_rounds
    if scribe.state.pending and scribe.state.tool_rounds > limit:
        reason = (
            f"the model asked for tools {limit + 1} times in one turn; "
            "the next message continues, or raise max_tool_rounds"
        )
        refused = "Not run: the turn's limit is reached."
        refuse_pending(scribe, "refused", refused, "tool_round_limit")
        finish(scribe, "error", failure="tool_round_limit", error=reason)
        return
    if scribe.state.pending:
        start_tools(scribe, config)
    else:
        wind_up(scribe, config)


def _end_cut_short(scribe: Scribe, message: Message) -> None:
    # A call in a cut answer may be incomplete: running it could do half of what was meant.
    refuse_pending(scribe, "refused", "Not run: the answer was cut short.", "answer_cut")
    if message.stop_reason == "content_filter":
        reason = "the provider's content filter stopped the answer"
        finish(scribe, "content_filter", failure="content_filter", error=reason)
    else:
        finish(scribe, "length")


def tool_returned(scribe: Scribe, happened: inputs.ToolReturned, config: TurnConfig) -> None:
    """Record the result; start the next tool call, or call the model."""
    _record_result(scribe, happened)
    start_tools(scribe, config)


def _record_result(scribe: Scribe, happened: inputs.ToolReturned) -> None:
    """Answer the open call with the result of its tool."""
    open_tool = running_tool(scribe)
    started = open_tool.started
    is_error = happened.outcome != "ok"
    part = ToolResultPart(
        started.id,
        happened.text,
        is_error=is_error,
        name=started.tool,
        media=happened.media,
        contents=happened.embedded,
    )
    finished = ToolFinished(
        id=started.id,
        tool=started.tool,
        outcome=happened.outcome,
        succeeded=not is_error,
        result=scribe.ahead(),
        error=happened.error,
        error_code=happened.error_code,
        duration_ms=happened.duration_ms,
        ends_session=happened.ends_session,
        whole=happened.whole,
        summary=None if is_error else _shortened(happened.text) or None,
        delegated=happened.delegated,
    )
    scribe.side(finished, open_tool.seq)
    scribe.tree(Message("tool", (part,)))


def _shortened(text: str) -> str:
    """Return the beginning of a long `text`, masked before it is cut."""
    if len(text) <= SUMMARY_CHARACTERS:
        return text
    return mask_part(text[: 2 * SUMMARY_CHARACTERS], 0, SUMMARY_CHARACTERS)[:SUMMARY_CHARACTERS]


def call_failed(scribe: Scribe, happened: inputs.CallFailed, config: TurnConfig) -> None:
    """Record the failure; then compact, retry, call another model, or end the turn.

    The context is compacted if it was too large for the model.
    """
    call = open_call(scribe)
    error = happened.error
    _note_partial(scribe, call, happened.partial)
    failed = ModelFinished(
        usage=happened.usage,
        error=error.reason,
        error_code=error.code,
        is_estimated=happened.is_estimated,
        spent=scribe.state.spent.plus(happened.usage),
        parked_until=parked_until(error, config, scribe.at),
        is_renewed=happened.is_renewed,
    )
    if _can_compact(scribe, call, error, config):
        scribe.side(failed, call.seq)
        call_for_summary(scribe, config, call.call)
        return
    course = course_after(scribe.state, call, happened, config, scribe.at)
    if isinstance(course, Again):
        scribe.side(msgspec.structs.replace(failed, wait_s=course.wait_s), call.seq)
    elif isinstance(course, Advance):
        onward = msgspec.structs.replace(failed, wait_s=0.0, next_link=course.link)
        scribe.side(onward, call.seq)
        attempt_again(scribe, config)
    else:
        said = _continued_message(scribe, happened.partial)
        _close_cut_call(scribe, call, failed, said)
        _end_or_go_without(scribe, call, error, config)


def _end_or_go_without(
    scribe: Scribe, call: OpenCall, error: ModelError, config: TurnConfig
) -> None:
    """End the turn, because the last attempt of the model call `call` failed.

    If the call was for a summary, the turn continues without a summary.
    """
    if call.purpose == "summary":
        call_model(scribe, config)  # the context is trimmed instead
        return
    reason, unsummarised = str(error), scribe.state.summary_error
    if isinstance(error, ContextOverflow) and unsummarised is not None:
        reason += f"; the summary of the older messages failed before: {unsummarised}"
    failure = FAILURES.get(error.code, "internal")
    finish(scribe, "error", failure=failure, error=reason)


def _can_compact(scribe: Scribe, call: OpenCall, error: ModelError, config: TurnConfig) -> bool:
    is_overflow = (
        isinstance(error, ContextOverflow) and error.can_compact and call.purpose == "answer"
    )
    return is_overflow and config.compaction.is_enabled and not scribe.state.has_compacted


def on_summary(scribe: Scribe, happened: inputs.Summarised, config: TurnConfig) -> None:
    """Add the compaction to the branch, and call the model with the reduced context."""
    finished = ModelFinished(
        stop_reason="stop",
        usage=happened.usage,
        answer=scribe.ahead(),
        is_estimated=happened.is_estimated,
        spent=scribe.state.spent.plus(happened.usage),
    )
    scribe.side(finished, open_call(scribe).seq)
    scribe.tree(happened.compaction)
    call_model(scribe, config)


def nothing_to_summarise(
    scribe: Scribe, happened: inputs.NothingToSummarise, config: TurnConfig
) -> None:
    """Call the model with the whole context, because no message can be replaced by a summary."""
    reason = "nothing can leave the context"
    nothing = ModelFinished(error=reason, error_code="nothing_to_compact")
    scribe.side(nothing, open_call(scribe).seq)
    call_model(scribe, config)


def on_wait_over(scribe: Scribe, happened: inputs.Waited, config: TurnConfig) -> None:
    """Make the next attempt of the failed model call, with the same model or with another one."""
    attempt_again(scribe, config)


def on_abort(scribe: Scribe, happened: inputs.Aborted, config: TurnConfig) -> None:
    """End the turn; the partial answer of the model remains in the log."""
    text = "Not run: the turn was aborted."
    end: Literal["aborted", "cancelled", "interrupted"]
    end = "cancelled" if happened.is_cancel else "aborted"
    if happened.is_interrupted:
        end, text = "interrupted", "Not run: the turn was interrupted, and is not continued here."
    withdraw_question(scribe, end)
    if scribe.state.phase is Phase.CALLING:
        _abort_call(scribe, happened)
    elif scribe.state.open_tool is not None:
        _abort_tools(scribe, happened)
    refuse_pending(scribe, "aborted", text, "cancelled")
    if happened.is_interrupted:
        finish(scribe, end, failure="cancelled", error=NOT_IN_FORCE)
    else:
        finish(scribe, end)


def _abort_tools(scribe: Scribe, happened: inputs.Aborted) -> None:
    """Answer each open tool call: with its result if the tool had ended, otherwise as aborted."""
    ran = "The turn was aborted while the tool ran; it may have taken effect in part."
    below = happened.delegated
    while (run := scribe.state.open_tool) is not None:
        if (returned := happened.returned.get(run.seq)) is not None:
            _record_result(scribe, returned)
        else:
            call = scribe.state.pending[0]
            settle_call(scribe, call, "aborted", ran, error_code="cancelled", delegated=below)
        below = None


def expire(scribe: Scribe) -> None:
    """End the turn because its question expired."""
    withdraw_question(scribe, "expired")
    if scribe.state.open_tool is not None:
        text = "No answer in time whether the tool took effect; it may have."
        settle_open(scribe, text)
    refuse_pending(scribe, "refused", "Not run: no answer in time.", "not_approved")
    reason = "its question was not answered in time; raise question_expires_s"
    finish(scribe, "error", failure="question_expired", error=reason)


def broken(scribe: Scribe, happened: inputs.Broken, config: TurnConfig) -> None:
    """End the turn with an error, in any phase."""
    withdraw_question(scribe, "failed")
    state = scribe.state
    if state.phase is Phase.CALLING:
        failed = ModelFinished(error=happened.reason, error_code="internal", spent=state.spent)
        scribe.side(failed, open_call(scribe).seq)
    elif state.open_tool is not None:
        text = "The turn broke while the tool ran; it may have taken effect."
        settle_open(scribe, text)
    refuse_pending(scribe, "aborted", "Not run: the turn ended with an error.", "cancelled")
    finish(scribe, "error", failure="internal", error=happened.reason)


def _abort_call(scribe: Scribe, happened: inputs.Aborted) -> None:
    call = open_call(scribe)
    said = _continued_message(scribe, happened.partial)
    aborted_call = ModelFinished(
        stop_reason="aborted",
        usage=happened.usage,
        error="the turn was aborted",
        error_code="cancelled",
        is_estimated=happened.is_estimated,
        spent=scribe.state.spent.plus(happened.usage),
    )
    _note_partial(scribe, call, happened.partial)
    _close_cut_call(scribe, call, aborted_call, said)


def _note_partial(scribe: Scribe, call: OpenCall, partial: Message | None) -> None:
    """Store the received part of an interrupted answer as a side entry."""
    if partial is not None and call.purpose == "answer":
        scribe.side(interrupted_by(partial), call.seq)


def _continued_message(scribe: Scribe, partial: Message | None) -> Message | None:
    """Return the texts of a partial answer that stay in the context; None if none stay.

    The texts stay only under the policy ``continue``.
    """
    if partial is None or scribe.state.on_interrupt != "continue":
        return None
    parts = tuple(part for part in partial.parts if isinstance(part, TextPart | ThinkingPart))
    if not any(isinstance(part, TextPart) and part.text.strip() for part in parts):
        return None
    return Message("assistant", parts, model=partial.model, stop_reason="aborted")


def _close_cut_call(
    scribe: Scribe, call: OpenCall, failed: ModelFinished, said: Message | None
) -> None:
    """Record the end of an interrupted call; add the received answer `said` to the branch."""
    is_kept = said is not None and call.purpose == "answer"
    answer = scribe.ahead() if is_kept else None
    scribe.side(msgspec.structs.replace(failed, answer=answer), call.seq)
    if said is not None and is_kept:
        scribe.tree(said)
