"""What a turn does next: adopt what waits, call the model, start a tool, finish."""

from __future__ import annotations

from perdure.context.compaction import should_compact
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.rules.scribe import Scribe, is_user_message, queued_of
from perdure.engine.turns.state import TurnState
from perdure.session.ledger import (
    Failure,
    ModelCalled,
    ToolFinished,
    ToolOutcome,
    ToolStarted,
    TurnEnd,
    TurnFinished,
)
from perdure.session.messages import Message, ToolCallPart, ToolResultPart
from perdure.session.notes import QueueMode, SessionEnded


def go_on(scribe: Scribe, config: TurnConfig) -> None:
    """Do what is owed: the next tool call, a model call, or the end of the turn."""
    if scribe.state.pending:
        start_tools(scribe, config)
    elif scribe.state.owes_answer:
        call_model(scribe, config)
    else:
        wind_up(scribe, config)


def call_model(scribe: Scribe, config: TurnConfig) -> None:
    """Take in what was said to steer the turn, then call the model."""
    adopt_waiting(scribe, config, "steer")
    _call(scribe, config)


def _call(scribe: Scribe, config: TurnConfig) -> None:
    """Call the model for an answer, or first for a summary where the context has grown too far."""
    state = scribe.state
    is_summary = is_compaction_due(state, config)
    scribe.side(
        ModelCalled(
            call=state.calls + 1,
            model=config.model,
            purpose="summary" if is_summary else "answer",
            tokens_estimated=state.context_tokens,
        ),
        state.turn_seq,
    )


def is_compaction_due(state: TurnState, config: TurnConfig) -> bool:
    """The next request would come too near to the window, and nothing was compacted yet."""
    settings = config.compaction
    if not settings.is_enabled or state.has_compacted or state.context_tokens is None:
        return False
    return should_compact(
        state.context_tokens,
        config.window_tokens,
        reserve_tokens=settings.reserve_tokens,
        trigger=settings.trigger,
    )


def start_tools(scribe: Scribe, config: TurnConfig) -> None:
    """Start the next pending tool call; calls of unknown tools are answered at once."""
    while scribe.state.pending:
        call = scribe.state.pending[0]
        facts = config.tools.get(call.name)
        if facts is None:
            known = ", ".join(sorted(config.tools)) or "none"
            text = f"There is no tool {call.name!r}. Available: {known}."
            settle_call(scribe, call, "refused", text, error_code="unknown_tool")
            continue
        answer = scribe.state.answer
        position = len(answer.tool_calls) - len(scribe.state.pending) if answer else 0
        started = ToolStarted(
            id=call.id,
            tool=call.name,
            input=call.args,
            called_at=scribe.at,
            effect=facts.effect,
            on_unknown=facts.on_unknown,
            idempotency_key=f"{scribe.state.answer_id}:{position}",
        )
        scribe.side(started, scribe.state.answer_id)
        return
    after_tools(scribe, config)


def after_tools(scribe: Scribe, config: TurnConfig) -> None:
    """Every call of the answer has its result: tell the model, unless it errs without end."""
    limit = config.limits.max_correctable_rounds
    if scribe.state.correctable_rounds > limit:
        reason = f"more than {limit} rounds of calls that fit no tool"
        finish(scribe, "error", failure="tool_failed", error=reason)
    else:
        call_model(scribe, config)


def settle_call(
    scribe: Scribe,
    call: ToolCallPart,
    outcome: ToolOutcome,
    text: str,
    *,
    error_code: str | None = None,
) -> None:
    """Answer a tool call that does not run (or of which nobody knows), with an error text."""
    open_tool = scribe.state.open_tool
    about = open_tool.seq if open_tool is not None else scribe.state.answer_id
    part = ToolResultPart(call.id, text, is_error=True, name=call.name)
    finished = ToolFinished(
        id=call.id,
        tool=call.name,
        outcome=outcome,
        succeeded=False,
        result=scribe.ahead(),
        error=text,
        error_code=error_code,
    )
    scribe.side(finished, about)
    scribe.tree(Message("tool", (part,)))


def refuse_pending(scribe: Scribe, outcome: ToolOutcome, text: str, error_code: str) -> None:
    """Answer every call that is still pending with `text`."""
    while scribe.state.pending:
        settle_call(scribe, scribe.state.pending[0], outcome, text, error_code=error_code)


def wind_up(scribe: Scribe, config: TurnConfig) -> None:
    """The model is done: go on with what was said meanwhile, else finish."""
    adopt_waiting(scribe, config, "steer")
    if not scribe.state.owes_answer:
        adopt_waiting(scribe, config, "follow_up")
    if scribe.state.owes_answer:
        _call(scribe, config)
    else:
        finish(scribe, "stop")


def adopt_waiting(scribe: Scribe, config: TurnConfig, mode: QueueMode) -> None:
    """Adopt what waits in `mode`, in order; unless "all" is set, up to one user message."""
    for waiting in scribe.state.queued:
        queued = queued_of(waiting)
        if queued.mode != mode:
            continue
        scribe.adopt(waiting)
        if config.queue_mode == "one-at-a-time" and is_user_message(queued):
            return


def finish(
    scribe: Scribe, end: TurnEnd, *, failure: Failure | None = None, error: str | None = None
) -> None:
    """End the turn; whatever still waits is adopted, so that nothing said is left out."""
    for waiting in scribe.state.queued:
        scribe.adopt(waiting)
    finished = TurnFinished(end=end, usage=scribe.state.usage, failure=failure, error=error)
    ends_session = scribe.state.ends_session and end == "stop"
    scribe.side(finished, scribe.state.turn_seq)
    if ends_session:
        scribe.side(SessionEnded(by="agent"))
