"""Connection reuse: calls that follow each other use one connection, concurrent calls several."""

from __future__ import annotations

import asyncio

from perdure.client.clock import system_random
from perdure.session.ids import StreamId
from perdure.stores.postgres.address import route_of
from perdure.stores.postgres.database import Database, Pool, Statement
from perdure.stores.postgres.store import PostgresStore
from tests.conformance.store.building import append, create, said, texts

ME = Statement("SELECT pg_backend_pid()")
A_WHILE = Statement("SELECT pg_sleep(0.05)")


async def opened(address: str, max_connections: int) -> Database:
    """Open and return the object with which a store queries the server."""
    database = Database(route_of(address), "default", "normal")
    await database.open(max_connections)
    return database


async def test_sequential_calls_use_one_connection(address: str) -> None:
    database = await opened(address, 4)
    await asyncio.gather(*(database.ask(A_WHILE) for _ in range(8)))  # now there are several

    told = [(await database.ask(ME))[0][0][0] for _ in range(10)]

    assert len(set(told)) == 1
    await database.close()


async def test_waiting_call_gets_released_connection(address: str) -> None:
    database = await opened(address, 1)

    told = await asyncio.gather(*(database.ask(ME) for _ in range(20)))

    assert len({rows[0][0] for (rows,) in told}) == 1
    await database.close()


async def test_concurrent_calls_use_up_to_maximum_connections(address: str) -> None:
    store = await PostgresStore.open(address, random=system_random, max_connections=3)
    streams = [StreamId(f"s{number}") for number in range(12)]

    async def write(stream: StreamId) -> None:
        await create(store, stream)
        for number in range(5):
            await append(store, stream, said(str(number)))

    await asyncio.gather(*map(write, streams))

    for stream in streams:
        assert texts(await store.entries(stream)) == ["0", "1", "2", "3", "4"]
    await store.close()


class _Endless:
    """Work that ends only when it is cancelled."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    async def run(self) -> None:
        self.began.set()
        await asyncio.Event().wait()


async def test_pool_worker_can_be_cancelled_during_its_work() -> None:
    work = _Endless()
    queue: asyncio.Queue[_Endless] = asyncio.Queue()
    queue.put_nowait(work)
    worker = asyncio.ensure_future(Pool.worker(queue))
    await work.began.wait()
    worker.cancel()
    await asyncio.wait([worker], timeout=60)
    assert worker.cancelled()
