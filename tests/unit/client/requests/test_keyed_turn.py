"""Messages that are sent again with the same idempotency key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

import perdure
from perdure import Agent, Runtime, Store
from perdure.errors import IdempotencyMismatch, InvalidTransition, TurnOpen
from perdure.testing import ScriptedModel

AGENT = Agent("local", model="test:m")


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with perdure.open("memory:") as opened:
        yield opened


async def asked(store: Store, session: str) -> list[str]:
    """Return the user messages of the session."""
    messages = await (await store.open(session)).messages()
    return [message.text for message in messages if message.role == "user"]


async def test_message_repeated_with_the_same_key_gets_the_reply_of_the_first_call(
    store: Store,
) -> None:
    models = ScriptedModel(["One.", "Two."])
    async with Runtime(store, [AGENT], models=models) as runtime:
        chat = await runtime.start("local")
        first = await chat.send("Count.", idempotency_key="k")
        assert first.text == "One."
        again = chat.send("Count.", idempotency_key="k")
        assert await again == first
        types = [event.type async for event in again]
        assert types[-1] == "session:turn_completed"
        other = await runtime.resume(chat.id)
        assert await other.send("Count.", idempotency_key="k") == first
        assert (await other.send("Count.", idempotency_key="l")).text == "Two."
    assert await asked(store, chat.id) == ["Count.", "Count."]
    assert len(models.requests) == 2


async def test_message_repeated_during_its_turn_gets_the_same_reply(store: Store) -> None:
    release = asyncio.Event()

    async def slow() -> str:
        """Wait."""
        await release.wait()
        return "done"

    agent = Agent("slow", model="test:m", tools=[perdure.tool(slow)])
    models = ScriptedModel([perdure.assistant(perdure.ToolCallPart("c1", "slow", {})), "Done."])
    async with Runtime(store, [agent], models=models) as runtime:
        chat = await runtime.start("slow")
        turn = chat.send("Work.", idempotency_key="k")
        await turn.started()
        same = chat.send("Work.", idempotency_key="k")
        other = (await runtime.resume(chat.id)).send("Work.", idempotency_key="k")
        await asyncio.gather(same.started(), other.started())
        release.set()
        assert (await turn) == (await same) == (await other)
    assert await asked(store, chat.id) == ["Work."]


async def test_keyed_message_waits_for_another_turn_of_the_session(store: Store) -> None:
    models = ScriptedModel(["One.", "Two."])
    async with Runtime(store, [AGENT], models=models) as runtime:
        chat = await runtime.start("local")
        first = chat.send("First.")
        second = chat.send("Second.", idempotency_key="k")
        assert (await first).text == "One."
        assert (await second).text == "Two."
    assert await asked(store, chat.id) == ["First.", "Second."]


async def test_message_of_another_handle_waits_for_the_running_turn(store: Store) -> None:
    release = asyncio.Event()

    async def slow() -> str:
        """Wait."""
        await release.wait()
        return "done"

    agent = Agent("slow", model="test:m", tools=[perdure.tool(slow)])
    call = perdure.assistant(perdure.ToolCallPart("c1", "slow", {}))
    models = ScriptedModel([call, "Done.", "Second."])
    async with Runtime(store, [agent], models=models) as runtime:
        chat = await runtime.start("slow")
        first = chat.send("First.")
        await first.started()
        second = (await runtime.resume(chat.id)).send("Second.", idempotency_key="k")
        await second.stored()
        await asyncio.sleep(0.05)
        assert second.is_running
        release.set()
        assert ((await first).text, (await second).text) == ("Done.", "Second.")
    assert await asked(store, chat.id) == ["First.", "Second."]


async def test_message_repeated_during_another_turn_is_stored_once(store: Store) -> None:
    release = asyncio.Event()

    async def slow() -> str:
        """Wait."""
        await release.wait()
        return "done"

    agent = Agent("slow", model="test:m", tools=[perdure.tool(slow)])
    call = perdure.assistant(perdure.ToolCallPart("c1", "slow", {}))
    models = ScriptedModel([call, "Done.", "Second."])
    async with Runtime(store, [agent], models=models) as runtime:
        chat = await runtime.start("slow")
        first = chat.send("First.")
        await first.started()
        for _ in range(2):
            await chat.send("Second.", idempotency_key="k").stored()
        assert chat.is_running
        release.set()
        await first
        assert (await chat.send("Second.", idempotency_key="k")).text == "Second."
    assert await asked(store, chat.id) == ["First.", "Second."]


async def test_idempotency_key_of_another_message_is_refused(store: Store) -> None:
    async with Runtime(store, [AGENT], models=ScriptedModel(["One."])) as runtime:
        chat = await runtime.start("local")
        await chat.send("Count.", idempotency_key="k")
        with pytest.raises(IdempotencyMismatch):
            await chat.send("Count down.", idempotency_key="k")
    assert await asked(store, chat.id) == ["Count."]


async def test_same_idempotency_key_in_two_sessions_sends_two_messages(store: Store) -> None:
    async with Runtime(store, [AGENT], models=ScriptedModel(["One."])) as runtime:
        first, second = await runtime.start("local"), await runtime.start("local")
        assert (await first.send("Count.", idempotency_key="k")).text == "One."
        await second.send("Count on.", idempotency_key="k")
        with pytest.raises(IdempotencyMismatch, match="key 'k' was"):
            await second.send("Count.", idempotency_key="k")
    assert await asked(store, second.id) == ["Count on."]


async def test_message_repeated_after_abort_returns_the_aborted_turn(store: Store) -> None:
    async with Runtime(store, [AGENT], models=ScriptedModel(["One."])) as runtime:
        chat = await runtime.start("local")
        turn = chat.send("Count.", idempotency_key="k")
        turn.abort()
        assert (await turn).end == "aborted"
        assert (await chat.send("Count.", idempotency_key="k")).end == "aborted"


async def test_suspended_turn_is_continued_by_a_message_with_the_same_key(store: Store) -> None:
    ran = asyncio.Event()

    async def slow() -> str:
        """Wait the first time."""
        if not ran.is_set():
            ran.set()
            await asyncio.Event().wait()
        return "done"

    agent = Agent("slow", model="test:m", tools=[perdure.tool(on_unknown="retry")(slow)])
    models = ScriptedModel([perdure.assistant(perdure.ToolCallPart("c1", "slow", {})), "Done."])
    async with Runtime(store, [agent], models=models) as runtime:
        chat = await runtime.start("slow")
        chat.send("Work.", idempotency_key="k")
        await ran.wait()
        await chat.suspend()
        with pytest.raises(TurnOpen):
            await chat.send("Something else.", idempotency_key="l")
        assert (await chat.send("Work.", idempotency_key="k")).text == "Done."
    assert await asked(store, chat.id) == ["Work."]


async def test_closed_runtime_rejects_every_call_that_starts_a_turn(store: Store) -> None:
    async with Runtime(store, [AGENT], models=ScriptedModel(["One."] * 9)) as runtime:
        chat = await runtime.start("local")
        await chat.send("Count.")
    for call in (
        lambda: runtime.start("local"),
        lambda: runtime.resume(chat.id),
        chat.compact,
        lambda: chat.branch(None),
    ):
        with pytest.raises(InvalidTransition, match="the Runtime was closed") as refused:
            await call()
        assert refused.value.phase == "closed"
    for send in (lambda: chat.send("Again."), chat.recover):
        with pytest.raises(InvalidTransition, match="the Runtime was closed"):
            send()
    assert await asked(store, chat.id) == ["Count."]
    await runtime.close()
    async with Runtime(store, [AGENT], models=ScriptedModel(["One.", "Two."])) as later:
        assert (await (await later.resume(chat.id)).send("Again.")).text == "Two."
