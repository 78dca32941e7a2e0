"""The acceptance scenarios of Relavium about the life of a session, by their numbers."""

from __future__ import annotations

import asyncio

import pytest

import perdure
from perdure.client.agents.chat import Chat
from perdure.engine.turns.config import Limits
from perdure.errors import InvalidTransition, ModelUnavailable, TurnFailed
from perdure.models.protocol import StreamEnd, TextDelta
from perdure.session.ledger import ModelFinished, TurnFinished, TurnStarted
from perdure.session.messages import ThinkingPart, ToolCallPart, ToolResultPart
from perdure.stores.protocol import Commit, CommitResult
from perdure.tools.decorator import tool
from tests.fakes.players import USED, Hold, Theatre, asks, words

ENDS = ("session:turn_completed", "session:cancelled")


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "a tree"


def ends_of(types: list[str]) -> list[str]:
    """Return the event types in `types` that end a turn or the stream."""
    return [type_ for type_ in types if type_ in ENDS]


async def test_seqs_of_two_turns_and_a_cancellation_have_no_gaps() -> None:
    # Scenario 1 of the specification.
    theatre = Theatre(main=[asks("look"), words("a tree"), words("bye")])
    chat = await theatre.chat(tools=[look])
    await chat.send("what is there?")
    await chat.send("thanks")
    await chat.cancel()
    entries = await theatre.entries()
    assert [entry.seq for entry in entries] == list(range(len(entries)))
    types = await theatre.types()
    brackets = [t for t in types if t in ("session:turn_started", *ENDS)]
    assert brackets == ["session:turn_started", ENDS[0], "session:turn_started", *ENDS]
    assert types[-1] == "session:cancelled"


async def test_text_only_history_omits_tool_calls_from_later_requests() -> None:
    # Scenario 2 of the specification.
    theatre = Theatre(main=[asks("look"), words("a tree"), words("bye")])
    chat = await theatre.chat(tools=[look], history="text_only")
    await chat.send("what is there?")
    await chat.send("thanks")
    parts = [part for m in theatre.players.requests[-1].messages for part in m.parts]
    assert not [p for p in parts if isinstance(p, ToolCallPart | ToolResultPart | ThinkingPart)]
    texts = [m.text for m in theatre.players.requests[-1].messages]
    assert texts == ["what is there?", "a tree", "thanks"]


