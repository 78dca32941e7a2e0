"""The turn machine: which inputs each phase allows, and which entries each input appends.

Rule 1: this module and the modules of this package that it imports make every decision about the
next step of a turn. None of the modules that make decisions reads a clock, a disk or a network.
Rule 2: a step of the machine only returns log entries and performs no effect. The effect to perform
follows from the state after the entries of the step (``effects.effect_of``). After a crash, the log
alone determines what the process does next. Rule 3: an outcome and the next intent are in one step,
and therefore in one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perdure.engine.turns import inputs
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.inputs import Input
from perdure.engine.turns.rules import outcomes, takeover
from perdure.engine.turns.rules.scribe import Scribe
from perdure.engine.turns.state import Phase, TurnState
from perdure.errors import InvalidTransition
from perdure.session.entries import NewEntry
from perdure.tools.approval import Bound

Handler = Callable[[Scribe, Any, TurnConfig], None]

_OPEN = tuple(phase for phase in Phase if phase not in (Phase.IDLE, Phase.FINISHED))
"""The phases of an open turn. In each of them, the turn can be aborted or fail."""

RULES: Mapping[tuple[Phase, type], Handler] = {
    (Phase.IDLE, inputs.Begin): outcomes.begin,
    (Phase.FINISHED, inputs.Begin): outcomes.begin,
    (Phase.CALLING, inputs.Answered): outcomes.on_answer,
    (Phase.CALLING, inputs.Summarised): outcomes.on_summary,
    (Phase.CALLING, inputs.NothingToSummarise): outcomes.nothing_to_summarise,
    (Phase.CALLING, inputs.CallFailed): outcomes.call_failed,
    (Phase.BACKOFF, inputs.Waited): outcomes.on_wait_over,
    (Phase.RUNNING, inputs.ToolReturned): takeover.tool_returned,
    (Phase.ASKING, inputs.Woken): takeover.on_wake,
    (Phase.ASKING, inputs.Expired): takeover.on_wake,
    (Phase.READY, inputs.Woken): takeover.lost_ready,
    (Phase.READY, inputs.Lost): takeover.lost_ready,
    (Phase.CALLING, inputs.Lost): takeover.lost_call,
    (Phase.BACKOFF, inputs.Lost): takeover.nothing_lost,
    (Phase.RUNNING, inputs.Lost): takeover.lost_tool,
    (Phase.UNSETTLED, inputs.Lost): takeover.settle,
    (Phase.ASKING, inputs.Lost): takeover.on_wake,
    **{(phase, inputs.Aborted): outcomes.on_abort for phase in _OPEN},
    **{(phase, inputs.Broken): outcomes.broken for phase in _OPEN},
}
"""Maps (phase, input) to the handler. A missing pair is an `InvalidTransition`."""


_NO_BOUNDS: Mapping[int, Bound] = {}


class Step(msgspec.Struct, frozen=True):
    """The result of applying one input to the state of a turn.

    Shape: `entries` are appended in one commit at the previous ``state.head``; `state` is the state
    after these entries. If `entries` is empty, the state does not change.
    """

    state: TurnState
    entries: tuple[NewEntry, ...]


def step(
    state: TurnState,
    happened: Input,
    config: TurnConfig,
    at: int,
    bounds: Mapping[int, Bound] = _NO_BOUNDS,
) -> Step:
    """Return the step that follows from the input `happened`. For `bounds`, see `Scribe`.

    Units: `at` is Unix milliseconds.
    Raises: InvalidTransition if `happened` is not allowed in the phase of the state; Unexamined if
    `bounds` lacks facts that the decision about a pending call could need.
    """
    handler = RULES.get((state.phase, type(happened)))
    if handler is None:
        raise InvalidTransition(state.phase.value, type(happened).__name__)
    scribe = Scribe(state, at, bounds, config.question_expires_s)
    handler(scribe, happened, config)
    return Step(scribe.state, tuple(scribe.entries))
