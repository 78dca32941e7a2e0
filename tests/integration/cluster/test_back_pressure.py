"""A namespace in which only a limited number of turns can wait for workers."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from perdure import Runtime, Store, Turn
from perdure.client.cluster.runner import cluster_of
from perdure.errors import QueueFull
from perdure.server import TokenFile, TokenRecord, app
from perdure.session.ledger import TurnRequested
from perdure.stores.cluster.limits import Limit
from tests.fakes.served import serving_app
from tests.fakes.worker_program import HELPER
from tests.fakes.workers import ROOT, until, workers

pytestmark = pytest.mark.full_only

SUBJECT = "namespace:default"
MOST = 3


SENDER = """
import asyncio, sys
import perdure
from perdure import Runtime
from perdure.errors import QueueFull
from tests.fakes.worker_program import HELPER

async def main() -> None:
    async with perdure.open(sys.argv[1]) as store:
        async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
            chats = [await runtime.start(HELPER) for _ in range(20)]
            print("ready", flush=True)
            sys.stdin.readline()
            turns = [chat.send("hello") for chat in chats]
            found = await asyncio.gather(
                *(turn.stored() for turn in turns), return_exceptions=True
            )
            assert all(each is None or isinstance(each, QueueFull) for each in found), found
            print(found.count(None), flush=True)
            for turn, error in zip(turns, found):
                assert error is not None or (await turn).end == "stop"

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
async def limited(store: Store) -> AsyncIterator[None]:
    """Limit the waiting turns to three until the test is over."""
    limits = cluster_of(store.backend).limits
    await limits.set_limit(Limit(subject=SUBJECT, waiting=MOST))
    yield
    await limits.set_limit(Limit(subject=SUBJECT))


@asynccontextmanager
async def client_of(runtime: Runtime, folder: Path) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client of an HTTP server that uses the runtime."""
    tokens = TokenFile(folder / "tokens.json")
    secret = tokens.create(TokenRecord(id="t", hash="", role="admin", created_at=0), os.urandom(32))
    headers = {"Authorization": f"Bearer {secret}"}
    async with (
        serving_app(app(runtime, tokens=tokens)) as url,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http,
    ):
        yield http


async def is_accepted(turn: Turn) -> bool:
    """Return whether the turn was queued; if not, its error must report a full namespace."""
    (full,) = await asyncio.gather(turn.stored(), return_exceptions=True)
    if full is None:
        return True
    assert isinstance(full, QueueFull)
    assert (full.namespace, full.waiting, full.most) == ("default", MOST, MOST)
    assert full.retryable
    assert 1 <= full.retry_after_s <= 60
    return False


@pytest.mark.all_only
async def test_waiting_limit_counts_the_turns_of_all_processes(
    store: Store, address: str, folder: Path
) -> None:
    """Three processes send 60 turns at the same moment, before any worker has run."""
    senders = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", SENDER, address, cwd=ROOT, stdin=PIPE, stdout=PIPE
        )
        for _ in range(3)
    ]
    try:
        assert [await line_of(each) for each in senders] == ["ready"] * 3
        for each in senders:
            assert each.stdin is not None
            each.stdin.write(b"go\n")
        accepted = sum([int(await line_of(each)) for each in senders])
        requests = await store.backend.open_of_all(TurnRequested.kind)
        assert accepted == len(requests) == MOST
        async with workers(1, address, folder):
            assert [await each.wait() for each in senders] == [0, 0, 0]
        assert not await store.backend.open_of_all(TurnRequested.kind)
    finally:
        for each in senders:
            if each.returncode is None:
                each.kill()
                await each.wait()


async def line_of(process: Process) -> str:
    """Return the next line of output of the process."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


@pytest.mark.all_only
async def test_concurrent_posts_create_only_as_many_sessions_as_the_limit_allows(
    store: Store, address: str, folder: Path, tmp_path: Path
) -> None:
    async with (
        Runtime(store, agents=[HELPER], runner="workers") as runtime,
        client_of(runtime, tmp_path) as http,
    ):
        count = len(await store.recent(1_000, scope="all"))
        message = {"text": "hello", "agent": "helper"}
        posts = [asyncio.ensure_future(http.post("/v1/messages", json=message)) for _ in range(25)]

        async def are_refused() -> bool:
            is_stored = len(await store.backend.open_of_all(TurnRequested.kind)) == MOST
            return is_stored and sum(each.done() for each in posts) == len(posts) - MOST

        await until(are_refused)  # a post has its place before it makes its session
        assert len(await store.recent(1_000, scope="all")) == count + MOST
        async with workers(1, address, folder):
            answers = await asyncio.gather(*posts)
    statuses = [each.status_code for each in answers]
    assert (statuses.count(201), statuses.count(429)) == (MOST, len(posts) - MOST)