async def test_later_request_contains_calls_and_results_by_default() -> None:
    # Scenario 2 of the specification.
    theatre = Theatre(main=[asks("look"), words("a tree"), words("bye")])
    chat = await theatre.chat(tools=[look])
    await chat.send("what is there?")
    await chat.send("thanks")
    roles = [m.role for m in theatre.players.requests[-1].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


async def test_turn_over_the_turn_limit_fails_without_a_model_call() -> None:
    # Scenario 4 of the specification.
    theatre = Theatre()
    limits = perdure.Limits(max_turns=1)
    chat = await theatre.chat(limits=limits)
    await chat.send("one")
    with pytest.raises(TurnFailed, match=r"raise max_turns to go on: Runtime\(limits=") as failed:
        await chat.send("two")
    assert failed.value.failure == "turn_limit"
    assert len(theatre.players.requests) == 1
    assert (await theatre.bodies(TurnFinished))[-1].usage == perdure.Usage()
    raised = await theatre.runtime(limits=perdure.Limits(max_turns=9)).resume("s")
    assert (await raised.send("three")).end == "stop"
    kept = [m.text for m in await raised.session.messages() if m.role == "user"]
    assert kept == ["one", "two", "three"]


def test_default_limits_equal_the_specification() -> None:
    # Scenario 4 of the specification.
    assert Limits() == Limits(0, 0, 0) == Limits(50, 16, 3)


async def test_turn_cancelled_at_its_start_sends_no_request() -> None:
    # Scenario 6 of the specification.
    theatre = Theatre()
    chat = await theatre.chat()
    commit = theatre.memory.commit

    async def commit_and_tell(asked: Commit) -> CommitResult:
        committed = await commit(asked)
        if any(entry.kind == TurnStarted.kind for entry in committed.entries[0]):
            turn.cancel()  # as somebody does who is told of it at once
        return committed

    theatre.memory.commit = commit_and_tell  # type: ignore[method-assign] - the earliest moment
    turn = chat.send("go")
    assert (await turn).end == "cancelled"
    await chat.cancel()
    assert ends_of(await theatre.types()) == ["session:cancelled"]
    assert theatre.players.requests == []


async def held(theatre: Theatre, hold: Hold) -> tuple[Chat, perdure.Turn]:
    """A chat whose turn has streamed some text and now waits."""
    chat = await theatre.chat()
    turn = chat.send("go")
    await hold.entered.wait()
    return chat, turn


async def test_turn_cancelled_during_streaming_does_not_complete() -> None:
    # Scenario 7 of the specification.
    hold = Hold()
    theatre = Theatre(main=[(TextDelta("so f"), hold), words("yes")])
    chat, turn = await held(theatre, hold)
    await chat.cancel()
    assert (await turn).end == "cancelled"
    assert "session:turn_completed" not in await theatre.types()
    with pytest.raises(InvalidTransition, match="closed"):
        chat.send("more")
    again = await theatre.runtime().resume("s")
    assert (await again.send("still there?")).text == "yes"


async def test_turn_aborted_during_streaming_ends_once_without_an_error() -> None:
    # Scenario 8 of the specification.
    hold = Hold()
    theatre = Theatre(main=[(TextDelta("so f"), hold), words("yes")])
    chat, turn = await held(theatre, hold)
    await chat.abort()
    assert (await turn).end == "aborted"
    told = [payload for type_, payload in await theatre.events() if type_ in ENDS]
    assert [(each["stopReason"], "error" in each) for each in told] == [("aborted", False)]
    assert (await chat.send("go on")).text == "yes"


async def test_abort_after_the_answer_changes_nothing() -> None:
    # Scenario 9 of the specification.
    theatre = Theatre(main=[words("whole")])
    chat = await theatre.chat()
    turn = chat.send("go")
    reply = await turn
    await chat.abort()
    turn.abort()
    assert (await turn) == reply
    assert ends_of(await theatre.types()) == ["session:turn_completed"]


async def test_simultaneous_abort_and_cancel_report_only_the_cancel() -> None:
    # Scenario 10 of the specification.
    hold = Hold()
    theatre = Theatre(main=[(TextDelta("so f"), hold)])
    chat, _ = await held(theatre, hold)
    await asyncio.gather(chat.abort(), chat.cancel())
    assert ends_of(await theatre.types()) == ["session:cancelled"]
    await chat.cancel()
    assert ends_of(await theatre.types()) == ["session:cancelled"]


async def test_error_in_a_model_client_is_reported_as_internal_without_the_key() -> None:
    # Scenario 11 of the specification.
    theatre = Theatre(main=[(KeyError("sk-secret-key"),)])
    chat = await theatre.chat()
    with pytest.raises(TurnFailed) as failed:
        await chat.send("go")
    assert failed.value.failure == "internal"
    told = [payload["error"] for type_, payload in await theatre.events() if type_ in ENDS]
    assert told[0]["code"] == "internal"
    assert "sk-secret" not in str(failed.value)
    assert all(b"sk-secret" not in entry.body for entry in await theatre.entries())


async def test_connection_lost_during_an_abort_is_not_counted_as_an_outage() -> None:
    # Scenario 17 of the specification.
    hold = Hold()
    theatre = Theatre(main=[(TextDelta("so f"), hold, ModelUnavailable("p:main", "broke"))])
    chat, turn = await held(theatre, hold)
    hold.leave.set()
    turn.abort()
    assert (await turn).end == "aborted"
    finished = (await theatre.bodies(ModelFinished))[-1]
    assert finished.error_code == "cancelled"
    await chat.cancel()


async def test_turn_resumed_after_a_tool_call_keeps_the_tool_result() -> None:
    # Scenario 19 of the specification.
    hold = Hold()
    theatre = Theatre(main=[asks("look"), (hold,), words("a tree")])
    chat = await theatre.chat(tools=[look])
    chat.send("what is there?")
    await hold.entered.wait()
    await chat.suspend()
    agent = perdure.Agent("helper", model="p:main", tools=[look])
    resumed = await theatre.runtime(agent).resume("s")
    assert resumed.turn is not None
    assert (await resumed.turn).text == "a tree"
    roles = [m.role for m in await resumed.session.messages()]
    assert roles == ["user", "assistant", "tool", "assistant"]


async def test_refused_turn_does_not_change_the_spending_of_a_session() -> None:
    # Scenario 23 of the specification.
    theatre = Theatre(main=[words("one")])
    chat = await theatre.chat(limits=perdure.Limits(max_turns=1))
    await chat.send("one")
    before = await chat.spent()
    resumed = await theatre.runtime().resume("s")
    with pytest.raises(TurnFailed):
        await resumed.send("two")
    assert await resumed.spent() == before
    assert before.cost_microcents == USED.total_tokens


async def test_call_approved_after_an_abort_does_not_run() -> None:
    # Scenario 29 of the specification.
    ran: list[str] = []

    async def strike() -> str:
        ran.append("struck")
        return "struck"

    spec = perdure.tool(effect="write")(strike)
    gated = perdure.ToolSpec(
        spec.name, spec.description, spec.parameters, spec.run, action="os", is_gated=True
    )
    theatre = Theatre(main=[asks("strike")])
    chat = await theatre.chat(tools=[gated])
    turn = chat.send("go")
    async for event in turn:
        if event.type == "inbox:question":
            break
    (asked,) = await chat.session.questions()
    assert asked.question.topic == "approval"
    await chat.abort()
    with pytest.raises(perdure.errors.QuestionClosed):
        await chat.session.answer(asked.id, "allow", by="somebody")
    assert (await turn).end == "aborted"
    assert ran == []
    results = [m for m in await chat.session.messages() if m.role == "tool"]
    assert [part.is_error for m in results for part in m.parts if isinstance(part, ToolResultPart)]


async def test_empty_answer_fails_turn() -> None:
    theatre = Theatre(
        main=[
            (StreamEnd("stop", USED),),
            (StreamEnd("tool_calls", USED),),
            (TextDelta("I shall look."), StreamEnd("tool_calls", USED)),
            words("  "),
        ]
    )
    chat = await theatre.chat()
    for _ in range(4):
        with pytest.raises(TurnFailed) as failed:
            await chat.send("go")
        assert failed.value.failure == "empty_answer"
    assert (await chat.spent()).cost_microcents == 4 * USED.total_tokens
