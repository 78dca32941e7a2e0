"""Chats with an agent: turns, steering, abort, compaction, end."""

from __future__ import annotations

import asyncio

import pytest

from perdure.client.agents.chat import steer_open
from perdure.client.conversation.workspace import Selection
from perdure.errors import (
    InvalidTransition,
    LeaseHeld,
    LimitExceeded,
    TurnFailed,
    TurnOpen,
    WrongArgument,
)
from perdure.events.types import Event
from perdure.models.scenario import Cut, Fail, Hang
from perdure.session.codec import body_of
from perdure.session.media.inline import media
from perdure.session.messages import Message, assistant, tool_result, user
from perdure.session.notes import Queued, WorkspaceChanged
from perdure.stores.protocol import Lease
from perdure.tools.spec import ToolCall, ToolOutput
from tests.fakes.chats import Stage, calls, says, until
from tests.fakes.players import Hold, Theatre, words
from tests.fakes.rivals import meanwhile


async def test_awaiting_a_turn_returns_its_reply() -> None:
    chat = await Stage(says("Hello there.")).chat()
    reply = await chat.send("hi")
    assert reply.text == "Hello there."
    assert (reply.end, reply.turn) == ("stop", 1)
    assert reply.usage.total_tokens > 0
    assert [m.role for m in await chat.session.messages()] == ["user", "assistant"]


async def test_turn_can_be_iterated_from_its_beginning_many_times() -> None:
    chat = await Stage(says("a" * 60), says("b")).chat()
    turn = chat.send("hi")
    first = [event async for event in turn]
    again = [event async for event in turn if isinstance(event, Event)]
    types = [event.type for event in first if isinstance(event, Event)]
    assert types[0] == "session:turn_started"
    assert types[-1] == "session:turn_completed"
    assert [event for event in first if isinstance(event, Event)] == again


async def test_leaving_the_iteration_of_a_turn_does_not_stop_the_turn() -> None:
    chat = await Stage(says("one", calls("wait")), says("two")).chat([wait])
    turn = chat.send("go")
    async for _ in turn:
        break
    assert (await turn).text == "two"


async def wait() -> str:
    """Wait a little."""
    await asyncio.sleep(0)
    return "waited"


async def test_second_turn_is_rejected_without_waiting() -> None:
    chat = await Stage(says(Hang())).chat()
    chat.send("hi")
    with pytest.raises(InvalidTransition, match="turn is running; steer adds a message"):
        chat.send("there")
    await chat.abort()


async def test_steering_message_is_answered_by_the_running_turn() -> None:
    stage = Stage(says(calls("slow")), says("as you wish"))
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        entered.set()
        await leave.wait()
        return "done"

    chat = await stage.chat([slow])
    turn = chat.send("go")
    await entered.wait()
    steered = await chat.steer("the other way")
    assert steered.kind == "queued"
    leave.set()
    await turn
    said = [m.text for m in await chat.session.messages() if m.role == "user"]
    assert said == ["go", "the other way"]


async def test_follow_up_is_answered_in_the_same_turn() -> None:
    started = asyncio.Event()

    async def note() -> str:
        started.set()
        await asyncio.sleep(0.01)
        return "noted"

    stage = Stage(says(calls("note")), says("one"), says("two"))
    chat = await stage.chat([note])
    turn = chat.send("go")
    await started.wait()
    queued = await chat.follow_up("and?")
    assert queued.kind == "queued"
    reply = await turn
    assert reply.text == "two"
    assert (await stage.kinds()).count("turn_started") == 1


async def test_follow_up_without_turn_is_rejected() -> None:
    chat = await Stage().chat()
    with pytest.raises(InvalidTransition, match="follow_up is not possible while the turn is idle"):
        await chat.follow_up("too early")


async def test_message_from_another_handle_joins_the_running_turn() -> None:
    stage = Stage(says(calls("note")), says("one"), says("two"))
    entered, leave = asyncio.Event(), asyncio.Event()

    async def note() -> str:
        entered.set()
        await leave.wait()
        return "noted"

    chat = await stage.chat([note])
    turn = chat.send("go")
    await entered.wait()
    other = await stage.store.open(chat.id)
    assert (await other.append(user("me too"))).kind == "queued"
    with pytest.raises(TurnOpen):
        await other.branch(None)
    leave.set()
    await turn
    assert "me too" in [m.text for m in await chat.session.messages()]