async def test_turn_over_the_waiting_limit_is_refused_and_not_stored(
    store: Store, address: str, folder: Path
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chats = [await runtime.start(HELPER) for _ in range(8)]
        heads = [(await store.backend.state(chat.id)).head for chat in chats]
        turns = [chat.send(f"hello {chat.id}", active_file="a.py") for chat in chats]
        accepted = [await is_accepted(turn) for turn in turns]
        assert accepted.count(True) == MOST
        for chat, head, was_accepted in zip(chats, heads, accepted, strict=True):
            assert ((await store.backend.state(chat.id)).head > head) == was_accepted
        refused = chats[accepted.index(False)]
        later = refused.send("tomorrow", at=2**42)
        await later.stored()
        async with workers(1, address, folder):
            for turn, was_accepted in zip(turns, accepted, strict=True):
                if was_accepted:
                    assert (await turn).end == "stop"
            again = [each.send("again") for each, ok in zip(chats, accepted, strict=True) if ok]
            for turn in again:  # what waits until tomorrow takes no place
                assert "again" in (await turn).text
        later.abort()
        assert (await later).end == "aborted"


async def test_error_for_a_full_queue_reports_that_no_worker_runs(store: Store) -> None:
    async def has_none() -> bool:
        return not await cluster_of(store.backend).limits.has_worker()

    await until(has_none)  # a killed worker of an earlier test has reported just now
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        turns = [(await runtime.start(HELPER)).send("hello") for _ in range(MOST + 1)]
        found = await asyncio.gather(*(each.stored() for each in turns), return_exceptions=True)
        (full,) = [each for each in found if each is not None]
        assert "no worker runs, start a worker; try again" in str(full)
        for turn, error in zip(turns, found, strict=True):
            if error is None:
                turn.abort()
                assert (await turn).end == "aborted"


async def test_queue_place_of_a_dead_program_is_released_after_a_minute(
    store: Store, address: str
) -> None:
    limits = cluster_of(store.backend).limits
    with psycopg.connect(address, autocommit=True) as db:
        for key in ("one", "two", "three"):
            db.execute("INSERT INTO perdure.work_place VALUES ('default', %s)", (key.encode(),))
        with pytest.raises(QueueFull):
            async with limits.room():
                pass
        db.execute("UPDATE perdure.work_place SET taken_at = taken_at - interval '1 minute'")
        async with limits.room() as key:
            assert key is not None
            assert db.execute("SELECT count(*) FROM perdure.work_place").fetchone() == (1,)
        assert db.execute("SELECT count(*) FROM perdure.work_place").fetchone() == (0,)


async def test_abort_before_the_turn_request_is_stored_ends_the_turn(store: Store) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        turn = chat.send("never")
        turn.abort()
        assert (await turn).end == "aborted"
        assert not await store.backend.open_of_all(TurnRequested.kind)


@pytest.mark.all_only
async def test_turns_held_by_a_turn_limit_count_as_waiting(
    store: Store, address: str, folder: Path
) -> None:
    limits = cluster_of(store.backend).limits
    await limits.set_limit(Limit(subject=SUBJECT, waiting=MOST, turns=0))
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chats = [await runtime.start(HELPER) for _ in range(MOST + 1)]
        async with workers(1, address, folder):
            turns = [chat.send("hello") for chat in chats[:MOST]]

            async def are_held() -> bool:
                return (await limits.infos())[0].held == MOST

            await until(are_held)
            assert not await is_accepted(chats[MOST].send("hello"))
            await limits.set_limit(Limit(subject=SUBJECT, waiting=MOST))
            assert [(await turn).end for turn in turns] == ["stop"] * MOST


async def test_http_request_over_the_queue_limit_gets_status_429(
    store: Store, address: str, folder: Path, tmp_path: Path
) -> None:
    async with (
        Runtime(store, agents=[HELPER], runner="workers") as runtime,
        client_of(runtime, tmp_path) as http,
    ):
        chats = [await runtime.start(HELPER) for _ in range(MOST + 1)]
        turns = [chat.send("hello") for chat in chats[:MOST]]
        for turn in turns:
            await turn.stored()
        count = len(await store.recent(1_000, scope="all"))
        for session in (None, chats[MOST].id):
            sent = await http.post(
                "/v1/messages", json={"text": "hello", "agent": "helper", "sessionId": session}
            )
            assert (sent.status_code, sent.json()["code"]) == (429, "queue_full")
            assert int(sent.headers["Retry-After"]) == sent.json()["retryAfterS"] >= 1
        await asyncio.sleep(2)
        sent = await http.post("/v1/messages", json={"text": "hello", "agent": "helper"})
        assert int(sent.headers["Retry-After"]) >= 3  # the oldest has waited for over two seconds
        assert len(await store.recent(1_000, scope="all")) == count
        async with workers(1, address, folder):
            await asyncio.gather(*turns)
            sent = await http.post("/v1/messages", json={"text": "hello", "agent": "helper"})
            assert sent.status_code == 201
