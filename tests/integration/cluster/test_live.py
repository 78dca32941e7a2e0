"""Live events of a worker's turn, in processes that only watch."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import perdure
from perdure import Chat, Event, LiveEvent, Runtime, Snapshot, Store
from perdure.events.types import AnyEvent
from tests.fakes.served import served
from tests.fakes.worker_program import BRIEF, HELD, SLOW, STORY, slow_model
from tests.fakes.workers import WorkerProcess, until, workers

pytestmark = pytest.mark.full_only

LIMIT_S = 60

_COUNT_WRITES = """
CREATE TABLE IF NOT EXISTS public.written (n int);
CREATE OR REPLACE FUNCTION public.count_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
    $$ BEGIN INSERT INTO public.written VALUES (1); RETURN NULL; END $$;
CREATE OR REPLACE TRIGGER counts AFTER INSERT ON perdure.live_delta
    FOR EACH ROW EXECUTE FUNCTION public.count_write();
CREATE OR REPLACE TRIGGER counts AFTER INSERT ON perdure.live_watch
    FOR EACH ROW EXECUTE FUNCTION public.count_write();
"""

_STOP_COUNT = """
DROP FUNCTION IF EXISTS public.count_write CASCADE;
DROP TABLE IF EXISTS public.written;
"""


@pytest.fixture
def counting(address: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database, which counts writes of live events until the test ends."""
    with psycopg.connect(address, autocommit=True) as db:
        try:
            db.execute(_COUNT_WRITES.encode())
            yield db
        finally:
            db.execute(_STOP_COUNT.encode())


@pytest.fixture(scope="module")
def both(address: str, folder: Path) -> Iterator[list[WorkerProcess]]:
    """Start two workers; a test can kill one of them."""
    with workers(2, address, folder, factory="slow") as started:
        yield started


@pytest.fixture
async def runtime(store: Store, both: Sequence[WorkerProcess]) -> AsyncIterator[Runtime]:
    async with Runtime(store, agents=[SLOW], models=slow_model(), runner="workers") as made:
        yield made


async def events_until(chat: Chat, last: str, store: Store, after: int = -1) -> list[AnyEvent]:
    """Watch the session with a new handle of `store`; return its events up to the type `last`."""
    found: list[AnyEvent] = []
    session = await store.open(chat.id)
    async with asyncio.timeout(LIMIT_S), aclosing(session.watch(after)) as watch:
        async for event in watch:
            found.append(event)
            if event.type == last:
                break
    return found


def texts_by_call(events: Sequence[AnyEvent]) -> dict[int, str]:
    """Map each call to the text of its live events; check their order and positions."""
    texts: dict[int, str] = {}
    numbers: dict[int, int] = {}
    open_call: int | None = None
    for event in events:
        if isinstance(event, Snapshot):
            texts[event.of], numbers[event.of] = event.partial.text, event.n
        elif isinstance(event, LiveEvent):
            assert event.n == numbers.get(event.of, 0) + 1
            assert event.of == open_call
            assert (event.agent, event.model) == ("slow", "scripted:slow")
            numbers[event.of] = event.n
            texts[event.of] = texts.get(event.of, "") + event.text
        elif event.type == "agent:model_called":
            open_call = event.seq
        elif event.type == "agent:model_finished":
            open_call = None
    return texts


def release_once_shown(event: AnyEvent, folder: Path) -> None:
    """Let the blocked model continue once `event` shows its text."""
    if isinstance(event, LiveEvent | Snapshot):
        (folder / HELD).unlink(missing_ok=True)


async def test_watch_gets_live_events_of_worker_in_order(runtime: Runtime, folder: Path) -> None:
    chat = await runtime.start(SLOW)
    (folder / HELD).touch()
    turn = chat.send("tell me")
    events: list[AnyEvent] = []
    async for event in turn:
        release_once_shown(event, folder)
        events.append(event)
    (text,) = texts_by_call(events).values()
    assert text == STORY == (await turn).text
    assert sum(isinstance(event, LiveEvent) for event in events) > 60


async def test_watch_of_a_store_gets_live_events_of_worker(
    runtime: Runtime, store: Store, folder: Path
) -> None:
    watch = store.watch()
    unknown = watch.cursor
    following = asyncio.ensure_future(anext(watch))

    async def has_begun() -> bool:
        return watch.cursor is not unknown

    await until(has_begun)
    chat = await runtime.start(SLOW)
    (folder / HELD).touch()
    chat.send("tell me")
    events = [await following]
    async with asyncio.timeout(LIMIT_S):
        while events[-1].type != "session:turn_completed":
            events.append(await anext(watch))
            release_once_shown(events[-1], folder)
    await watch.aclose()
    assert list(texts_by_call(events).values()) == [STORY]
    live = [event for event in events if isinstance(event, LiveEvent)]
    assert len(live) > 60
    assert {event.stream for event in live} == {chat.id}


