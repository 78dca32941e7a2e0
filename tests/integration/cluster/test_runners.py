"""The specification of a runner, for local turns and for turns of a worker on the same database."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Runtime, Store
from perdure.client.agents.runners import RunnerName
from perdure.errors import ConfigError, InvalidTransition, TurnFailed
from tests.fakes.worker_program import CAPPED, FOLDER, HELD, HELPER
from tests.fakes.workers import effect_of, effects, workers

pytestmark = pytest.mark.full_only


@pytest.fixture(scope="module")
def worker(address: str, folder: Path) -> Iterator[int]:
    with workers(1, address, folder) as started:
        yield started[0].pid


@pytest.fixture(params=["embedded", "workers"])
async def runtime(
    store: Store,
    worker: int,
    folder: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Runtime]:
    monkeypatch.setenv(FOLDER, str(folder))
    runner: RunnerName = request.param
    async with Runtime(store, agents=[HELPER, CAPPED], runner=runner) as made:
        made.pid = os.getpid() if runner == "embedded" else worker  # type: ignore[attr-defined] # where its tools run
        yield made


async def test_runner_returns_answer_and_log_of_turn(runtime: Runtime) -> None:
    chat = await runtime.start(HELPER)
    reply = await chat.send("hello")
    assert reply.end == "stop"
    assert "hello" in reply.text
    kinds = [entry.kind async for entry in chat.session.entries() if entry.kind != "turn_requested"]
    assert kinds == [
        *("session_started", "turn_started", "message", "model_called", "model_finished"),
        *("message", "turn_finished"),
    ]


async def test_runner_yields_events_of_its_turn_in_order(runtime: Runtime) -> None:
    chat = await runtime.start(HELPER)
    await chat.send("first")
    events = [event async for event in chat.send('/tool wait {"text": "events", "seconds": 0}')]
    types = [event.type for event in events]
    assert types[0] == "session:turn_started"
    assert types[-1] == "session:turn_completed"
    assert types.index("agent:tool_call") < types.index("agent:tool_result")
    assert types.count("session:turn_started") == 1


async def test_runner_answers_messages_of_one_session_in_order(runtime: Runtime) -> None:
    chat = await runtime.start(HELPER)
    for number in range(3):
        assert f"message {number}" in (await chat.send(f"message {number}")).text
    said = [message.text for message in await chat.session.messages() if message.role == "user"]
    assert said == ["message 0", "message 1", "message 2"]


async def test_messages_with_one_idempotency_key_are_answered_once(runtime: Runtime) -> None:
    chat = await runtime.start(HELPER)
    first = await chat.send("hello", idempotency_key=f"key of {chat.id}")
    again = await chat.send("hello", idempotency_key=f"key of {chat.id}")
    assert (again.turn, again.text) == (first.turn, first.text)
    said = [message.text for message in await chat.session.messages() if message.role == "user"]
    assert said == ["hello"]


async def test_runner_reports_failure_of_turn(runtime: Runtime) -> None:
    chat = await runtime.start(CAPPED)
    await chat.send("one")
    with pytest.raises(TurnFailed) as failed:
        await chat.send("two")
    assert failed.value.failure == "turn_limit"


async def test_runner_aborts_running_tool(runtime: Runtime, folder: Path) -> None:
    chat = await runtime.start(HELPER)
    turn = chat.send(f'/tool wait {{"text": "{chat.id}", "seconds": 60}}')
    assert await effect_of(folder, chat.id) == runtime.pid  # type: ignore[attr-defined] # set above
    with pytest.raises(InvalidTransition):
        chat.send("meanwhile")
    await chat.abort()
    assert (await turn).end == "aborted"
    assert "after" in (await chat.send("after")).text


async def test_runner_adds_a_steering_message_to_the_running_turn(
    runtime: Runtime, folder: Path
) -> None:
    chat = await runtime.start(HELPER)
    (folder / HELD).touch()
    turn = chat.send(f'/tool wait {{"text": "{chat.id}", "seconds": 0}}')
    await effect_of(folder, chat.id)
    await chat.steer("and another thing")
    (folder / HELD).unlink()
    assert "another thing" in (await turn).text


async def test_runner_continues_after_an_answer_by_another_handle(
    runtime: Runtime, store: Store, folder: Path
) -> None:
    chat = await runtime.start(HELPER)
    turn = chat.send(f'/tool publish {{"text": "{chat.id}"}}')
    async for event in turn:
        if event.type == "agent:approval_requested":
            (question,) = await chat.questions()
            await store.answer(question.id, "allow", by="Ana")
    assert (await turn).end == "stop"
    assert [text for _, text in effects(folder) if text == chat.id] == [chat.id]


@pytest.mark.all_only
async def test_workers_reject_store_that_they_cannot_share() -> None:
    async with perdure.open("memory:") as store:
        with pytest.raises(ConfigError, match="PostgreSQL"):
            Runtime(store, agents=[HELPER], runner="workers")
