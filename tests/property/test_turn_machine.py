"""Random turns: the machine never hangs, answers every call, and is restored from its log alone."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from perdure.engine.turns import inputs
from perdure.engine.turns.config import CompactionSettings, Limits, TurnConfig
from perdure.engine.turns.effects import effect_of
from perdure.engine.turns.inputs import Input
from perdure.engine.turns.machine import RULES, step
from perdure.engine.turns.state import Phase, TurnState, fold
from perdure.errors import (
    ContextOverflow,
    MalformedResponse,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from perdure.session.codec import encode, new_side
from perdure.session.entries import NewEntry
from perdure.session.kinds import Compaction
from perdure.session.ledger import Trimmed
from perdure.session.messages import (
    Message,
    StopReason,
    ToolResultPart,
    Usage,
    assistant,
    tool_call,
    user,
)
from perdure.session.notes import Answer, Queued, QueueMode
from tests.fakes.turn_log import TOOLS, TurnLog, empty_state

ENDS: list[StopReason | None] = [None, None, None, "length", "content_filter"]
MODES: list[QueueMode] = ["steer", "follow_up"]
ERRORS = [
    ModelUnavailable("m", "down"),
    RateLimited("m", "slow down", 1.0),
    ContextOverflow("m", "too long"),
    ModelRefused("m", "no"),
    MalformedResponse("m", "what"),
    ModelError("m", "odd"),
]

configs = st.builds(
    TurnConfig,
    agent=st.just("a"),
    model=st.just("p:m"),
    tools=st.just(TOOLS),
    limits=st.builds(
        Limits,
        max_turns=st.integers(1, 3),
        max_tool_rounds=st.integers(1, 3),
        max_correctable_rounds=st.integers(1, 2),
    ),
    compaction=st.builds(CompactionSettings, is_enabled=st.booleans()),
    on_interrupt=st.sampled_from(["retry", "continue", "rollback", "ask"]),
    queue_mode=st.sampled_from(["one-at-a-time", "all"]),
    window_tokens=st.sampled_from([None, 1_000, 100_000]),
)
calls = st.lists(
    st.builds(
        tool_call,
        st.sampled_from(["c1", "c2", "c3"]),
        st.sampled_from([*TOOLS, "unheard-of"]),
        st.just({"n": 1}),
    ),
    max_size=3,
)
usages = st.none() | st.builds(Usage, st.integers(0, 5_000), st.integers(0, 50))
partials = st.none() | st.builds(assistant, st.sampled_from(["so far", " "]))


@st.composite
def answers(draw: st.DrawFn) -> inputs.Answered:
    texts = draw(st.lists(st.just("words"), max_size=1))
    reason = draw(st.sampled_from(ENDS))
    message = assistant(*texts, *draw(calls), usage=draw(usages), stop_reason=reason)
    return inputs.Answered(message, draw(st.none() | st.just(Trimmed(2, 3))))


def happening(state: TurnState) -> st.SearchStrategy[Input]:
    """Return the events possible in the state's phase, including recovery by another process."""
    failed = st.builds(
        inputs.CallFailed, st.sampled_from(ERRORS), partials, st.floats(0, 1, exclude_max=True)
    )
    aborted = st.builds(inputs.Aborted, partials)
    gone = st.builds(inputs.Lost, st.booleans(), partials)
    returned = st.builds(
        inputs.ToolReturned,
        st.just("result"),
        st.sampled_from(["ok", "error", "timeout"]),
        error_code=st.sampled_from([None, "invalid_arguments"]),
        ends_session=st.booleans(),
    )
    summary = st.builds(
        inputs.Summarised, st.builds(Compaction, st.just("sum"), tokens_after=st.just(100)), usages
    )
    by_phase: dict[Phase, st.SearchStrategy[Input]] = {
        Phase.BACKOFF: st.just(inputs.Waited()) | aborted | gone,
        Phase.RUNNING: returned | aborted | gone,
        Phase.ASKING: st.just(inputs.Woken()) | aborted | gone,
    }
    if state.phase is not Phase.CALLING:
        return by_phase[state.phase]
    is_summary = state.open_call is not None and state.open_call.purpose == "summary"
    done = summary | st.just(inputs.NothingToSummarise()) if is_summary else answers()
    return done | failed | aborted | gone


