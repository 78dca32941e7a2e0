"""What the machine does when another process takes a turn over, or a person has answered.

An intent without an outcome is never simply performed again: a model call follows the turn's
``on_interrupt``, a tool its own ``on_unknown``.
"""

from __future__ import annotations

import hashlib

import msgspec

from perdure.engine.turns import inputs
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.rules.outcomes import open_call
from perdure.engine.turns.rules.progress import call_model, finish, go_on, settle_call, start_tools
from perdure.engine.turns.rules.scribe import Scribe
from perdure.session.codec import encode
from perdure.session.kinds import CustomMessage
from perdure.session.ledger import (
    Interrupted,
    InterruptPolicy,
    ModelCalled,
    ModelFinished,
    ToolFinished,
    ToolStarted,
)
from perdure.session.messages import Message, TextPart, ToolResultPart
from perdure.session.notes import Answer, LeafMoved, Question

UNKNOWN_TEXT = (
    "Outcome unknown: perdure was stopped while the tool ran. It may or may not have taken effect; "
    "check before doing it again."
)
CONTINUE_TEXT = (
    "Your last answer was cut off. Go on exactly where it stops, without repeating any of it."
)


def nothing_lost(scribe: Scribe, happened: inputs.Lost, config: TurnConfig) -> None:
    """Nobody was performing anything."""


def lost_ready(scribe: Scribe, happened: inputs.Lost, config: TurnConfig) -> None:
    """The process died between two steps."""
    go_on(scribe, config)


def lost_call(scribe: Scribe, happened: inputs.Lost, config: TurnConfig) -> None:
    """The process died in a model call: before anything came, call again; else as agreed."""
    call = open_call(scribe)
    if happened.partial is not None:
        scribe.side(Interrupted(happened.partial), call.seq)
    is_answer = call.purpose == "answer"
    policy = scribe.state.on_interrupt if is_answer and happened.has_begun else "retry"
    failed = ModelFinished(
        error="perdure was stopped during the call", error_code="interrupted", wait_s=0.0
    )
    if policy == "retry":
        scribe.side(failed, call.seq)
        _call_again(scribe, config)
        return
    scribe.side(msgspec.structs.replace(failed, wait_s=None), call.seq)
    if policy == "ask":
        _ask_how_to_go_on(scribe, call.seq)
    else:
        _go_on_after_cut(scribe, policy, config)


def _call_again(scribe: Scribe, config: TurnConfig) -> None:
    call = open_call(scribe)
    again = ModelCalled(
        call=call.call,
        model=config.model,
        attempt=call.attempt + 1,
        purpose=call.purpose,
        tokens_estimated=scribe.state.context_tokens,
    )
    scribe.side(again, scribe.state.turn_seq)


def _ask_how_to_go_on(scribe: Scribe, call_seq: int) -> None:
    question = Question(
        topic="interrupted",
        text="perdure was stopped in the middle of an answer. How shall the turn go on?",
        choices=("retry", "continue", "rollback"),
    )
    scribe.side(question, call_seq)


def _go_on_after_cut(scribe: Scribe, policy: InterruptPolicy | str, config: TurnConfig) -> None:
    """Carry out `policy` once the cut call is closed."""
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


def lost_tool(scribe: Scribe, happened: inputs.Lost, config: TurnConfig) -> None:
    """The process died while a tool ran: its outcome is unknown, then its policy decides."""
    open_tool = scribe.state.open_tool
    assert open_tool is not None
    finished = ToolFinished(
        id=open_tool.started.id,
        tool=open_tool.started.tool,
        outcome="unknown",
        succeeded=False,
        error="perdure was stopped while the tool ran",
        error_code="unknown_outcome",
    )
    scribe.side(finished, open_tool.seq)
    settle(scribe, happened, config)


def settle(scribe: Scribe, happened: inputs.Lost, config: TurnConfig) -> None:
    """Do what the tool's ``on_unknown`` says about a run nobody knows the outcome of."""
    open_tool = scribe.state.open_tool
    assert open_tool is not None
    started = open_tool.started
    if started.on_unknown == "retry" and started.tool in config.tools:
        _run_again(scribe, started)
    elif started.on_unknown == "ask":
        _ask_about_tool(scribe, open_tool.seq, started)
    else:
        settle_call(
            scribe, scribe.state.pending[0], "unknown", UNKNOWN_TEXT, error_code="unknown_outcome"
        )
        start_tools(scribe, config)


def _run_again(scribe: Scribe, started: ToolStarted) -> None:
    again = msgspec.structs.replace(started, attempt=started.attempt + 1, called_at=scribe.at)
    scribe.side(again, scribe.state.answer_id)


def _ask_about_tool(scribe: Scribe, seq: int, started: ToolStarted) -> None:
    question = Question(
        topic="unknown_outcome",
        text=(
            f"perdure was stopped while {started.tool} ran; it may have taken effect. "
            "retry: run it again; skip: tell the model that nobody knows; "
            "done: it did take effect, tell the model so (add a note with its result)."
        ),
        choices=("retry", "skip", "done"),
        call_id=started.id,
        args_hash=hashlib.blake2b(encode(started.input), digest_size=32).hexdigest(),
    )
    scribe.side(question, seq)


def woken(scribe: Scribe, happened: inputs.Woken | inputs.Lost, config: TurnConfig) -> None:
    """Act on the answer to the open question, if somebody gave one."""
    asked = scribe.state.question
    assert asked is not None
    if asked.answer is None:
        return
    if asked.question.topic == "interrupted":
        _go_on_after_cut(scribe, asked.answer.choice, config)
    else:
        _settle_as_told(scribe, asked.answer, config)


def _settle_as_told(scribe: Scribe, answer: Answer, config: TurnConfig) -> None:
    open_tool = scribe.state.open_tool
    assert open_tool is not None
    started = open_tool.started
    if answer.choice == "retry":
        _run_again(scribe, started)
        return
    if answer.choice == "skip":
        settle_call(
            scribe, scribe.state.pending[0], "unknown", UNKNOWN_TEXT, error_code="unknown_outcome"
        )
        start_tools(scribe, config)
        return
    text = answer.note or f"{answer.by} confirms that the tool took effect."
    finished = ToolFinished(
        id=started.id, tool=started.tool, outcome="ok", succeeded=True, result=scribe.ahead()
    )
    scribe.side(finished, open_tool.seq)
    scribe.tree(Message("tool", (ToolResultPart(started.id, text, name=started.tool),)))
    start_tools(scribe, config)
