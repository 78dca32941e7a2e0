"""Rules for taking over the turn of another process, and for a person's answers.

An effect is lost if its intent has no outcome in the log. It is unknown whether a lost effect
happened, so a rule decides what happens now: for a model call the turn's ``on_interrupt``, and for
a tool run the tool's ``on_unknown``. A tool run is also lost if its connection broke, although no
process died.
"""

from __future__ import annotations

import msgspec

from perdure.engine.turns import inputs
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.rules.budget import estimated_usage
from perdure.engine.turns.rules.outcomes import expire
from perdure.engine.turns.rules.outcomes import tool_returned as tool_finished
from perdure.engine.turns.rules.progress import (
    attempt_again,
    call_model,
    go_on,
    has_begun,
    open_call,
    running_tool,
    start_beside,
    start_tool,
    start_tools,
)
from perdure.engine.turns.rules.questions import (
    approval_digest,
    args_hash,
    ask_about_tool,
    ask_again_elsewhere,
    ask_for_approval,
    ask_how_to_go_on,
)
from perdure.engine.turns.rules.scribe import Scribe
from perdure.engine.turns.rules.turn_end import (
    duration_ms,
    finish,
    interrupted_by,
    refuse_pending,
    settle_call,
)
from perdure.engine.turns.state import OpenTool, PendingQuestion
from perdure.errors import ApprovalStale
from perdure.session.kinds import CONTINUE_TEXT, CustomMessage
from perdure.session.ledger import (
    InterruptPolicy,
    ModelFinished,
    ToolFinished,
    ToolOutcome,
)
from perdure.session.messages import Message, TextPart, ToolResultPart
from perdure.session.notes import ALLOWING, Answer, LeafMoved, Question
from perdure.tools.approval import Ruling

STOPPED_TEXT = "perdure was stopped while the tool ran"

UNKNOWN_TEXT = (
    "Outcome unknown: the tool was cut off while it ran. It may or may not have taken effect; "
    "check before doing it again."
)
_NOTHING = frozenset[str]()

MAX_LOST_ATTEMPTS = 3
"""Maximum starts of a retryable tool if its connection breaks each time."""


def nothing_lost(scribe: Scribe, happened: inputs.Lost, config: TurnConfig) -> None:
    """Do nothing, because the dead process was performing no effect."""


def lost_ready(scribe: Scribe, happened: inputs.Lost | inputs.Woken, config: TurnConfig) -> None:
    """Continue after the process died between two steps, or after a question was withdrawn."""
    go_on(scribe, config)


def lost_call(scribe: Scribe, happened: inputs.Lost, config: TurnConfig) -> None:
    """Repeat a lost model call if no answer had begun; otherwise apply ``on_interrupt``."""
    call = open_call(scribe)
    if happened.partial is not None:
        scribe.side(interrupted_by(happened.partial), call.seq)
    is_answer = call.purpose == "answer"
    policy = scribe.state.on_interrupt if is_answer and happened.has_begun else "retry"
    # It counts against the budget, because the provider may have received the call.
    usage = estimated_usage(call.model, call.tokens_estimated, happened.partial, config)
    failed = ModelFinished(
        usage=usage,
        error="perdure was stopped during the call",
        error_code="interrupted",
        wait_s=0.0,
        model=call.model,
        is_estimated=usage is not None,
        spent=scribe.state.spent.plus(usage),
    )
    if policy == "retry":
        scribe.side(failed, call.seq)
        attempt_again(scribe, config)
        return
    scribe.side(msgspec.structs.replace(failed, wait_s=None), call.seq)
    if policy == "ask":
        ask_how_to_go_on(scribe, call.seq)
    else:
        _go_on_after_cut(scribe, policy, config)


def _go_on_after_cut(scribe: Scribe, policy: InterruptPolicy | str, config: TurnConfig) -> None:
    """Apply `policy` after the interrupted call is closed."""
    partial = scribe.state.partial
    texts = () if partial is None else partial.parts
    kept = tuple(part for part in texts if isinstance(part, TextPart) and part.text.strip())
    if policy == "rollback":
        scribe.side(LeafMoved(scribe.state.base))
        finish(scribe, "interrupted", failure="cancelled", error="the turn was rolled back")
        return
    if policy == "continue" and kept:
        scribe.tree(Message("assistant", kept, model=config.model, stop_reason="aborted"))
        ask = CustomMessage("continuation", (TextPart(CONTINUE_TEXT),), is_displayed=False)
        scribe.tree(ask)
    call_model(scribe, config)


