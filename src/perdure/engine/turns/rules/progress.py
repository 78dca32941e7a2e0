"""The next step of a turn: adopt queued entries, call the model, start a tool, finish."""

from __future__ import annotations

from perdure.context.compaction import should_compact
from perdure.engine.turns.config import ToolFacts, TurnConfig
from perdure.engine.turns.rules.budget import intend
from perdure.engine.turns.rules.chain import next_link, passed_over
from perdure.engine.turns.rules.questions import args_hash, ask_for_approval
from perdure.engine.turns.rules.scribe import Scribe, is_user_message, queued_of
from perdure.engine.turns.rules.turn_end import finish, settle_call
from perdure.engine.turns.state import OpenCall, OpenTool, Phase, TurnState
from perdure.errors import ToolDenied
from perdure.models.stream import malformed_arguments
from perdure.secrets.mask import mask_secrets
from perdure.session.ledger import ModelCalled, OutputRefused, ToolStarted
from perdure.session.messages import Message, TextPart, ToolCallPart
from perdure.session.notes import QueueMode
from perdure.tools.approval import Ruling, digest_of

SIDE_BY_SIDE = 8
"""Maximum number of read-only tools that run at the same time."""

REPAIR_AUTHOR = "perdure"
"""The author of a message that asks for a corrected answer."""


def go_on(scribe: Scribe, config: TurnConfig) -> None:
    """Do the next pending step: a tool call, a model call, or the end of the turn."""
    if scribe.state.pending:
        start_tools(scribe, config)
    elif scribe.state.owes_answer:
        call_model(scribe, config)
    else:
        wind_up(scribe, config)


def call_model(scribe: Scribe, config: TurnConfig) -> None:
    """Adopt the queued steering messages, then call the model."""
    adopt_waiting(scribe, config, "steer")
    _call(scribe, config)


def _call(scribe: Scribe, config: TurnConfig) -> None:
    """Call a model for an answer; if the context is too large, call it for a summary first."""
    state = scribe.state
    if is_compaction_due(state, config):
        call_for_summary(scribe, config, state.calls + 1)
        return
    link = next_link(state, config, scribe.at)
    if link is None:
        reason = passed_over(state, config, scribe.at)
        finish(scribe, "error", failure="provider_unavailable", error=reason)
        return
    called = ModelCalled(
        call=state.calls + 1,
        model=config.link(link).model,
        tokens_estimated=state.context_tokens,
        link=link,
    )
    intend(scribe, called, config)


def call_for_summary(scribe: Scribe, config: TurnConfig, call: int) -> None:
    """Call the agent's own model for a summary."""
    state = scribe.state
    called = ModelCalled(
        call,
        config.model,
        purpose="summary",
        tokens_estimated=state.context_tokens,
        reason="overflow" if state.last_error == "context_overflow" else "threshold",
    )
    intend(scribe, called, config)


def attempt_again(scribe: Scribe, config: TurnConfig) -> None:
    """Make the next attempt of a failed call, with the same model or with the next one."""
    call = open_call(scribe)
    is_answer = call.purpose == "answer"
    called = ModelCalled(
        call=call.call,
        model=config.link(call.next_link).model if is_answer else config.model,
        attempt=call.attempt + 1,
        purpose=call.purpose,
        tokens_estimated=scribe.state.context_tokens,
        link=call.next_link,
    )
    intend(scribe, called, config)


def open_call(scribe: Scribe) -> OpenCall:
    """Return the model call that the turn waits for."""
    call = scribe.state.open_call
    assert call is not None
    return call


def running_tool(scribe: Scribe) -> OpenTool:
    """Return the running tool call of the turn, or the one whose outcome is unknown."""
    run = scribe.state.open_tool
    assert run is not None
    return run


def is_compaction_due(state: TurnState, config: TurnConfig) -> bool:
    """Return whether the next request would be too large and nothing was compacted yet."""
    settings = config.compaction
    if not settings.is_enabled or state.has_compacted:
        return False
    if state.last_error == "context_overflow":
        return True
    return state.context_tokens is not None and should_compact(
        state.context_tokens,
        config.window_tokens,
        reserve_tokens=settings.reserve_tokens,
        trigger=settings.trigger,
    )


def start_tools(scribe: Scribe, config: TurnConfig) -> None:
    """Start the allowed pending tool calls; refuse the other calls, or ask a person about them."""
    if scribe.state.phase is Phase.RUNNING:
        start_beside(scribe, config)
        return
    while scribe.state.pending:
        call = scribe.state.pending[0]
        if call.name not in config.tools:
            known = ", ".join(sorted(config.tools)) or "none"
            text = f"There is no tool {call.name!r}. Available: {known}."
            settle_call(scribe, call, "refused", text, error_code="unknown_tool")
            continue
        if has_begun(scribe, call, scribe.ruling(config, scribe.state.granted), config):
            return
    after_tools(scribe, config)


def has_begun(scribe: Scribe, call: ToolCallPart, ruling: Ruling, config: TurnConfig) -> bool:
    """Apply `ruling`: start `call`, refuse it, or ask a person. Return False after a refusal."""
    if ruling.decision == "refuse":
        code, text = ruling.error_code or ToolDenied.code, ruling.text
        malformed = malformed_arguments(call)
        if malformed is not None and code == malformed.code:  # the check saw only their wrapper
            text = mask_secrets(str(malformed))
        settle_call(scribe, call, "refused", text, error_code=code)
        return False
    if ruling.decision == "ask":
        ask_for_approval(scribe, call, ruling)
    else:
        bound = ruling.bound
        approved = None if bound is None else digest_of(args_hash(call.args), bound.facts)
        start_tool(scribe, call, config, approved)
        start_beside(scribe, config)
    return True


