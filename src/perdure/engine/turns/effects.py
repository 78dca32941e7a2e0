"""From a turn's state, derive the effect that a runner has to perform.

At most one effect of a turn, such as a model call, is unfinished at any time. Several tools that
run in parallel count as one effect.
"""

from __future__ import annotations

import msgspec

from perdure.engine.turns.state import OpenCall, OpenTool, Phase, TurnState
from perdure.session.ids import EntryId


class CallModel(msgspec.Struct, frozen=True):
    """Call the model, for an answer or for a summary (`call.purpose`)."""

    call: OpenCall


class Wait(msgspec.Struct, frozen=True):
    """Wait until the time `until`. Units: `until` is Unix milliseconds."""

    until: int


class RunTool(msgspec.Struct, frozen=True):
    """Run `tool` and the tools in `beside`.

    The log already contains the intents of the tools. The effect ends when `tool` has an outcome,
    even if the tools in `beside` still run.
    """

    tool: OpenTool
    beside: tuple[OpenTool, ...] = ()


class AwaitAnswer(msgspec.Struct, frozen=True):
    """Wait until the question is answered."""

    question: EntryId


Effect = CallModel | Wait | RunTool | AwaitAnswer


def effect_of(state: TurnState) -> Effect | None:
    """Return the effect that `state` waits for; None if the turn has ended or never began."""
    if state.phase is Phase.CALLING and state.open_call is not None:
        return CallModel(state.open_call)
    if state.phase is Phase.BACKOFF and state.open_call is not None:
        return Wait(state.open_call.retry_at)
    if state.phase is Phase.RUNNING and state.open_tool is not None:
        return RunTool(state.open_tool, state.beside)
    if state.phase is Phase.ASKING and state.question is not None:
        return AwaitAnswer(state.question.id)
    return None