def tool_returned(scribe: Scribe, happened: inputs.ToolReturned, config: TurnConfig) -> None:
    """Record the result; if the outcome is unknown, apply the tool's ``on_unknown``."""
    run = running_tool(scribe)
    started = run.started
    if happened.error_code == ApprovalStale.code and started.approved is not None:
        _ask_again(scribe, run, happened, config)
        return
    if happened.outcome != "unknown":
        tool_finished(scribe, happened, config)
        return
    _end_run(scribe, run, "unknown", happened)
    if started.on_unknown == "retry" and started.attempt >= MAX_LOST_ATTEMPTS:
        _tell_unknown(scribe, config)
    else:
        settle(scribe, happened, config)


def _ask_again(
    scribe: Scribe, run: OpenTool, happened: inputs.ToolReturned, config: TurnConfig
) -> None:
    """Ask for approval again, because the approved target changed before the tool could run."""
    _end_run(scribe, run, "refused", happened)
    # Ignore earlier grants: the person who said "always" has not seen this.
    if not has_begun(scribe, scribe.state.pending[0], scribe.ruling(config, _NOTHING), config):
        start_tools(scribe, config)


def lost_tool(scribe: Scribe, happened: inputs.Lost, config: TurnConfig) -> None:
    """Apply ``on_unknown`` to the tool that ran when the process died."""
    _record_lost(scribe, running_tool(scribe))
    settle(scribe, happened, config)


def _drop_beside(scribe: Scribe) -> None:
    """Record the tools that ran in parallel as lost; their calls become pending again."""
    for run in scribe.state.beside:
        _record_lost(scribe, run)


def _record_lost(scribe: Scribe, run: OpenTool) -> None:
    """Record the end of the tool run `run` with an unknown outcome."""
    ran_ms = duration_ms(scribe, run)
    lost = inputs.ToolReturned("", "unknown", STOPPED_TEXT, "unknown_outcome", ran_ms)
    _end_run(scribe, run, "unknown", lost)


def _end_run(
    scribe: Scribe, run: OpenTool, outcome: ToolOutcome, returned: inputs.ToolReturned
) -> None:
    """Record that `run` ended, without adding a tool result for the model."""
    ended = ToolFinished(
        id=run.started.id,
        tool=run.started.tool,
        outcome=outcome,
        succeeded=False,
        error=returned.error,
        error_code=returned.error_code,
        duration_ms=returned.duration_ms,
    )
    scribe.side(ended, run.seq)


def settle(scribe: Scribe, happened: inputs.Lost | inputs.ToolReturned, config: TurnConfig) -> None:
    """Apply the tool's ``on_unknown`` to a run with an unknown outcome."""
    open_tool = running_tool(scribe)
    started = open_tool.started
    if isinstance(happened, inputs.Lost):
        _drop_beside(scribe)
    if started.on_unknown == "retry":
        _run_again(scribe, open_tool, config)
    elif started.on_unknown == "ask":
        ask_about_tool(scribe, open_tool.seq, started)
    else:
        _tell_unknown(scribe, config)


def _tell_unknown(scribe: Scribe, config: TurnConfig) -> None:
    settle_call(
        scribe, scribe.state.pending[0], "unknown", UNKNOWN_TEXT, error_code="unknown_outcome"
    )
    start_tools(scribe, config)


def _run_again(
    scribe: Scribe, run: OpenTool, config: TurnConfig, *, is_allowed: bool = False
) -> None:
    """Run a tool again if the agent still allows it, or if a person allowed it (`is_allowed`).

    If this process does not have the tool, perdure asks a person about a tool that writes. For a
    tool that only reads, perdure reports an unknown outcome to the model.
    """
    call, started = scribe.state.pending[0], run.started
    is_same = (call.id, call.name, call.args) == (started.id, started.tool, started.input)
    is_here = started.tool in config.tools
    if is_same and not is_here and started.effect != "read":
        ask_about_tool(scribe, run.seq, started, is_here=False)
        return
    if not is_here or not is_same:
        _tell_unknown(scribe, config)
        return
    ruling = scribe.ruling(config, scribe.state.granted)
    if ruling.decision == "refuse":
        _tell_unknown(scribe, config)
        return
    if ruling.decision == "ask" and started.approved is None and not is_allowed:
        ask_for_approval(scribe, call, ruling)
        return
    again = msgspec.structs.replace(started, attempt=started.attempt + 1, called_at=scribe.at)
    scribe.side(again, scribe.state.answer_id)
    start_beside(scribe, config)


