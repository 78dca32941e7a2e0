"""What the machine does with what happened: beginning, answer, failure, result, abort."""

from __future__ import annotations

import msgspec

from perdure.engine.turns import inputs
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.rules.progress import (
    call_model,
    finish,
    refuse_pending,
    settle_call,
    start_tools,
    wind_up,
)
from perdure.engine.turns.rules.scribe import Scribe
from perdure.engine.turns.state import OpenCall
from perdure.errors import ContextOverflow, ModelError
from perdure.models.retry import next_wait
from perdure.session.ledger import (
    Failure,
    Interrupted,
    ModelCalled,
    ModelFinished,
    ToolFinished,
    Trimmed,
    TurnStarted,
)
from perdure.session.messages import Message, TextPart, ThinkingPart, ToolResultPart

FAILURES: dict[str, Failure] = {
    "model_unavailable": "provider_unavailable",
    "malformed_response": "provider_unavailable",
    "rate_limited": "provider_rate_limit",
    "context_overflow": "context_overflow",
    "model_refused": "provider_refused",
}
"""Code of a model error -> why the turn failed. Anything else is ``internal``."""


def begin(scribe: Scribe, happened: inputs.Begin, config: TurnConfig) -> None:
    """Open the turn, take in what waited, then the user's message, and call the model."""
    started = TurnStarted(
        number=happened.number,
        agent=config.agent,
        base=happened.base,
        on_interrupt=config.on_interrupt,
        context_tokens=happened.context_tokens,
    )
    scribe.side(started)
    limit = config.limits.max_turns
    if happened.number > limit:
        reason = f"the session has had its {limit} turns; raise max_turns to go on"
        finish(scribe, "error", failure="turn_limit", error=reason)
        return
    for waiting in scribe.state.queued:
        scribe.adopt(waiting)
    scribe.tree(happened.message)
    call_model(scribe, config)


def answered(scribe: Scribe, happened: inputs.Answered, config: TurnConfig) -> None:
    """Keep the answer; run its tools, or end the turn with it."""
    call = open_call(scribe)
    message = happened.message
    if happened.dropped:
        scribe.side(Trimmed(happened.dropped, happened.kept), call.seq)
    finished = ModelFinished(
        stop_reason=message.stop_reason,
        usage=message.usage,
        answer=scribe.ahead() if message.parts else None,
    )
    scribe.side(finished, call.seq)
    if message.parts:
        scribe.tree(message)
    if message.stop_reason in ("length", "content_filter"):
        _end_cut_short(scribe, message)
        return
    limit = config.limits.max_tool_rounds
    if scribe.state.pending and scribe.state.tool_rounds > limit:
        reason = f"the model asked for tools {limit + 1} times in one turn; raise max_tool_rounds"
        refuse_pending(scribe, "refused", "Not run: the turn's limit is reached.", "turn_limit")
        finish(scribe, "error", failure="turn_limit", error=reason)
        return
    if scribe.state.pending:
        start_tools(scribe, config)
    else:
        wind_up(scribe, config)


def _end_cut_short(scribe: Scribe, message: Message) -> None:
    # A call in an answer that was cut may itself be cut: run, it could do half of what was meant.
    refuse_pending(scribe, "refused", "Not run: the answer was cut short.", "answer_cut")
    if message.stop_reason == "content_filter":
        reason = "the provider's content filter stopped the answer"
        finish(scribe, "content_filter", failure="content_filter", error=reason)
    else:
        finish(scribe, "length")


def tool_returned(scribe: Scribe, happened: inputs.ToolReturned, config: TurnConfig) -> None:
    """Keep the result; start the next call, or tell the model."""
    open_tool = scribe.state.open_tool
    assert open_tool is not None
    started = open_tool.started
    is_error = happened.outcome != "ok"
    part = ToolResultPart(
        started.id, happened.text, is_error=is_error, name=started.tool, media=happened.media
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
    )
    scribe.side(finished, open_tool.seq)
    scribe.tree(Message("tool", (part,)))
    start_tools(scribe, config)


