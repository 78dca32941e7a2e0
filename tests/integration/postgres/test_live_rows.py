"""How long the rows of live events stay in the database, and the text in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
import pytest

import perdure
from perdure import Agent, Chat, Event, LiveEvent, Runtime, Snapshot, Store, Watch
from perdure.client.clock import SystemClock
from perdure.errors import PerdureError
from perdure.models.protocol import Delta, ModelRequest
from perdure.models.scenario import Reply, Say, Scenario
from perdure.models.scripted import ScriptedModel
from perdure.stores.cluster import live_sender
from tests.fakes.workers import until

SECRET = "my password is swordfish"
AGENT = Agent("open", model="scripted:open")
LIMIT_S = 60


class HeldModel(ScriptedModel):
    """A model that reveals the secret in pieces; after the first piece it waits for `goes_on`."""

    def __init__(self) -> None:
        reply = Reply(steps=(Say(SECRET),), chunk_chars=1, chunk_delay_s=0.05)
        super().__init__(Scenario(name="open", rules=(reply,)), clock=SystemClock())
        self.goes_on = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        async for delta in super().stream(request):
            yield delta
            await self.goes_on.wait()


@asynccontextmanager
async def running(address: str) -> AsyncGenerator[tuple[Store, Chat, HeldModel]]:
    """Start a chat of `AGENT` in its own store."""
    model = HeldModel()
    async with (
        perdure.open(address) as store,
        Runtime(store, agents=[AGENT], models=model) as runtime,
    ):
        yield store, await runtime.start(AGENT), model


def rows(address: str) -> list[bytes]:
    """Return the contents of all rows of live events."""
    with psycopg.connect(address, autocommit=True) as db:
        return [bytes(row[0]) for row in db.execute("SELECT content FROM perdure.live_delta")]


def leave_row(address: str, age_s: int) -> None:
    """Insert a row of live events that is `age_s` seconds old, as if its process had died."""
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(
            "INSERT INTO perdure.live_delta VALUES"
            " ('default', 's', 1, 1, 1, now() - make_interval(secs => %s), %s)",
            (age_s, SECRET.encode()),
        )


async def told_to_watch(chat: Chat, other: Store, model: HeldModel) -> str:
    """Run a turn that another store watches; return the id of its answer."""
    watch = (await other.open(chat.id)).watch()
    turn = chat.send("tell")
    live, answer = 0, ""
    async with asyncio.timeout(LIMIT_S):
        async for event in watch:
            live += isinstance(event, LiveEvent)
            if isinstance(event, LiveEvent | Snapshot):
                model.goes_on.set()
            if isinstance(event, Event) and event.type == "agent:message":
                answer = f"{chat.id}/{event.seq}"
            if event.type == "session:turn_completed":
                break
    await watch.aclose()
    assert live > 0
    await turn
    return answer


@pytest.fixture(autouse=True)
def _no_lingering_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_sender, "LINGER_S", 3_600.0)
    monkeypatch.setattr(live_sender, "SETTLE_S", 60.0)


@pytest.fixture
async def other(address: str) -> AsyncIterator[Store]:
    async with perdure.open(address) as opened:
        yield opened


async def test_erased_answer_is_not_in_the_live_events(address: str, other: Store) -> None:
    async with running(address) as (store, chat, model):
        answer = await told_to_watch(chat, other, model)
        assert rows(address)
        session = await store.open(chat.id)
        certificate = await session.erase_entries([answer])
        assert certificate.is_complete
        assert rows(address) == []


async def test_closed_store_leaves_no_live_event_in_the_database(
    address: str, other: Store
) -> None:
    async with running(address) as (_, chat, model):
        await told_to_watch(chat, other, model)
        assert rows(address)
    assert rows(address) == []


async def test_opening_deletes_old_rows_of_dead_processes(address: str, other: Store) -> None:
    leave_row(address, 61)
    async with perdure.open(address):
        assert rows(address) == []
    leave_row(address, 30)
    async with perdure.open(address):
        assert rows(address) == [SECRET.encode()]


_BLOCKED = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%live_delta%'
"""


async def shown_elsewhere(watch: Watch) -> None:
    """Wait until `watch` shows the text of the model."""
    async with asyncio.timeout(LIMIT_S):
        while not isinstance(await anext(watch), LiveEvent | Snapshot):
            pass


async def test_live_event_written_during_an_erasure_does_not_remain(
    address: str, other: Store
) -> None:
    async with running(address) as (_, chat, model):
        watch = other.watch()
        following = asyncio.ensure_future(shown_elsewhere(watch))
        turn = chat.send("tell")
        await following
        connected = await psycopg.AsyncConnection.connect(address)
        async with (
            connected as erasure,
            await psycopg.AsyncConnection.connect(address, autocommit=True) as look,
        ):
            row = "SELECT FROM perdure.stream WHERE id = %s FOR UPDATE"
            await erasure.execute(row.encode(), (chat.id,))
            model.goes_on.set()

            async def is_blocked() -> bool:
                return await (await look.execute(_BLOCKED.encode())).fetchone() != (0,)

            await until(is_blocked)
            await erasure.execute("DELETE FROM perdure.live_delta")
            await erasure.execute("UPDATE perdure.stream SET is_erased = true, epoch = epoch + 1")
        with suppress(PerdureError):
            await turn
        assert rows(address) == []
        await watch.aclose()


async def test_erased_session_is_in_no_row_and_no_snapshot(address: str, other: Store) -> None:
    async with running(address) as (store, chat, model):
        watch = other.watch()
        following = asyncio.ensure_future(shown_elsewhere(watch))
        turn = chat.send("tell")
        await following
        async with perdure.open(address) as third:
            await third.erase(chat.id)
        model.goes_on.set()

        async def follow() -> None:
            async for _ in watch:
                pass

        following = asyncio.ensure_future(follow())
        with suppress(PerdureError):
            await turn

        async def is_forgotten() -> bool:
            return not (store.bus.snapshots() or other.bus.snapshots())

        await until(is_forgotten)
        assert rows(address) == []
        following.cancel()
