"""Turns that wait for workers start by priority; turns of one session run in order."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

import perdure
from perdure import Chat, Runtime, Store, Turn
from perdure.client.cluster.runner import cluster_of, queue_work
from perdure.errors import WrongArgument
from perdure.session.codec import body_of, new_side
from perdure.session.ledger import Priority, TurnRequested
from perdure.session.messages import user
from perdure.stores.cluster.limits import Limit
from perdure.stores.cluster.protocol import RANKS as NUMBERS
from perdure.stores.cluster.protocol import Work
from perdure.stores.protocol import Commit, Write
from tests.fakes.postgres import PostgresServer
from tests.fakes.worker_program import HELD, HELPER
from tests.fakes.workers import effect_of, effects, until, workers

pytestmark = pytest.mark.full_only

RANKS: dict[str, Priority] = {
    "late": "low",
    "usual": "normal",
    "as usual": "normal",
    "urgent": "high",
}


@pytest.fixture
async def runtime(store: Store, folder: Path) -> AsyncIterator[Runtime]:
    async with Runtime(store, agents=[HELPER], runner="workers") as made:
        yield made
        await made.suspend()  # after a failure no worker is left that would end its turns


def wait(chat: Chat, text: str, priority: Priority = "normal") -> Turn:
    return chat.send(f'/tool wait {{"text": "{text}", "seconds": 0}}', priority=priority)


async def has_waiting(store: Store, count: int) -> None:
    """Wait until the queue has `count` waiting turns of the helper."""

    async def is_so() -> bool:
        status = await cluster_of(store.backend).status()  # without what only the log has
        return sum(each.waiting for each in status.queues) == count

    await until(is_so)


def order(folder: Path, *texts: str) -> list[str]:
    """Return `texts` in the order in which the tools wrote them."""
    return [text for _, text in effects(folder) if text in texts]


async def test_turn_of_higher_priority_begins_before_waiting_turns(
    runtime: Runtime, store: Store, address: str, folder: Path
) -> None:
    async with (
        perdure.open(address) as elsewhere,
        Runtime(elsewhere, agents=[HELPER], runner="workers") as other,
        workers(1, address, folder, "--slots", "1"),
    ):
        (folder / HELD).touch()
        turns = [wait(await runtime.start(HELPER), "running")]
        await effect_of(folder, "running")
        for text, priority in RANKS.items():
            turns.append(wait(await runtime.start(HELPER), text, priority))
        session = await runtime.start(HELPER)
        turns.append(wait(session, "first of session"))
        await turns[-1].stored()
        turns.append(wait(await other.resume(session.id), "second of session", "high"))
        await has_waiting(store, 6)
        (folder / HELD).unlink()
        assert [(await turn).end for turn in turns] == ["stop"] * 7
    of_session = ["first of session", "second of session"]
    begun = order(folder, *RANKS, *of_session)
    assert set(begun[:3]) == {"urgent", *of_session}
    assert order(folder, *of_session) == of_session
    assert set(begun[3:5]) == {"usual", "as usual"}
    assert begun[5:] == ["late"]


async def test_turn_of_higher_priority_gets_the_next_free_slot(
    runtime: Runtime, store: Store, address: str, folder: Path
) -> None:
    limits = cluster_of(store.backend).limits
    await limits.set_limit(Limit(subject="namespace:default", turns=1))
    try:
        async with workers(1, address, folder):
            (folder / HELD).touch()
            turns = [wait(await runtime.start(HELPER), "granted")]
            await effect_of(folder, "granted")

            async def are_held() -> bool:
                (found,) = await limits.infos()
                return found.held == len(turns) - 1

            for priority in sorted(NUMBERS, key=lambda each: -NUMBERS[each]):
                turns.append(wait(await runtime.start(HELPER), f"a {priority}", priority))
                await until(are_held)
            (folder / HELD).unlink()
            assert [(await turn).end for turn in turns] == ["stop"] * 4
    finally:
        await limits.set_limit(Limit(subject="namespace:default"))
    assert order(folder, "a low", "a normal", "a high") == ["a high", "a normal", "a low"]


async def test_turn_that_waited_for_person_keeps_its_priority(
    runtime: Runtime, store: Store, address: str, folder: Path
) -> None:
    async with workers(1, address, folder, "--slots", "1"):
        asking = await runtime.start(HELPER)
        turns = [asking.send('/tool publish {"text": "published"}', priority="high")]

        async def is_parked() -> bool:
            status = await cluster_of(store.backend).status()
            return bool(await asking.questions()) and not any(q.running for q in status.queues)

        await until(is_parked)
        (folder / HELD).touch()
        turns += [wait(await runtime.start(HELPER), "before")]
        await effect_of(folder, "before")
        turns += [wait(await runtime.start(HELPER), "behind")]
        await has_waiting(store, 1)
        (question,) = await asking.questions()
        await store.answer(question.id, "allow", by="Ana")
        await has_waiting(store, 2)
        (folder / HELD).unlink()
        assert [(await turn).end for turn in turns] == ["stop"] * 3
    assert order(folder, "published", "behind") == ["published", "behind"]


async def test_request_in_log_keeps_its_priority_until_first_worker_starts(
    postgres: PostgresServer, folder: Path
) -> None:
    address = postgres.new_database()
    try:
        async with (
            perdure.open(address) as store,
            Runtime(store, agents=[HELPER], runner="workers") as runtime,
        ):
            (folder / HELD).touch()
            turns = [wait(await runtime.start(HELPER), f"stored {t}", p) for t, p in RANKS.items()]
            for turn in turns:
                await turn.stored()
            async with workers(1, address, folder, "--slots", "1"):

                async def is_queued() -> bool:
                    status = await cluster_of(store.backend).status()
                    return [(q.waiting, q.running) for q in status.queues if q.running] == [(3, 1)]

                await until(is_queued)  # one of them was queued first, and runs
                (folder / HELD).unlink()
                assert [(await turn).end for turn in turns] == ["stop"] * 4
    finally:
        postgres.drop(address)
    _, *following = order(folder, *(f"stored {text}" for text in RANKS))
    ranks = [NUMBERS[RANKS[text.removeprefix("stored ")]] for text in following]
    assert ranks == sorted(ranks)


async def test_embedded_runner_stores_the_priority_of_a_scheduled_message(store: Store) -> None:
    async with Runtime(store, agents=[HELPER], runner="embedded") as runtime:
        chat = await runtime.start(HELPER)
        tomorrow = round(time.time() * 1000) + 86_400_000
        await chat.send("tomorrow", at=tomorrow, priority="high").stored()
        (request,) = [entry async for entry in chat.session.entries(kind="turn_requested")]
        body = body_of(request)
        assert isinstance(body, TurnRequested)
        assert body.priority == "high"
        await store.schedule.cancel(request.id)
        with pytest.raises(WrongArgument, match="priority"):
            chat.send("now", priority="urgent")  # type: ignore[arg-type] # that is the test


async def test_requests_queued_at_one_moment_are_answered_in_order(
    runtime: Runtime, store: Store, address: str, folder: Path
) -> None:
    async with workers(1, address, folder):
        chat = await runtime.start(HELPER)
        await chat.send("first")  # so the queues exist
    texts = [f"number {number}" for number in range(11)]
    asked = tuple(new_side(TurnRequested(user(text))) for text in texts)
    write = Write(stream=chat.id, entries=asked)
    committed = await store.backend.commit(Commit(writes=(write,), at=0))
    for entry in reversed(committed.entries[0]):
        work = Work(store.backend.namespace, chat.id, entry.seq)
        assert await queue_work(store.backend, work, priority="normal")
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as db:
        await db.execute(
            "UPDATE perdure_work.workflow_status SET created_at = 1000 "
            "WHERE queue_partition_key = %s",
            (chat.id,),
        )
    async with workers(1, address, folder):

        async def are_answered() -> bool:
            return not await store.backend.open_of_all(TurnRequested.kind)

        await until(are_answered)
    path = await chat.session.path()
    said = [each.text for each in path if each.message and each.message.role == "user"]
    assert said == ["first", *texts]