async def test_abort_stores_the_partial_answer_and_the_next_turn_works() -> None:
    stage = Stage(says("so far", Hang()), says("again"))
    chat = await stage.chat(on_interrupt="continue")
    turn = chat.send("go")

    async def said() -> bool:
        return any("so far" in shot.partial.text for shot in stage.store.bus.snapshots(chat.id))

    await until(said)
    await chat.abort()
    reply = await turn
    assert reply.end == "aborted"
    assert reply.text == "so far"
    assert (await chat.send("more")).text == "again"


async def test_abort_stops_a_running_tool() -> None:
    stopped = asyncio.Event()
    entered = asyncio.Event()

    async def forever() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    chat = await Stage(says(calls("forever"))).chat([forever])
    turn = chat.send("go")
    await entered.wait()
    await chat.abort()
    assert stopped.is_set()
    assert (await turn).end == "aborted"


async def test_abort_without_a_turn_does_nothing() -> None:
    stage = Stage()
    chat = await stage.chat()
    await chat.abort()
    assert await stage.kinds() == ["session_started"]


async def test_cancel_closes_the_chat_handle_but_not_the_session() -> None:
    stage = Stage(says("one"), says("two"))
    chat = await stage.chat()
    await chat.send("hi")
    await chat.cancel()
    with pytest.raises(InvalidTransition, match="closed"):
        chat.send("still there?")
    again = await stage.runtime(chat.agent).resume(chat.id)
    assert (await again.send("still there?")).text == "two"


async def test_ended_session_is_opened_again_by_its_next_turn() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.end("enough")
    assert (await chat.session.info()).status == "ended"
    again = await stage.runtime(chat.agent).resume(chat.id)
    await again.send("one more thing")
    assert (await again.session.info()).status == "active"


async def test_agent_can_end_its_session() -> None:
    async def bye(call: ToolCall) -> ToolOutput:
        return ToolOutput("bye", ends_session=True)

    chat = await Stage(says(calls("bye")), says("goodbye")).chat([bye])
    await chat.send("that was all")
    assert (await chat.session.info()).status == "ended"


async def test_temporary_failure_is_retried_after_a_wait() -> None:
    stage = Stage(says(Fail("model_unavailable", times=1), "an answer"))
    chat = await stage.chat()
    turn = chat.send("go")
    await until(lambda: backing_off(stage))
    stage.clock.advance(3)
    assert (await turn).text == "an answer"


async def test_interrupted_answer_ends_turn_and_partial_answer_is_stored() -> None:
    stage = Stage(says("half an ans", Cut(times=1), "wer"))
    chat = await stage.chat()
    with pytest.raises(TurnFailed, match="broke off") as failed:
        await chat.send("go")
    assert failed.value.failure == "provider_unavailable"
    assert (await stage.kinds())[-3:] == ["interrupted", "model_finished", "turn_finished"]


async def backing_off(stage: Stage) -> bool:
    return any(left <= 3 for left in stage.clock.sleepers)


async def test_failed_turn_raises_turn_failed_and_is_finished() -> None:
    stage = Stage(says(Fail("model_refused")))
    chat = await stage.chat()
    with pytest.raises(TurnFailed) as failed:
        await chat.send("go")
    assert failed.value.failure == "provider_refused"
    assert (await stage.kinds())[-1] == "turn_finished"


async def test_only_one_process_runs_turns_at_a_time() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    lease = await stage.memory.acquire_lease(chat.id, "another process", 60_000)
    with pytest.raises(LeaseHeld, match="another process"):
        await chat.send("hi")
    await stage.memory.release_lease(lease)
    assert (await chat.send("hi")).text == "one"


