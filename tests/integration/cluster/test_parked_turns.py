"""Turns of workers that wait for a person use no slot and continue after the answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure
from perdure import Chat, Runtime, Store, Turn
from perdure.client.cluster.runner import cluster_of
from tests.fakes.worker_program import HELPER
from tests.fakes.workers import effects, until, workers

pytestmark = pytest.mark.full_only


async def asked(store: Store, chat: Chat, turn: Turn) -> str:
    """Wait until `turn` asks a person and uses no slot; return the id of the question."""
    async for event in turn:
        if event.type == "agent:approval_requested":
            break
    (question,) = await chat.questions()

    async def is_parked() -> bool:
        return sum(each.running for each in (await cluster_of(store.backend).status()).queues) == 0

    await until(is_parked)
    return question.id


async def test_turn_that_waits_for_an_answer_frees_its_slot(
    store: Store, address: str, folder: Path
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        asking, other = await runtime.start(HELPER), await runtime.start(HELPER)
        async with workers(1, address, folder, "--slots", "1"):
            turn = asking.send(f'/tool publish {{"text": "{asking.id}"}}')
            question = await asked(store, asking, turn)
            assert "beside it" in (await other.send("beside it")).text
            assert turn.is_waiting
            await store.answer(question, "allow", by="Ana")
            assert (await turn).end == "stop"
    assert [text for _, text in effects(folder)].count(asking.id) == 1


async def test_waiting_turn_of_dead_worker_continues_after_answer(
    store: Store, address: str, folder: Path
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        turn = chat.send(f'/tool publish {{"text": "{chat.id}"}}')
        async with workers(1, address, folder):
            question = await asked(store, chat, turn)
        await store.answer(question, "allow", by="Ana")
        async with workers(1, address, folder):
            assert (await turn).end == "stop"
    assert [text for _, text in effects(folder)].count(chat.id) == 1


async def test_abort_ends_waiting_turn_that_no_worker_runs(
    store: Store, address: str, folder: Path
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        async with workers(1, address, folder):
            turn = chat.send(f'/tool publish {{"text": "{chat.id}"}}')
            await asked(store, chat, turn)
            await chat.abort()
            assert (await turn).end == "aborted"
            assert "after" in (await chat.send("after")).text


async def test_request_queued_behind_a_waiting_turn_is_answered_after_that_turn(
    store: Store, address: str, folder: Path
) -> None:
    async with (
        Runtime(store, agents=[HELPER], runner="workers") as runtime,
        perdure.open(address) as second,
        Runtime(second, agents=[HELPER], runner="workers") as elsewhere,
    ):
        chat = await runtime.start(HELPER)
        other = await elsewhere.resume(chat.id)
        async with workers(1, address, folder):
            first = chat.send(f'/tool publish {{"text": "{chat.id}"}}')
            question = await asked(store, chat, first)
            behind = other.send("later")
            await asyncio.sleep(1.5)  # a worker sees that the request is behind a question
            assert behind.is_running
            await store.answer(question, "allow", by="Ana")
            assert (await first).end == "stop"
            assert "later" in (await behind).text
