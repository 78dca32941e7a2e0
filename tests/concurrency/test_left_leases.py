"""A process takes its own lease again immediately if the turn with the lease no longer runs."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

import psycopg
import pytest

from perdure import Agent, Runtime, tool
from perdure.client.agents.chat import Chat
from perdure.client.open import open as open_store
from perdure.engine.turns.config import Limits
from perdure.errors import LeaseHeld, PerdureError, StoreUnavailable
from perdure.models.scenario import CallTools, Reply, Say, ScriptedCall
from perdure.session.ids import StreamId
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult, Lease
from tests.fakes.chats import Stage
from tests.fakes.postgres import PostgresServer
from tests.fakes.samples import with_larger

_CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name LIKE 'perdure%' AND datname = current_database()
"""


class Failing(MemoryStore):
    """A store that acknowledges no commit from number `fails_at` on, until it is healed.

    `has_landed`: commit number `fails_at` is stored although the store does not acknowledge it.
    """

    fails_at = 0
    has_landed = False
    is_down = False

    async def commit(self, commit: Commit) -> CommitResult:
        self.fails_at -= 1
        if self.fails_at == 0:
            if self.has_landed:
                await super().commit(commit)
            self.is_down = True
        self._check_up()
        return await super().commit(commit)

    async def release_lease(self, lease: Lease) -> None:
        self._check_up()
        await super().release_lease(lease)

    def _check_up(self) -> None:
        if self.is_down:
            raise StoreUnavailable("memory:", "the server is gone")


@tool(effect="read", on_unknown="retry")
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def staged() -> tuple[Stage, Failing]:
    call = CallTools((ScriptedCall("double", '{"number": 2}'),))
    replies = [Reply(steps=(call,)), *(Reply(steps=(Say(word),)) for word in ("4", "5", "6"))]
    stage = Stage(*replies)
    failing = Failing(clock=stage.clock, random=stage.store.outside.random)
    stage.memory = stage.store.backend = failing
    return stage, failing


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("has_landed", [True, False])
@pytest.mark.parametrize("fails_at", range(1, 5))
async def test_lease_is_acquired_again_immediately_after_a_failed_commit(
    fails_at: int, has_landed: bool, is_named: bool
) -> None:
    stage, failing = staged()
    agent = Agent("helper", model="scripted:test", tools=(double,))
    owner = "worker" if is_named else None
    runtime = Runtime(stage.store, [agent], models=stage.models, owner=owner)
    chat = await runtime.start(agent, id="s")
    failing.fails_at, failing.has_landed = fails_at, has_landed
    with pytest.raises(PerdureError):
        await chat.send("2?")
    failing.is_down = False

    chat = await runtime.resume("s")
    if chat.turn is not None:
        await chat.turn
    await chat.send("and now?")


async def test_message_cannot_be_sent_while_another_process_holds_the_lease() -> None:
    stage, _ = staged()
    chat = await stage.chat([double])
    other = await stage.runtime(chat.agent, owner="here").resume("s")
    lease = await stage.memory.acquire_lease(StreamId(chat.session.id), "another process", 30_000)
    with pytest.raises(LeaseHeld):
        await other.send("2?")
    await stage.memory.release_lease(lease)


async def cut_connections(db: psycopg.AsyncConnection, after_s: float) -> None:
    """Cut the connections of perdure to its server."""
    await asyncio.sleep(after_s)
    await db.execute(_CUT)


@pytest.mark.parametrize("sends", with_larger(36, 277))
async def test_message_is_sent_after_faults_of_postgres(
    postgres: PostgresServer, sends: int
) -> None:
    """In two of three sends, the connections are cut after a random part of a send's duration."""
    address, chance = postgres.take(), random.Random(7)
    failed = refused = answered = 0
    whole_s = 0.02
    agent = Agent("helper", model="scripted:echo", limits=Limits(max_turns=10_000))
    async with (
        open_store(address) as store,
        Runtime(store, [agent]) as runtime,
        await psycopg.AsyncConnection.connect(address, autocommit=True) as db,
    ):
        chat: Chat | None = await runtime.start(agent, id="s")
        for number in range(sends):
            after_s = chance.uniform(0, whole_s)
            cutting = asyncio.ensure_future(cut_connections(db, after_s)) if number % 3 else None
            begun_s = time.monotonic()
            try:
                if chat is None:
                    chat = await runtime.resume("s")
                    if chat.turn is not None:
                        await chat.turn
                await chat.send(f"message {number}")
                answered += 1
                whole_s = whole_s if cutting else time.monotonic() - begun_s
            except LeaseHeld:
                refused += 1
                chat = None
            except PerdureError:
                failed += 1
                chat = None
            if cutting is not None:
                await cutting
        told = f"{sends} sends: {answered} answered, {failed} failed, {refused} refused"
        print(told)  # noqa: T201 - what the run shows, with -s
        with suppress(PerdureError):  # the connections that were cut last
            await store.recent()
        chat = await runtime.resume("s")
        if chat.turn is not None:
            await chat.turn
        assert (await chat.send("at last")).text
        assert (await store.verify()).problems == ()
    postgres.give_back(address)
    assert refused == 0, told
    assert failed > sends // 20, told
    assert answered > sends // 20, told
