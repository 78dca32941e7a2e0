"""Limits that all workers of a database share: concurrent turns, and requests to models."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Chat, Runtime, Store, Turn
from perdure.client.cluster.runner import cluster_of
from perdure.session.codec import new_side
from perdure.session.ids import StreamId, entry_id
from perdure.session.ledger import TurnRequested, TurnStopRequested
from perdure.stores.cluster.limits import Limit, LimitInfo
from perdure.stores.postgres.cluster.limits import KNOWN_S
from perdure.stores.protocol import Commit, Write
from tests.fakes.forked_commands import run_command
from tests.fakes.worker_program import HELD, HELPER
from tests.fakes.workers import WorkerProcess, effect_of, effects, of, until, workers

pytestmark = pytest.mark.full_only

LIMITED = ("namespace:default", "model:scripted:echo", "provider:scripted")
BOTH = ("--namespace", "crowd", "--also", "single")


@pytest.fixture(autouse=True)
async def unlimited(store: Store) -> AsyncIterator[None]:
    """Remove the limits after each test."""
    yield
    for subject in LIMITED:
        await limit(store, Limit(subject=subject))


async def limit(store: Store, wanted: Limit) -> None:
    await cluster_of(store.backend).limits.set_limit(wanted)


async def info(store: Store, subject: str) -> LimitInfo:
    found = await cluster_of(store.backend).limits.infos()
    return next(each for each in found if each.limit.subject == subject)


def waiting(chat: Chat, seconds: float) -> Turn:
    return chat.send(f'/tool wait {{"text": "{chat.id}", "seconds": {seconds}}}')


async def spans(store: Store, session: StreamId) -> list[tuple[int, int]]:
    """Return when each turn of the session began and ended."""
    entries = await store.backend.entries(session)
    begun = [each.at for each in entries if each.kind == "turn_started"]
    ended = [each.at for each in entries if each.kind == "turn_finished"]
    return list(zip(begun, ended, strict=True))


def most_at_once(found: Sequence[tuple[int, int]]) -> int:
    return max(sum(begun <= at < ended for begun, ended in found) for at, _ in found)


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(LIMITED[0], marks=pytest.mark.all_only),
        pytest.param(LIMITED[1], marks=pytest.mark.all_only),
        LIMITED[2],
    ],
)
async def test_turns_over_the_limit_wait_for_running_turns_of_any_worker(
    store: Store, address: str, folder: Path, subject: str
) -> None:
    await limit(store, Limit(subject=subject, turns=2))
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chats = [await runtime.start(HELPER) for _ in range(6)]
        async with workers(2, address, folder):
            (folder / HELD).touch()  # until the test has seen the others wait
            turns = [waiting(chat, 0.5) for chat in chats]

            async def is_held() -> bool:
                found = await info(store, subject)
                return found.running == 2 and found.held > 0 and found.oldest_s is not None

            async def are_begun() -> bool:
                begun = {text for _, text in effects(folder)}
                return len(begun.intersection(chat.id for chat in chats)) == 2

            await until(is_held)
            await until(are_begun)
            (folder / HELD).unlink()
            assert [(await turn).end for turn in turns] == ["stop"] * 6
        found = [span for chat in chats for span in await spans(store, chat.id)]
    assert len(found) == 6
    assert most_at_once(found) == 2


@pytest.mark.all_only
async def test_limit_of_one_subject_does_not_delay_other_subjects(
    store: Store, address: str, folder: Path
) -> None:
    others = ("namespace:other", "model:scripted:other", "provider:other")
    for subject in others:
        await limit(store, Limit(subject=subject, turns=0, per_minute=1))
    try:
        async with (
            Runtime(store, agents=[HELPER], runner="workers") as runtime,
            workers(1, address, folder),
        ):
            chat = await runtime.start(HELPER)
            assert "free" in (await chat.send("free")).text
            assert "again" in (await chat.send("again")).text
    finally:
        for subject in others:
            await limit(store, Limit(subject=subject))


async def test_slot_of_a_killed_worker_becomes_free(
    store: Store, address: str, folder: Path
) -> None:
    await limit(store, Limit(subject="provider:scripted", turns=1))
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        first, second = await runtime.start(HELPER), await runtime.start(HELPER)
        async with workers(2, address, folder) as two:
            (folder / HELD).touch()  # until the second turn waits
            begun = waiting(first, 0)
            dead = of(await effect_of(folder, first.id), two)
            held = second.send("after it")

            async def is_held() -> bool:
                return (await info(store, "provider:scripted")).held == 1

            await until(is_held)
            dead.kill()
            (folder / HELD).unlink()
            assert (await begun).end == "stop"
            assert "after it" in (await held).text

            async def nothing_runs() -> bool:
                return (await info(store, "provider:scripted")).running == 0

            await until(nothing_runs)


@pytest.mark.all_only
async def test_turn_that_waits_for_limit_survives_any_number_of_dead_workers(
    store: Store, address: str, folder: Path
) -> None:
    await limit(store, Limit(subject="namespace:default", turns=0))
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        async with workers(5, address, folder) as five:
            turn = chat.send("after four deaths")
            left = list(five)

            async def is_held() -> bool:
                return await holder(store, left) is not None

            for _ in range(4):
                await until(is_held)
                dead = await holder(store, left)
                assert dead is not None
                left.remove(dead)
                dead.kill()
            await limit(store, Limit(subject="namespace:default"))
            assert "after four deaths" in (await turn).text


async def holder(store: Store, left: list[WorkerProcess]) -> WorkerProcess | None:
    """Return the remaining worker in which the only turn waits."""
    found = (await cluster_of(store.backend).status()).workers
    owners = [each.owner for each in found if each.running]
    return next((each for each in left if any(f"pid {each.pid} on" in o for o in owners)), None)


async def test_raised_limit_lets_waiting_turn_begin(
    store: Store, address: str, folder: Path
) -> None:
    await limit(store, Limit(subject="namespace:default", turns=0))
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        async with workers(1, address, folder):
            turn = chat.send("at last")

            async def is_held() -> bool:
                return (await info(store, "namespace:default")).held == 1

            await until(is_held)
            await limit(store, Limit(subject="namespace:default", turns=1))
            assert "at last" in (await turn).text


async def test_abort_ends_turn_that_waits_for_limit(
    store: Store, address: str, folder: Path
) -> None:
    await limit(store, Limit(subject="namespace:default", turns=0))
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        async with workers(1, address, folder):
            turn = chat.send("never")

            async def is_held() -> bool:
                return (await info(store, "namespace:default")).held == 1

            await until(is_held)
            turn.abort()
            assert (await turn).end == "aborted"


@pytest.mark.all_only
async def test_namespace_with_one_turn_is_not_delayed_by_a_namespace_with_many(
    store: Store, address: str, folder: Path
) -> None:
    await limit(store, Limit(subject="provider:scripted", turns=1))
    async with (
        perdure.open(address, namespace="crowd") as crowd,
        perdure.open(address, namespace="single") as single,
        Runtime(crowd, agents=[HELPER], runner="workers") as many,
        Runtime(single, agents=[HELPER], runner="workers") as one,
    ):
        chats = [await many.start(HELPER) for _ in range(8)]
        alone = await one.start(HELPER)
        async with workers(1, address, folder, *BOTH):
            (folder / HELD).touch()  # no turn ends until the worker knows the single turn
            turns = [waiting(chat, 0.3) for chat in chats]

            async def are_held(count: int) -> bool:
                return (await info(store, "provider:scripted")).held == count

            await until(lambda: are_held(len(chats) - 1))
            only = alone.send("alone")
            await until(lambda: are_held(len(chats)))
            (folder / HELD).unlink()
            assert "alone" in (await only).text
            for turn in turns:
                await turn
        ((began, _),) = await spans(single, alone.id)
        others = [span for chat in chats for span in await spans(crowd, chat.id)]
    asked = next(
        each.at
        for each in await entries_of(address, "single", alone.id)
        if each.kind == "turn_requested"
    )
    between = [each for each, _ in others if asked <= each < began]
    assert len(between) <= 2  # one may have been granted as the request came, and the one after it


async def entries_of(address: str, namespace: str, session: StreamId) -> list[Any]:
    async with perdure.open(address, namespace=namespace) as store:
        return await store.backend.entries(session)


@pytest.mark.all_only
async def test_limit_counts_turns_that_began_before_the_limit_was_set(
    store: Store, address: str, folder: Path
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chats = [await runtime.start(HELPER) for _ in range(2)]
        late = await runtime.start(HELPER)
        async with workers(2, address, folder):
            (folder / HELD).touch()
            turns = [waiting(chat, 0) for chat in chats]
            for chat in chats:
                await effect_of(folder, chat.id)
            await limit(store, Limit(subject="provider:scripted", turns=1))
            await asyncio.sleep(KNOWN_S)  # a worker may have read the limits just before

            async def are_counted(late: int = 0) -> bool:
                found = await info(store, "provider:scripted")
                return (found.running, found.held) == (2, late)

            await until(are_counted)
            held = late.send("after both")
            await until(lambda: are_counted(1))
            (folder / HELD).unlink()
            assert "after both" in (await held).text
            assert [(await turn).end for turn in turns] == ["stop", "stop"]
        ends = [ended for chat in chats for _, ended in await spans(store, chat.id)]
        ((began, _),) = await spans(store, late.id)
    assert began >= max(ends)


@pytest.mark.all_only
async def test_stored_stop_request_ends_a_turn_that_waits_for_a_limit(
    store: Store, address: str, folder: Path
) -> None:
    await limit(store, Limit(subject="namespace:default", turns=0))
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        async with workers(1, address, folder):
            turn = chat.send("never")

            async def is_held() -> bool:
                return (await info(store, "namespace:default")).held == 1

            await until(is_held)
            (request,) = await store.backend.entries(chat.id, kind=TurnRequested.kind)
            stop = new_side(TurnStopRequested(), entry_id(chat.id, request.seq))
            write = Write(stream=chat.id, entries=(stop,))
            await store.backend.commit(Commit(writes=(write,), at=request.at))
            assert (await turn).end == "aborted"

            async def is_free() -> bool:
                found = await cluster_of(store.backend).status()
                return all(each.running == 0 for each in found.workers)

            await until(is_free)


async def test_requests_of_all_workers_obey_one_rate_limit(
    store: Store, address: str, folder: Path
) -> None:
    await limit(store, Limit(subject="model:scripted:echo", per_minute=150))
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chats = [await runtime.start(HELPER) for _ in range(6)]
        async with workers(2, address, folder):
            await asyncio.gather(*(chat.send("hello") for chat in chats))
        entries = [each for chat in chats for each in await store.backend.entries(chat.id)]
        ends = sorted(each.at for each in entries if each.kind == "model_finished")
        begun = min(each.at for each in entries if each.kind == "turn_started")
    assert len(ends) == 6
    for number, at in enumerate(ends):
        assert at - begun >= number * 400 - 50  # a permit comes before its answer


async def test_limit_command_sets_a_limit_that_the_status_command_lists(
    store: Store, address: str
) -> None:
    def run(*line: str) -> tuple[int, Any]:
        words = (*line, "--store", address, "--json")
        ended = run_command(words, {**os.environ, "LANG": "C.UTF-8"}, Path.cwd())
        return ended.code, json.loads(ended.out or ended.err)

    subject = "provider:scripted"
    code, made = await asyncio.to_thread(
        run, "cluster", "limit", subject, "--turns", "3", "--per-minute", "90"
    )
    assert (code, made["turns"], made["per_minute"]) == (0, 3, 90)
    code, found = await asyncio.to_thread(run, "cluster", "status")
    assert code == 0
    assert [each["limit"] for each in found["limits"]] == [made]
    code, _ = await asyncio.to_thread(run, "cluster", "limit", subject, "--none")
    assert code == 0
    assert await cluster_of(store.backend).limits.infos() == ()
    code, made = await asyncio.to_thread(
        run, "cluster", "limit", "namespace:default", "--waiting", "7"
    )
    assert (code, made["waiting"]) == (0, 7)
    assert await cluster_of(store.backend).limits.limits() == (
        Limit(subject="namespace:default", waiting=7),
    )
    for line in (
        (subject,),
        (subject, "--waiting", "1"),
        ("tenant", "--turns", "1"),
        ("model:gpt", "--turns", "1"),
    ):
        code, refused = await asyncio.to_thread(run, "cluster", "limit", *line)
        assert (code, refused["error"]["code"]) == (2, "usage")
