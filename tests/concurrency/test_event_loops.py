"""Stores awaited from several event loops lose nothing, or raise an error immediately.

Without asyncio, for example under trio or curio, the error is one clear sentence.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure import user
from perdure.client.open import open as open_store
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import NotAsyncio, StoreUnavailable
from perdure.session.ids import StreamId
from tests.fakes.postgres import PostgresServer

LOOPS = 6
APPENDS = 60
BACKENDS = ["memory", "sqlite", "jsonl"]


def address_of(backend: str, folder: Path) -> str:
    places = {"sqlite": f"sqlite:///{folder}/s.db", "jsonl": f"jsonl:///{folder}/s"}
    return places.get(backend, "memory:")


async def in_other_loops(*works: Coroutine[Any, Any, Any]) -> list[Any]:
    """Return the results of `works`, each run in a separate event loop on a separate thread."""
    barrier = threading.Barrier(len(works))

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        barrier.wait()
        return asyncio.run(work)

    with ThreadPoolExecutor(len(works)) as threads:
        loop = asyncio.get_running_loop()
        futures = [loop.run_in_executor(threads, run, work) for work in works]
        return list(await asyncio.gather(*futures))


async def append_many(store: Store, session: Session, name: int) -> None:
    own = (
        await store.open(session.id) if name % 2 else session
    )  # a separate handle, or a shared one
    for number in range(APPENDS):
        await own.append(user(f"{name} {number}"))


@pytest.mark.parametrize("backend", BACKENDS)
async def test_appends_from_several_loops_are_all_stored_in_order(
    backend: str, tmp_path: Path
) -> None:
    async with open_store(address_of(backend, tmp_path), durability="normal") as store:
        session = await store.create()
        await in_other_loops(*(append_many(store, session, name) for name in range(LOOPS)))

        said = [message.text.split() for message in await session.messages()]
        assert len(said) == LOOPS * APPENDS
        for name in range(LOOPS):
            own = [int(number) for each, number in said if each == str(name)]
            assert own == list(range(APPENDS))
        entries = await store.backend.entries(StreamId(session.id))
        assert [entry.seq for entry in entries] == list(range(LOOPS * APPENDS))
        assert (await store.verify()).problems == ()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_watch_sees_commits_from_another_event_loop(backend: str, tmp_path: Path) -> None:
    async with open_store(address_of(backend, tmp_path), durability="normal") as store:
        session = await store.create()
        changes = store.backend.changes()
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0.05)
        await in_other_loops(session.append(user("hello")))
        await asyncio.wait_for(waiting, 60)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_unsaved_session_is_stored_once_by_several_event_loops(
    backend: str, tmp_path: Path
) -> None:
    async with open_store(address_of(backend, tmp_path), durability="normal") as store:
        session = await store.create(lazy=True)
        texts = [f"{number}" for number in range(LOOPS)]
        await in_other_loops(*(session.append(user(text)) for text in texts))
        await in_other_loops(*(session.flush() for _ in range(LOOPS)))
        assert sorted(message.text for message in await session.messages()) == texts
        assert not session.is_draft


async def refusal_of(work: Coroutine[Any, Any, Any]) -> str:
    try:
        await work
    except StoreUnavailable as error:
        return str(error)
    return "no error"


async def test_postgres_store_cannot_be_used_in_another_event_loop(
    postgres: PostgresServer,
) -> None:
    address = postgres.take()
    async with open_store(address) as store:
        session = await store.create()
        calls = (
            session.append(user("lost?")),
            session.messages(),
            store.create(),
            store.recent(),
            store.search("x"),
            store.close(),
        )
        told = await asyncio.wait_for(in_other_loops(*map(refusal_of, calls)), 60)
        for line in told:
            assert "opened in another event loop" in line
            assert "perdure.blocking" in line
        await session.append(user("kept"))
        assert [message.text for message in await session.messages()] == ["kept"]
    postgres.give_back(address)


def test_postgres_store_of_closed_loop_raises_clear_error(postgres: PostgresServer) -> None:
    address = postgres.take()
    loop = asyncio.new_event_loop()
    opening = open_store(address)
    store = loop.run_until_complete(opening.__aenter__())
    assert "another event loop" in asyncio.run(refusal_of(store.create()))
    loop.run_until_complete(opening.__aexit__(None, None, None))
    loop.close()
    postgres.give_back(address)


def without_asyncio(work: Coroutine[Any, Any, Any]) -> None:
    """Run `work` without an event loop of asyncio, as trio does."""
    try:
        work.send(None)
    except StopIteration:
        return
    finally:
        work.close()


def test_opening_without_asyncio_raises_clear_error(tmp_path: Path) -> None:
    for address in (*(address_of(each, tmp_path) for each in BACKENDS), "postgresql://u@h/d"):
        with pytest.raises(NotAsyncio, match="under trio or curio, call perdure"):
            without_asyncio(open_store(address).__aenter__())


@pytest.mark.parametrize("backend", ["sqlite", "jsonl"])
def test_calls_without_asyncio_raise_clear_error(backend: str, tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    opening = open_store(address_of(backend, tmp_path))
    store = loop.run_until_complete(opening.__aenter__())
    session = loop.run_until_complete(store.create())
    for call in (session.append(user("x")), session.messages(), store.create(), store.close()):
        with pytest.raises(NotAsyncio):
            without_asyncio(call)
    loop.run_until_complete(opening.__aexit__(None, None, None))
    loop.close()