async def test_watch_begun_during_a_call_gets_snapshot_then_later_events(
    runtime: Runtime, address: str, folder: Path
) -> None:
    chat = await runtime.start(SLOW)
    turn = chat.send("tell me, with a pause")
    live = 0
    async with perdure.open(address) as other, asyncio.timeout(LIMIT_S):
        async for event in turn:
            live += isinstance(event, LiveEvent)
            if live == 20:
                break
        head = (await other.open(chat.id)).head
        late: list[AnyEvent] = []
        async with aclosing((await other.open(chat.id)).watch(head)) as watch:
            async for event in watch:
                late.append(event)
                release_once_shown(event, folder)
                if event.type == "session:turn_completed":
                    break
    snapshots = [event for event in late if isinstance(event, Snapshot)]
    assert len(snapshots) == 1
    deltas = [event for event in late if isinstance(event, LiveEvent)]
    assert deltas[0].n == snapshots[0].n + 1
    assert snapshots[0].n >= 20
    assert snapshots[0].partial.text + "".join(event.text for event in deltas) == STORY


async def test_live_events_of_a_killed_worker_disappear(
    runtime: Runtime, store: Store, both: list[WorkerProcess], address: str, folder: Path
) -> None:
    chat = await runtime.start(SLOW)
    turn = chat.send("tell me, with a pause")
    events: list[AnyEvent] = []
    is_killed = False
    async with asyncio.timeout(LIMIT_S):
        async for event in turn:
            events.append(event)
            if is_killed:
                release_once_shown(event, folder)
            elif sum(isinstance(each, LiveEvent) for each in events) == 20:
                is_killed = True
                lease = (await store.backend.state(chat.id)).lease
                assert lease is not None
                (victim,) = [
                    each
                    for each in both
                    if f":{each.pid}" in lease.owner or str(each.pid) in lease.owner
                ]
                victim.send(signal.SIGKILL)
    assert is_killed
    texts = texts_by_call(events)
    first, second = texts
    assert STORY.startswith(texts[first])
    assert texts[first] != STORY
    assert texts[second] == STORY == (await turn).text
    finished = [
        event.payload.get("errorCode")
        for event in events
        if isinstance(event, Event) and event.type == "agent:model_finished"
    ]
    assert finished == ["interrupted", None]
    async with perdure.open(address) as other:
        late = await events_until(
            chat, "session:turn_completed", other, (await other.open(chat.id)).head - 1
        )
    assert not [event for event in late if not isinstance(event, Event)]


async def test_live_events_are_not_written_without_watchers(
    runtime: Runtime, counting: psycopg.Connection[Any], folder: Path
) -> None:
    chat = await runtime.start(SLOW)
    await chat.send("tell me")
    assert counting.execute("SELECT count(*) FROM public.written").fetchone() == (0,)
    (folder / HELD).touch()
    (folder / BRIEF).touch()
    async for event in chat.send("again"):
        release_once_shown(event, folder)
    (folder / BRIEF).unlink()
    row = counting.execute("SELECT count(*) FROM public.written").fetchone()
    assert row is not None
    assert row[0] > 10

    async def is_cleaned() -> bool:
        left = (
            "SELECT count(*) FROM perdure.live_delta",
            "SELECT count(*) FROM perdure.live_watch",
        )
        return all(counting.execute(each.encode()).fetchone() == (0,) for each in left)

    await until(is_cleaned)


@pytest.mark.all_only
async def test_worker_deletes_old_rows_of_dead_processes(
    both: list[WorkerProcess], address: str
) -> None:
    assert both
    with psycopg.connect(address, autocommit=True) as db:
        for seq, age_s in ((1, 61), (2, 0)):
            db.execute(
                "INSERT INTO perdure.live_delta VALUES"
                " ('default', 'dead', %s, 1, 1, now() - make_interval(secs => %s), '')",
                (seq, age_s),
            )

        async def is_swept() -> bool:
            left = db.execute("SELECT call FROM perdure.live_delta WHERE stream = 'dead'")
            return left.fetchall() == [(2,)]

        await until(is_swept)
        db.execute("DELETE FROM perdure.live_delta WHERE stream = 'dead'")


@pytest.mark.all_only
async def test_server_without_worker_streams_live_events(
    both: list[WorkerProcess],
    address: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PERDURE_RUNNER", "workers")
    (folder / HELD).touch()  # or a busy machine would watch only after the end of the answer
    async with served(tmp_path, agents=[SLOW], models=slow_model(), address=address) as server:
        sent = await server.http.post("/v1/messages", json={"text": "tell me"})
        session = sent.json()["sessionId"]
        live: list[dict[str, object]] = []
        durable: list[str] = []
        url = f"/v1/sessions/{session}/events?after=-1"
        async with asyncio.timeout(LIMIT_S), server.http.stream("GET", url) as stream:
            name = ""
            async for line in stream.aiter_lines():
                name = line.removeprefix("event: ") if line.startswith("event: ") else name
                if not line.startswith("data: "):
                    continue
                data = json.loads(line.removeprefix("data: "))
                if name in ("live", "snapshot"):
                    (folder / HELD).unlink(missing_ok=True)
                if name == "live":
                    live.append(data)
                elif name == "snapshot":
                    live = [{"n": data["n"], "text": data["partial"]["parts"][0]["text"]}]
                elif name == "durable":
                    durable.append(data["type"])
                    if data["type"] == "session:turn_completed":
                        break
        assert "".join(str(each["text"]) for each in live) == STORY
        assert len(live) > 20
        assert "agent:model_finished" in durable
