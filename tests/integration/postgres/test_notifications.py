"""The listener for commits of other processes, when it starts and ends."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import psycopg
import pytest

import perdure
from perdure.session.ids import StreamId
from perdure.stores.postgres.address import route_of
from perdure.stores.postgres.database import Connected, Database, Statement
from perdure.stores.postgres.notifications import Watcher
from perdure.stores.postgres.store import PostgresStore
from tests.fakes.chats import until
from tests.fakes.clock import SeededRandom


class SlowDatabase(Database):
    """A database whose new connection ends slowly after a cancellation."""

    is_ending: asyncio.Event
    may_end: asyncio.Event

    async def connect_apart(self) -> Connected:
        try:
            return await asyncio.Future[Connected]()
        finally:
            self.is_ending.set()
            await self.may_end.wait()


async def test_cancelled_close_still_ends_all_watches() -> None:
    database = SlowDatabase(route_of("postgresql://127.0.0.1:1/none"), "default", "normal")
    database.is_ending, database.may_end = asyncio.Event(), asyncio.Event()
    watcher = Watcher(database, SeededRandom())
    changes = watcher.watch()
    await asyncio.sleep(0)

    closing = asyncio.create_task(watcher.close())
    await database.is_ending.wait()
    closing.cancel()
    await asyncio.sleep(0)
    database.may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(StopAsyncIteration):
        await anext(changes)


async def test_new_watch_wakes_even_if_the_server_is_unreachable() -> None:
    database = Database(route_of("postgresql://127.0.0.1:1/none"), "default", "normal")
    watcher = Watcher(database, SeededRandom())

    await asyncio.wait_for(anext(watcher.watch()), 60)
    await watcher.close()


class FailingDatabase(Database):
    """A database whose first statement raises an error that is not an error of the store."""

    sent: list[Statement]

    async def carry_out(self, statement: Statement) -> None:
        self.sent.append(statement)
        if len(self.sent) == 1:
            raise ArithmeticError("the first statement")


async def test_notifications_continue_after_an_unexpected_error() -> None:
    database = FailingDatabase(route_of("postgresql://127.0.0.1:1/none"), "default", "normal")
    database.sent = []
    watcher, reported = Watcher(database, SeededRandom()), list[object]()
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )

    async def is_reported() -> bool:
        return bool(reported)

    watcher.tell([StreamId("a")])
    await until(is_reported)
    watcher.tell([StreamId("b")])
    await watcher.close()

    assert [type(error) for error in reported] == [ArithmeticError]
    assert '["b"]' in str(database.sent[1].values[0])


SLOW_COMMIT = """
CREATE FUNCTION public.sleep() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN PERFORM pg_sleep(4); RETURN NULL; END$$;
CREATE CONSTRAINT TRIGGER sleep AFTER INSERT ON perdure.entry DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION public.sleep()
"""

APPEND = """
import asyncio, sys, perdure

async def append(address, session):
    async with perdure.open(address) as store:
        await (await store.open(session)).append(perdure.user("late"))

asyncio.run(append(*sys.argv[1:]))
"""


async def test_watch_sees_a_slow_commit_whose_process_was_killed(
    store: PostgresStore, address: str, db: psycopg.Connection[tuple[Any, ...]]
) -> None:
    async with perdure.open(address) as opened:
        session = await opened.create()
        changes = opened.backend.changes(session.id)

        async def is_sleeping() -> bool:
            sleeping = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
            return db.execute(sleeping).rowcount > 0

        db.execute(SLOW_COMMIT)
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", APPEND, address, session.id)
        )
        try:
            await until(is_sleeping)
            child.kill()  # it sends no notification
            await child.wait()
            async with asyncio.timeout(60):
                while not await session.messages():
                    await anext(changes)
        finally:
            db.execute("DROP FUNCTION public.sleep CASCADE")
