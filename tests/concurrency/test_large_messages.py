"""A message at the size limit keeps no other task of the event loop waiting."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.engine.turns import runner
from perdure.engine.turns.inputs import Begin
from perdure.stores.sqlite.payload.entry_rows import LARGE_BYTES
from tests.fakes.postgres import PostgresServer
from tests.fakes.samples import ALL_ONLY

SIZE = 15 * 2**20
TEXT = ("some words of a long text with numbers 12345 and more. " * (SIZE // 54))[:SIZE]
CJK = ("\u4e16\u754c\u3002\u6c34 words " * SIZE)[: SIZE // 3]
"""A text in which most words are single characters."""
MOST_ON_LOOP_S = 0.06
"""Maximum CPU time of the loop's thread in one iteration of the loop."""
MOST_CPU_S = 5.0


@asynccontextmanager
async def watched() -> AsyncGenerator[list[float]]:
    """Measure the CPU time of the event loop's thread per iteration of the loop."""
    spent: list[float] = []

    async def tick() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            spent.append(now - before)
            before = now

    gc.collect()
    gc.freeze()  # what the test program holds is no part of the work, nor of any later one
    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    try:
        yield spent
    finally:
        ticking.cancel()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=ALL_ONLY)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/s.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.mark.all_only
async def test_turn_of_message_at_size_limit_does_not_block_the_event_loop(address: str) -> None:
    async with perdure.open(address) as store, perdure.Runtime(store) as runtime:
        chat = await runtime.start(perdure.Agent("a", model="scripted:echo"))
        await chat.send("hello")
        session = await store.create()
        async with watched() as spent:
            await session.append(perdure.user(TEXT))
            began = time.process_time()
            await chat.send(TEXT)
            cpu_s = time.process_time() - began
        assert max(spent) <= MOST_ON_LOOP_S
        assert cpu_s <= MOST_CPU_S


async def test_memory_use_of_a_turn_is_at_most_four_times_its_message(
    tmp_path: Path,
) -> None:
    async with (
        perdure.open(f"sqlite:///{tmp_path}/s.db") as store,
        perdure.Runtime(store) as runtime,
    ):
        chat = await runtime.start(perdure.Agent("a", model="scripted:echo"))
        await chat.send("hello")
        text = TEXT[: SIZE // 2]
        tracemalloc.start()
        try:
            await chat.send(text)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= 4 * len(text)


@pytest.mark.all_only
@pytest.mark.parametrize(
    ("address", "text"),
    [
        pytest.param(address, text, marks=marks, id=f"{name}-{address}")
        for name, text in (("ascii", TEXT), ("cjk", CJK))
        for address, marks in (("memory", ALL_ONLY), ("sqlite", ()), ("postgres", ALL_ONLY))
    ],
    indirect=["address"],
)
async def test_first_search_after_large_messages_does_not_block_the_event_loop(
    address: str, text: str
) -> None:
    async with perdure.open(address) as store:
        session = await store.create()
        await session.append(perdure.user(text + " needle"))
        async with watched() as spent:
            (hit,) = await store.search("needle")
        assert "needle" in hit.snippet
        assert max(spent) <= MOST_ON_LOOP_S
        assert await store.search("haystack") == []


@pytest.mark.all_only
async def test_turn_with_a_credential_in_a_long_message_is_refused() -> None:
    async with perdure.open("memory:") as store, perdure.Runtime(store) as runtime:
        agent = perdure.Agent("a", model="scripted:echo", on_pasted="refuse")
        chat = await runtime.start(agent)
        turn = chat.send(f"{TEXT} ghp_{'Ab3dE6gH9j' * 4}")
        with pytest.raises(perdure.errors.SecretPasted):
            await turn
        assert await chat.session.messages() == []
        assert (await chat.send("a short one")).text


async def test_large_entry_bodies_leave_no_copy_in_sqlite_memory(tmp_path: Path) -> None:
    async with perdure.open(f"sqlite:///{tmp_path}/s.db") as store:
        session = await store.create()
        await session.append(perdure.user("hello"))
        sizes = (1, LARGE_BYTES - 200, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 8 * 2**20)
        messages = [perdure.user("a" * size) for size in sizes]
        apsw.memory_high_water(True)
        before = apsw.memory_used()
        await session.append_many(messages)
        assert apsw.memory_high_water() - before < 6 * 2**20  # the cache of pages has 4 MiB
        assert apsw.memory_used() - before < 6 * 2**20
        assert await session.messages(last=len(sizes)) == messages
        assert (await store.verify()).is_ok


async def test_turn_of_large_message_begins_outside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: dict[int, bool] = {}
    step = runner.step

    def watched_step(state: Any, happened: Any, *more: Any) -> Any:
        if isinstance(happened, Begin):
            is_on_loop = threading.current_thread() is threading.main_thread()
            threads[len(happened.message.text)] = is_on_loop
        return step(state, happened, *more)

    monkeypatch.setattr(runner, "step", watched_step)
    async with perdure.open("memory:") as store, perdure.Runtime(store) as runtime:
        chat = await runtime.start(perdure.Agent("a", model="scripted:echo"))
        await chat.send("hello")
        await chat.send("some words\n" * 200_000)
    assert threads == {5: True, 2_200_000: False}