def start_beside(scribe: Scribe, config: TurnConfig) -> None:
    """Start read-only calls that can run in parallel with the open calls, up to `SIDE_BY_SIDE`.

    A call can run in parallel only if it reads, can be repeated, and needs no approval. The
    parallel calls only read, so their order does not matter. Only tools that are coroutine
    functions run in parallel, because other functions would use the threads that commits need.
    """
    opened = scribe.state.open_tool
    if opened is None or not _allows_beside(opened.started, config):
        return
    while (count := 1 + len(scribe.state.beside)) < min(SIDE_BY_SIDE, len(scribe.state.pending)):
        call = scribe.state.pending[count]
        if call.name not in config.tools or not _runs_beside(config.tools[call.name]):
            return
        ruling = scribe.ruling(config, scribe.state.granted, count)
        if ruling.decision != "run" or ruling.bound is not None:
            return
        start_tool(scribe, call, config)


def _allows_beside(started: ToolStarted, config: TurnConfig) -> bool:
    facts = config.tools.get(started.tool)
    is_async = facts is not None and facts.is_async
    is_reading = started.effect == "read" and started.on_unknown == "retry"
    return is_async and is_reading and started.approved is None


def _runs_beside(facts: ToolFacts) -> bool:
    return facts.effect == "read" and facts.on_unknown == "retry" and facts.is_async


def start_tool(
    scribe: Scribe, call: ToolCallPart, config: TurnConfig, approved: str | None = None
) -> None:
    """Write the intent of `call`, the next call to open. For `approved`, see `ToolStarted`."""
    facts = config.tools[call.name]
    answer = scribe.state.answer
    position = len(answer.tool_calls) - len(scribe.state.pending) if answer else 0
    if scribe.state.phase is Phase.RUNNING:
        position += 1 + len(scribe.state.beside)
    key = f"{scribe.state.answer_id}:{position}"
    started = ToolStarted(
        id=call.id,
        tool=call.name,
        input=call.args,
        called_at=scribe.at,
        effect=facts.effect,
        on_unknown=facts.on_unknown,
        idempotency_key=key,
        attempt=scribe.state.lost.get(key, 0) + 1,
        approved=approved,
        contents=call.contents,
    )
    scribe.side(started, scribe.state.answer_id)


def after_tools(scribe: Scribe, config: TurnConfig) -> None:
    """Send the tool results to the model; end the turn if too many rounds of calls failed."""
    limit = config.limits.max_correctable_rounds
    if scribe.state.correctable_rounds > limit:
        reason = (
            f"more than {limit} rounds of calls that fit no tool, are not allowed, or read what "
            "cannot be read; raise max_correctable_rounds"
        )
        finish(scribe, "error", failure="tool_failed", error=reason)
    else:
        call_model(scribe, config)


def wind_up(scribe: Scribe, config: TurnConfig) -> None:
    """Continue with the queued messages after the model's answer; finish if there are none."""
    adopt_waiting(scribe, config, "steer")
    if not scribe.state.owes_answer:
        adopt_waiting(scribe, config, "follow_up")
    if scribe.state.owes_answer:
        _call(scribe, config)
    elif scribe.state.said_nothing and not scribe.state.ends_session:
        reason = "the model ended its answer without saying anything, or without what it announced"
        finish(scribe, "error", failure="empty_answer", error=reason)
    elif (problem := _output_problem(scribe.state, config)) is not None:
        _refuse_output(scribe, config, problem)
    else:
        finish(scribe, "stop")


def _output_problem(state: TurnState, config: TurnConfig) -> str | None:
    """Return why an answer does not match the agent's output type; None if it matches."""
    if config.output_problem is None or state.answer is None or state.ends_session:
        return None
    return config.output_problem(state.answer.text)


def _refuse_output(scribe: Scribe, config: TurnConfig, problem: str) -> None:
    """Ask the model to correct its answer; end the turn after too many invalid answers."""
    scribe.side(OutputRefused(problem), scribe.state.answer_id)
    limit = config.limits.max_correctable_rounds
    if scribe.state.refused_answers > limit:
        reason = (
            f"{limit + 1} answers do not fit the agent's output, the last one: {problem}; raise "
            "max_correctable_rounds, or simplify the type"
        )
        finish(scribe, "error", failure="invalid_output", error=reason)
        return
    text = (
        f"Your answer does not fit its JSON Schema: {problem}. Send the whole answer again, "
        "corrected, as one JSON object without any text around it."
    )
    scribe.tree(Message("user", (TextPart(text),), author=REPAIR_AUTHOR))
    call_model(scribe, config)


def adopt_waiting(scribe: Scribe, config: TurnConfig, mode: QueueMode) -> None:
    """Adopt the queued entries of `mode`; "one-at-a-time" stops after one user message."""
    for waiting in scribe.state.queued:
        queued = queued_of(waiting)
        if queued.mode != mode:
            continue
        scribe.adopt(waiting)
        if config.queue_mode == "one-at-a-time" and is_user_message(queued):
            return