def on_wake(
    scribe: Scribe, happened: inputs.Woken | inputs.Expired | inputs.Lost, config: TurnConfig
) -> None:
    """Act on the answer to the open question, or on the expiry of that question."""
    asked = scribe.state.question
    assert asked is not None
    if isinstance(happened, inputs.Lost):
        _drop_beside(scribe)
    if asked.answer is None:
        if asked.question.is_expired(scribe.at):
            expire(scribe)
        return
    topic = asked.question.topic
    if topic == "interrupted":
        _go_on_after_cut(scribe, asked.answer.choice, config)
    elif topic == "budget":
        _spend_as_told(scribe, asked.answer, config)
    elif topic == "approval":
        _run_as_told(scribe, asked, asked.answer, config)
    else:
        _settle_as_told(scribe, asked.answer, config)


def _spend_as_told(scribe: Scribe, answer: Answer, config: TurnConfig) -> None:
    """If the person allows it, make the delayed model call; otherwise end the turn.

    The new cost limit is already part of the state.
    """
    if answer.choice != "continue":
        reason = f"{answer.by} would not spend more"
        finish(scribe, "error", failure="budget_exceeded", error=reason)
    elif scribe.state.open_call is not None:
        attempt_again(scribe, config)
    else:
        call_model(scribe, config)


def _run_as_told(
    scribe: Scribe, asked: PendingQuestion, answer: Answer, config: TurnConfig
) -> None:
    """Start exactly the call that the question shows, or tell the model of the denial.

    If this process does not have the allowed tool, the question is asked again.
    """
    call = scribe.state.pending[0]
    question = asked.question
    is_same = (call.id, args_hash(call.args)) == (question.call_id, question.args_hash)
    if answer.choice in ALLOWING and is_same:
        if call.name in config.tools:
            _start_if_unchanged(scribe, question, config)
        else:
            ask_again_elsewhere(scribe, question)
        return
    text = f"Not run: {answer.by} did not allow it." + (f" {answer.note}" if answer.note else "")
    settle_call(scribe, call, "refused", text, error_code="not_approved")
    if not config.ends_when_denied:
        start_tools(scribe, config)
        return
    left = "Not run: the turn ended when a call before it was denied."
    refuse_pending(scribe, "aborted", left, "cancelled")
    reason = f"{answer.by} denied {call.name}" + (f": {answer.note}" if answer.note else "")
    finish(scribe, "aborted", failure="not_approved", error=reason)


def _start_if_unchanged(scribe: Scribe, question: Question, config: TurnConfig) -> None:
    """Start the approved call if everything shown in the question is unchanged; else ask again.

    The agent, its permissions and its tools can also have changed since the question was asked.
    """
    call = scribe.state.pending[0]
    ruling = scribe.ruling(config, _NOTHING)
    if ruling.decision == "ask" and _facts(ruling) == question.bound:
        start_tool(scribe, call, config, approval_digest(question))
    elif not has_begun(scribe, call, ruling, config):
        start_tools(scribe, config)


def _facts(ruling: Ruling) -> dict[str, str] | None:
    return None if ruling.bound is None else dict(ruling.bound.facts)


def _settle_as_told(scribe: Scribe, answer: Answer, config: TurnConfig) -> None:
    open_tool = running_tool(scribe)
    started = open_tool.started
    if answer.choice == "retry":
        _run_again(scribe, open_tool, config, is_allowed=True)
        return
    if answer.choice == "skip":
        _tell_unknown(scribe, config)
        return
    text = answer.note or f"{answer.by} confirms that the tool took effect."
    finished = ToolFinished(
        id=started.id,
        tool=started.tool,
        outcome="ok",
        succeeded=True,
        result=scribe.ahead(),
        duration_ms=duration_ms(scribe, open_tool),
    )
    scribe.side(finished, open_tool.seq)
    scribe.tree(Message("tool", (ToolResultPart(started.id, text, name=started.tool),)))
    start_tools(scribe, config)