async def test_message_refused_because_of_a_lease_stores_no_variable() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    lease = await stage.memory.acquire_lease(chat.id, "another process", 60_000)
    with pytest.raises(LeaseHeld):
        await chat.send("hi", variables={"a": "1"}, active_file="x.py")
    await stage.memory.release_lease(lease)
    await chat.send("hi", variables={"b": "2"})
    (changed,) = [
        body
        for entry in await stage.memory.entries(chat.id)
        if isinstance(body := body_of(entry), WorkspaceChanged)
    ]
    assert changed.workspace["variables"] == {"b": "2"}
    assert "active_file" not in changed.workspace


async def test_workspace_file_name_with_nul_is_rejected() -> None:
    chat = await Stage(says("one")).chat()
    with pytest.raises(WrongArgument, match=r"active_file .* holds a NUL"):
        chat.send("hi", active_file="a\0b")
    with pytest.raises(WrongArgument, match=r"selection .* holds a NUL"):
        chat.send("hi", selection=Selection("a\0b", 1, 2))


async def test_workspace_variables_above_the_limit_are_refused() -> None:
    chat = await Stage(says("one")).chat()
    with pytest.raises(LimitExceeded, match=r"the workspace variables exceeds limits\.template"):
        chat.send("hi", variables={"a": "x" * 3_000_000, "b": "x" * 3_000_000})


async def test_changed_model_and_thinking_level_apply_from_the_next_turn() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.set_model("scripted:echo")
    await chat.set_thinking_level("high")
    reply = await chat.send("hi")
    assert reply.message is not None
    assert reply.message.model == "scripted:echo"
    assert any("thinking level high" in getattr(part, "text", "") for part in reply.message.parts)


async def test_lease_is_released_after_each_turn() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.send("hi")
    lease = await stage.memory.acquire_lease(chat.id, "another", 1000)
    assert isinstance(lease, Lease)


@pytest.mark.parametrize("said", [assistant("I said that?"), tool_result("c", "x")])
async def test_only_user_messages_can_be_sent(said: Message) -> None:
    chat = await Stage().chat()
    with pytest.raises(ValueError, match="send what a person says"):
        chat.send(said)
    with pytest.raises(ValueError, match="send what a person says"):
        await chat.steer(said)
    assert chat.turn is None


@pytest.mark.parametrize("said", ["", " \n", user("", " ")])
async def test_empty_message_is_rejected_before_anything_is_stored(said: str | Message) -> None:
    chat = await Stage().chat()
    with pytest.raises(WrongArgument, match="the message is empty: send text or media"):
        chat.send(said)
    with pytest.raises(WrongArgument, match="is empty"):
        await chat.steer(said)
    with pytest.raises(WrongArgument, match="is empty"):
        await chat.follow_up(said)
    assert await chat.session.messages() == []
    assert chat.turn is None


async def test_message_with_only_media_is_sent() -> None:
    chat = await Stage(says("a picture")).chat()
    reply = await chat.send(user(media(b"\x89PNG\r\n\x1a\n", "image/png")))
    assert reply.text == "a picture"


async def test_chat_has_the_status_idle_running_or_closed() -> None:
    stage = Stage(says(Hang()))
    chat = await stage.chat()
    assert chat.status == "idle"
    chat.send("go")
    assert chat.status == "running"
    await chat.cancel()
    assert chat.status == "closed"


async def test_cancel_of_idle_chat_is_recorded_once() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.cancel()
    await chat.cancel()
    assert (await stage.kinds()).count("session_cancelled") == 1
    assert (await chat.session.info()).status == "active"


@pytest.mark.parametrize("way", ["steer", "follow_up"])
async def test_message_for_a_turn_that_has_just_ended_is_not_stored(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    hold = Hold()
    theatre = Theatre(main=[(hold, *words("one"))])
    chat = await theatre.chat()
    turn = chat.send("hi")
    await hold.entered.wait()

    async def end() -> None:
        hold.leave.set()
        await turn

    meanwhile(monkeypatch, theatre.memory, "message" if way == "steer" else Queued.kind, end)
    if way == "steer":
        assert await steer_open(theatre.memory, chat, "too late") is None
    else:
        with pytest.raises(InvalidTransition):
            await chat.follow_up("too late")
    kinds = [entry.kind for entry in await theatre.entries()]
    assert (kinds.count("message"), kinds.count(Queued.kind)) == (2, 0)