def somebody_else(data: st.DataObject, state: TurnState) -> tuple[NewEntry, ...]:
    """Return entries that others can append during a turn: later messages, an answer."""
    said = data.draw(st.sampled_from([None, None, user("wait"), assistant("by others")]))
    new: list[NewEntry] = []
    if said is not None:
        mode = data.draw(st.sampled_from(MODES))
        new.append(new_side(Queued("message", msgspec.Raw(encode(said)), mode=mode)))
    asked = state.question
    if state.phase is Phase.ASKING and asked is not None and asked.answer is None:
        choice = data.draw(st.sampled_from([None, *asked.question.choices]))
        if choice is not None:
            new.append(new_side(Answer(choice, "them"), asked.id))
    return tuple(new)


@given(st.data())
def test_turn_ends_with_a_result_for_every_call_in_any_event_order(
    data: st.DataObject,
) -> None:
    config = data.draw(configs)
    log = TurnLog()
    state = empty_state()
    begin = inputs.Begin(user("go"), data.draw(st.integers(1, 4)), None, 10)
    happened: Input = begin
    for _ in range(40):
        decided = step(state, happened, config, 0)
        added = log.append(decided.entries)
        state = fold(state, added)
        assert state == decided.state
        assert fold(empty_state(), log.entries) == state
        if state.phase is Phase.FINISHED:
            break
        assert effect_of(state) is not None
        state = fold(state, log.append(somebody_else(data, state)))
        happened = data.draw(happening(state))
    else:
        state = fold(state, log.append(step(state, inputs.Aborted(), config, 0).entries))
    assert_over(state, log)


def assert_over(state: TurnState, log: TurnLog) -> None:
    assert state.phase is Phase.FINISHED
    assert effect_of(state) is None
    assert state.queued == ()
    assert state.pending == ()
    messages = [m for entry in log.entries if (m := entry.message) and entry.lane == "tree"]
    assert_answered(messages)


def assert_answered(messages: list[Message]) -> None:
    owed: list[str] = []
    for message in messages:
        if message.role == "tool":
            for part in message.parts:
                assert isinstance(part, ToolResultPart)
                owed.remove(part.call_id)
        elif message.model is None:
            owed += [call.id for call in message.tool_calls]
    assert owed == []


@given(st.data())
def test_any_log_prefix_can_be_recovered_and_finished(
    data: st.DataObject,
) -> None:
    config = data.draw(configs)
    log = TurnLog()
    state = empty_state()
    happened: Input = inputs.Begin(user("go"), 1, None, 10)
    for _ in range(data.draw(st.integers(1, 15))):
        state = fold(state, log.append(step(state, happened, config, 0).entries))
        if state.phase is Phase.FINISHED:
            return
        happened = data.draw(happening(state))
    log.entries = log.entries[: data.draw(st.sampled_from(log.commits))]
    state = fold(empty_state(), log.entries)
    if state.phase is Phase.FINISHED:
        return
    happened = data.draw(st.builds(inputs.Lost, st.booleans(), partials))
    for _ in range(60):
        state = fold(state, log.append(step(state, happened, config, 0).entries))
        if state.phase is Phase.FINISHED:
            break
        state, happened = the_plain_course(state, log)
    assert_over(state, log)


def the_plain_course(state: TurnState, log: TurnLog) -> tuple[TurnState, Input]:
    """Return the state and the next input that lets the turn finish without further failures."""
    if state.phase is Phase.BACKOFF:
        return state, inputs.Waited()
    if state.phase is Phase.RUNNING:
        return state, inputs.ToolReturned("fine")
    if state.phase is Phase.CALLING:
        if state.open_call is not None and state.open_call.purpose == "summary":
            return state, inputs.NothingToSummarise()
        return state, inputs.Answered(assistant("done"))
    assert state.question is not None
    if state.question.answer is None:
        choice = state.question.question.choices[0]
        answer = new_side(Answer(choice, "them"), state.question.id)
        state = fold(state, log.append((answer,)))
    return state, inputs.Woken()


def test_every_phase_of_an_open_turn_handles_abort_and_process_death() -> None:
    begins = {phase for phase, kind in RULES if kind is inputs.Begin}
    assert begins == {Phase.IDLE, Phase.FINISHED}
    open_phases = set(Phase) - begins
    assert {phase for phase, kind in RULES if kind is inputs.Lost} == open_phases
    assert {phase for phase, kind in RULES if kind is inputs.Aborted} == open_phases