def call_failed(scribe: Scribe, happened: inputs.CallFailed, config: TurnConfig) -> None:
    """Compact after an overflow, try again after a passing failure, else end the turn."""
    call = open_call(scribe)
    error = happened.error
    if happened.partial is not None:
        scribe.side(Interrupted(happened.partial), call.seq)
    wait_s = next_wait(config.retry, call.attempt, error, happened.random01)
    failed = ModelFinished(error=error.reason, error_code=error.code, wait_s=wait_s)
    if _can_compact(scribe, call, error, config):
        scribe.side(msgspec.structs.replace(failed, wait_s=None), call.seq)
        summary = ModelCalled(call=call.call, model=config.model, purpose="summary")
        scribe.side(summary, scribe.state.turn_seq)
        return
    scribe.side(failed, call.seq)
    if wait_s is not None:
        return
    if call.purpose == "summary" and not isinstance(error, ContextOverflow):
        call_model(scribe, config)
    else:
        failure = FAILURES.get(error.code, "internal")
        finish(scribe, "error", failure=failure, error=str(error))


def _can_compact(scribe: Scribe, call: OpenCall, error: ModelError, config: TurnConfig) -> bool:
    is_overflow = isinstance(error, ContextOverflow) and call.purpose == "answer"
    return is_overflow and config.compaction.is_enabled and not scribe.state.has_compacted


def summarised(scribe: Scribe, happened: inputs.Summarised, config: TurnConfig) -> None:
    """Put the compaction on the branch, and call the model with the context it leaves."""
    call = open_call(scribe)
    finished = ModelFinished(stop_reason="stop", usage=happened.usage, answer=scribe.ahead())
    scribe.side(finished, call.seq)
    scribe.tree(happened.compaction)
    call_model(scribe, config)


def nothing_to_summarise(
    scribe: Scribe, happened: inputs.NothingToSummarise, config: TurnConfig
) -> None:
    """Nothing can leave the context: call the model with all of it."""
    call = open_call(scribe)
    reason = "nothing can leave the context"
    scribe.side(ModelFinished(error=reason, error_code="nothing_to_compact"), call.seq)
    call_model(scribe, config)


def waited(scribe: Scribe, happened: inputs.Waited, config: TurnConfig) -> None:
    """The next attempt at the same call."""
    call = open_call(scribe)
    again = ModelCalled(
        call=call.call,
        model=config.model,
        attempt=call.attempt + 1,
        purpose=call.purpose,
        tokens_estimated=scribe.state.context_tokens,
    )
    scribe.side(again, scribe.state.turn_seq)


def aborted(scribe: Scribe, happened: inputs.Aborted, config: TurnConfig) -> None:
    """End the turn; what the model had said so far stays on the branch."""
    text = "Not run: the turn was aborted."
    if scribe.state.open_call is not None:
        _keep_partial(scribe, happened.partial)
    elif scribe.state.open_tool is not None:
        ran = "The turn was aborted while the tool ran; it may have taken effect in part."
        settle_call(scribe, scribe.state.pending[0], "aborted", ran, error_code="cancelled")
    refuse_pending(scribe, "aborted", text, "cancelled")
    finish(scribe, "aborted")


def _keep_partial(scribe: Scribe, partial: Message | None) -> None:
    call = open_call(scribe)
    shown = () if partial is None else partial.parts
    parts = tuple(part for part in shown if isinstance(part, TextPart | ThinkingPart))
    is_kept = call.purpose == "answer" and any(isinstance(part, TextPart) for part in parts)
    aborted_call = ModelFinished(
        stop_reason="aborted",
        answer=scribe.ahead() if is_kept else None,
        error="the turn was aborted",
        error_code="cancelled",
    )
    scribe.side(aborted_call, call.seq)
    if is_kept:
        scribe.tree(Message("assistant", parts, model=call.model, stop_reason="aborted"))


def open_call(scribe: Scribe) -> OpenCall:
    """The model call the turn waits for."""
    call = scribe.state.open_call
    assert call is not None
    return call
