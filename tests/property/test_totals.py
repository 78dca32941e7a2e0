"""The cost of a session is the sum of its model calls, for any turns."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from perdure.engine.turns import inputs
from perdure.engine.turns.carried import carried_state
from perdure.engine.turns.config import Budget, Link, TurnConfig
from perdure.engine.turns.inputs import Input
from perdure.engine.turns.machine import step
from perdure.engine.turns.state import Phase, TurnState, fold
from perdure.errors import CredentialsRefused, ModelRefused, ModelUnavailable, RateLimited
from perdure.models.retry import RetryPolicy
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId
from perdure.session.ledger import ModelCalled, ModelFinished, Spending
from perdure.session.messages import Usage, assistant, tool_call, user
from perdure.session.notes import Answer
from tests.fakes.turn_log import TOOLS, TurnLog, empty_state

ERRORS = [
    ModelUnavailable("m", "down"),
    RateLimited("m", "slow", 1.0),
    ModelRefused("m", "no"),
    CredentialsRefused("m", "no", 401),
]


def by_token(model: str, usage: Usage) -> int | None:
    """Return a cost of one micro-cent for each token; models of ``x`` have no price."""
    return None if model.startswith("x:") else usage.total_tokens


configs = st.builds(
    TurnConfig,
    agent=st.just("a"),
    model=st.sampled_from(["p:m", "x:m"]),
    tools=st.just(TOOLS),
    retry=st.just(RetryPolicy(max_attempts=2)),
    fallbacks=st.sampled_from([(), (Link("q:m", RetryPolicy(max_attempts=1)),)]),
    restart_on_cut=st.booleans(),
    on_interrupt=st.sampled_from(["retry", "continue", "rollback", "ask"]),
    budget=st.builds(
        Budget,
        st.sampled_from([0, 4_000, 9_000, 50_000]),
        st.sampled_from(["fail", "warn", "pause_for_approval"]),
    ),
    cost=st.just(by_token),
)
usages = st.none() | st.builds(
    Usage, st.integers(0, 900), st.integers(0, 90), cost_microcents=st.none() | st.integers(0, 999)
)
partials = st.none() | st.just(assistant("so far"))


def happening(state: TurnState) -> st.SearchStrategy[Input]:
    """Return the possible events of the state's phase; a dying process is the most likely."""
    gone = st.builds(inputs.Lost, st.booleans(), partials)
    aborted = st.builds(inputs.Aborted, partials, usages, st.booleans(), st.booleans())
    failed = st.builds(
        inputs.CallFailed,
        st.sampled_from(ERRORS),
        partials,
        has_begun=st.booleans(),
        usage=usages,
        is_renewed=st.booleans(),
    )
    message = usages.map(lambda usage: assistant("so", usage=usage))
    asking = usages.map(lambda usage: assistant(tool_call("c", "retry"), usage=usage))
    by_phase: dict[Phase, st.SearchStrategy[Input]] = {
        Phase.CALLING: st.builds(inputs.Answered, message | asking) | failed | aborted | gone,
        Phase.BACKOFF: st.just(inputs.Waited()) | aborted | gone,
        Phase.RUNNING: st.just(inputs.ToolReturned("fine")) | aborted | gone,
        Phase.ASKING: st.just(inputs.Woken()) | aborted | gone,
    }
    return by_phase[state.phase]


def summed(entries: Sequence[Entry]) -> Spending:
    """Return the total spending of all finished model calls."""
    spent = Spending()
    for entry in entries:
        body = body_of(entry)
        if isinstance(body, ModelFinished):
            spent = spent.plus(body.usage)
    return spent


class Reader:
    """A log in memory with the methods that `carried` calls."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    async def entries(
        self, stream: StreamId, after: int = -1, limit: int | None = None
    ) -> list[Entry]:
        return list(self._entries[after + 1 :][:limit])


@given(st.data())
async def test_spending_of_a_session_is_the_sum_of_its_model_calls(
    data: st.DataObject,
) -> None:
    log = TurnLog()
    state = empty_state()
    for number in range(1, data.draw(st.integers(1, 4)) + 1):
        config = data.draw(configs)
        so_far = await carried_state(Reader(log.entries), state.stream, len(log.entries) - 1)  # type: ignore[arg-type] - the one method it calls
        assert so_far.spent == summed(log.entries)
        begin = inputs.Begin(
            user("go"),
            number,
            None,
            10,
            so_far.ran,
            so_far.spent,
            so_far.limit_microcents,
            dict(so_far.parked),
        )
        happened: Input = begin
        state = msgspec.structs.replace(empty_state(), head=len(log.entries) - 1)
        for _ in range(25):
            state = fold(state, log.append(step(state, happened, config, 0).entries))
            assert state.spent == summed(log.entries)
            if state.phase is Phase.FINISHED:
                break
            state = fold(state, log.append(answer_to(data, state)))
            happened = data.draw(happening(state))
        else:
            state = fold(state, log.append(step(state, inputs.Aborted(), config, 0).entries))
    assert_each_call_ends_once(log)


def answer_to(data: st.DataObject, state: TurnState) -> list[NewEntry]:
    """Return an answer to the open question, or none."""
    asked = state.question
    if state.phase is not Phase.ASKING or asked is None or asked.answer is not None:
        return []
    choice = data.draw(st.sampled_from([None, *asked.question.choices]))
    return [] if choice is None else [new_side(Answer(choice, "them"), asked.id)]


def assert_each_call_ends_once(log: TurnLog) -> None:
    calls = [entry.id for entry in log.entries if entry.kind == ModelCalled.kind]
    ended = [entry.about for entry in log.entries if entry.kind == ModelFinished.kind]
    assert sorted(calls) == sorted(str(about) for about in ended)
