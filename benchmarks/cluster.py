"""Claims about workers: their rate, the delay of their turns, and the CPU time of the queue.

The workers complete at least 80 % as many turns per second as the raw driver commits. The queue
(DBOS) alone uses at most 4 ms of CPU for an empty turn.

At 70 % of the highest rate of the run, turns start within a second, and neither the memory nor the
queue grows. 10,000 waiting turns of one namespace delay a turn of another namespace by less than a
second.

The workers are processes on a database server that only this benchmark uses. Their turns have no
tools: a request is committed, queued, dequeued and answered by the scripted model. The raw driver
commits the same number of bytes in the same number of transactions, with one connection per worker
and one for the program. A delay is the time from the entry of the request to the first entry of the
turn. The writer of an entry sets its time.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psycopg

import perdure
from benchmarks.figures import Figure, Run, percentile
from benchmarks.raw import RawServer
from benchmarks.turn_costs import resident_kb
from perdure import Chat, Runtime, Store
from perdure.client.cluster.dbos_queue import DbosQueue
from perdure.client.cluster.requirements import own_queues
from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.ledger import TurnRequested
from perdure.session.messages import user
from perdure.stores.cluster.protocol import PROTOCOL, Work
from perdure.stores.protocol import Commit, Write
from tests.fakes.postgres import serving
from tests.fakes.worker_program import HELPER
from tests.fakes.workers import workers

COUNTS = (1, 2, 4)
SESSIONS = 24
TURNS = 600
EMPTY = 1_000
WAITING = 10_000
CROWD = 500
"""The number of sessions in which the `WAITING` turns wait."""

RATIO = 0.8
DBOS_MS = 4.0
DELAY_S = 1.0
LOAD = 0.7
LOAD_S = 600
TURNS_EACH = 20
GROWTH = 1.1
BODY = b"x" * 600
ENTRIES = (1, 3, 3)
"""Entries of a turn in each commit: the request; the start and the message; the answer and the end.
"""

_ENQUEUE = """
SELECT perdure_work.enqueue_workflow(
    workflow_name => 'perdure.turn', queue_name => %s,
    positional_args => ARRAY[to_json(i)], workflow_id => i, app_version => %s,
    queue_partition_key => session, application_name => 'perdure'
) FROM unnest(%s::text[], %s::text[]) AS w (i, session)
"""
_WAITING = "SELECT count(*) FROM perdure_work.workflow_status WHERE status = 'ENQUEUED'"


async def measure(run: Run) -> list[Figure]:
    """Measure turns by number of workers, DBOS alone, the delay under load, and two namespaces."""
    with serving(is_own=True, is_quick=False) as server:
        figures = await _dbos(run, server.new_database())
        best = 0.0
        for count in COUNTS:
            address = server.new_database()
            with (
                tempfile.TemporaryDirectory() as folder,
                workers(count, address, Path(folder)) as started,
            ):
                rate = await _rate(run, address)
                best = max(best, rate)
                raw = await _raw_rate(run, address, count + 1)
                claim = f"{count} workers" if count > 1 else "1 worker"
                figures += [
                    Figure(claim, "turns completed per second", rate, "/s", raw),
                    Figure(
                        claim,
                        "turns per second, divided by that of raw",
                        rate / raw,
                        "x",
                        least=RATIO,
                    ),
                ]
                if count == COUNTS[-1]:
                    pids = [each.pid for each in started]
                    figures += await _load(run, address, best * LOAD, pids)
        figures += await _namespaces(run, server.new_database())
    return figures


async def _rate(run: Run, address: str) -> float:
    """Return turns per second of sessions with one open turn each, after warm-up turns."""
    async with (
        perdure.open(address) as store,
        Runtime(store, [HELPER], runner="workers") as runtime,
    ):
        chats = [await runtime.start(HELPER) for _ in range(SESSIONS)]
        await asyncio.gather(*(_turns(chat, 2) for chat in chats))
        each = run.count(TURNS) // SESSIONS
        began = time.perf_counter()
        await asyncio.gather(*(_turns(chat, each) for chat in chats))
        return each * SESSIONS / (time.perf_counter() - began)


async def _turns(chat: Chat, count: int) -> None:
    for _ in range(count):
        await chat.send("And what do you say to this?")


async def _raw_rate(run: Run, address: str, connections: int) -> float:
    """Return turns per second if the raw driver commits the same transactions."""
    servers = [await RawServer.connect(address) for _ in range(connections)]
    count = run.count(TURNS)

    async def write(number: int) -> None:
        for _ in range(count // connections):
            for entries in ENTRIES:
                await servers[number].append([BODY] * entries, 1_000 + number)
            # Any queue in the database writes three times: when work is queued, taken and done.
            for _ in range(3):
                await servers[number].append([b"x" * 100], 1_000 + number)

    began = time.perf_counter()
    await asyncio.gather(*(write(number) for number in range(connections)))
    took_s = time.perf_counter() - began
    for server in servers:
        await server.close()
    return count // connections * connections / took_s


async def _dbos(run: Run, address: str) -> list[Figure]:
    """Measure the CPU time of this process for each empty turn that DBOS dequeues and completes."""
    count, done = run.count(EMPTY), asyncio.Semaphore(0)

    async def perform(work: Work) -> str:
        del work
        done.release()
        return "done"

    queue = DbosQueue(address, "benchmark", perform, 32, direct=address)
    await asyncio.to_thread(queue.launch)
    works = [Work("default", StreamId(f"s{number}"), 1) for number in range(count)]
    await asyncio.to_thread(_enqueue, address, "benchmark", works)
    began, began_s = time.process_time(), time.perf_counter()
    await asyncio.to_thread(queue.listen, ["benchmark"])
    for _ in range(count):
        await done.acquire()
    cpu_ms = (time.process_time() - began) * 1000 / count
    rate = count / (time.perf_counter() - began_s)
    await asyncio.to_thread(queue.close)
    return [
        Figure("DBOS alone", "CPU time per empty turn", cpu_ms, "ms", limit=DBOS_MS),
        Figure("DBOS alone", "empty turns completed per second", rate, "/s"),
    ]


async def _load(run: Run, address: str, rate: float, pids: Sequence[int]) -> list[Figure]:
    """Measure the delays of turns at a fraction of the maximum rate, and the growth in that time.

    The first third of the time is not compared, because caches still fill and sessions still grow.
    """
    seconds = LOAD_S // 10 if run.is_quick else LOAD_S
    memory: list[float] = []
    waiting: list[int] = []
    async with (
        perdure.open(address) as store,
        Runtime(store, [HELPER], runner="workers") as runtime,
    ):
        count = max(20, int(rate * seconds))
        load = _Load(runtime)
        turns: list[asyncio.Task[None]] = []
        began = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            turns.append(asyncio.ensure_future(load.turn()))
            if number in {count // 3, count - 1}:
                memory.append(sum(map(resident_kb, pids)) / 1024)
                waiting.append(await asyncio.to_thread(_waiting, address))
        await asyncio.gather(*turns)
        delays = [each for chat in load.chats for each in await delays_of(store, chat.id)]
    delays.sort(key=lambda each: each.asked_at)
    middle = [each.s for each in delays[len(delays) // 3 : len(delays) // 3 * 2]]
    last = [each.s for each in delays[len(delays) // 3 * 2 :]]
    claim = f"{COUNTS[-1]} workers at {LOAD:.0%} of the highest rate for {seconds} s"
    every = [each.s for each in delays]
    start = "from request to start of a turn"
    third, end = "after a third of the turns", "last third of the turns"
    return [
        Figure(claim, "turns completed", len(delays), ""),
        Figure(claim, f"p50 {start}", percentile(every, 0.5), "s"),
        Figure(claim, f"p99 {start}", percentile(every, 0.99), "s", limit=DELAY_S),
        Figure(claim, f"p50 {start}, middle third of the turns", percentile(middle, 0.5), "s"),
        Figure(claim, f"p50 {start}, {end}", percentile(last, 0.5), "s"),
        Figure(claim, f"p99 {start}, middle third of the turns", percentile(middle, 0.99), "s"),
        Figure(claim, f"p99 {start}, {end}", percentile(last, 0.99), "s", limit=DELAY_S),
        Figure(claim, f"memory of the workers {third}", memory[0], "MiB"),
        Figure(
            claim,
            f"memory at the end, divided by memory {third}",
            memory[1] / memory[0],
            "x",
            limit=GROWTH,
        ),
        Figure(claim, f"waiting turns {third}", waiting[0], ""),
        Figure(claim, "waiting turns at the end", waiting[1], "", limit=rate * DELAY_S),
    ]


class _Load:
    """Sessions in which turns run; a session with `TURNS_EACH` turns is replaced by a new one."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._free: list[Chat] = []
        self._left: Counter[StreamId] = Counter()
        self.chats: list[Chat] = []

    async def turn(self) -> None:
        """Run a turn in a session without an open turn."""
        chat = self._free.pop(0) if self._free else await self._start()
        await _turns(chat, 1)
        self._left[chat.id] -= 1
        if self._left[chat.id]:
            self._free.append(chat)

    async def _start(self) -> Chat:
        chat = await self._runtime.start(HELPER)
        self._left[chat.id] = TURNS_EACH
        self.chats.append(chat)
        return chat


class Delay(msgspec.Struct, frozen=True):
    """The time that a turn waited for its start.

    Units: `asked_at` is Unix milliseconds.
    """

    asked_at: int
    s: float


async def delays_of(store: Store, session: StreamId) -> list[Delay]:
    """Return how long each turn of the session waited for its start."""
    entries = await store.backend.entries(session)
    asked = {each.id: each.at for each in entries if each.kind == "turn_requested"}
    return [
        Delay(asked[each.about], (each.at - asked[each.about]) / 1000)
        for each in entries
        if each.kind == "turn_started" and each.about is not None and each.about in asked
    ]


async def _namespaces(run: Run, address: str) -> list[Figure]:
    """Measure the delay of single turns while another namespace has a long queue."""
    count = run.count(WAITING)
    with tempfile.TemporaryDirectory() as folder:
        options = ("--namespace", "crowd", "--also", "single")
        async with (
            workers(2, address, Path(folder), *options),
            perdure.open(address, namespace="single") as single,
            Runtime(single, [HELPER], runner="workers") as runtime,
            perdure.open(address, namespace="crowd") as crowd,
        ):
            chat = await runtime.start(HELPER)
            await _turns(chat, 3)
            before = await delays_of(single, chat.id)
            await _queue(crowd, address, count)
            waiting = _waiting(address)
            await _turns(chat, 10)
            delays = (await delays_of(single, chat.id))[len(before) :]
            left = _waiting(address)
    most = max(each.s for each in delays)
    slowest = "longest time from request to start"
    claim = f"turns while {waiting:,} turns of another namespace wait"
    return [
        Figure(claim, f"{slowest}, before the others wait", max(each.s for each in before), "s"),
        Figure(claim, f"{slowest}, of 10 turns", most, "s", limit=DELAY_S),
        Figure(claim, "waiting turns at the end", left, ""),
    ]


async def _queue(store: Store, address: str, count: int) -> None:
    """Write requests for new sessions to the log, then queue all of them in one statement."""
    backend = store.backend
    async with Runtime(store, [HELPER], runner="workers") as runtime:
        streams = [(await runtime.start(HELPER)).id for _ in range(min(count, CROWD))]
    body = new_side(TurnRequested(user("hello")))
    works: list[Work] = []
    for stream in streams:
        writes = (Write(stream=stream, entries=(body,) * -(-count // len(streams))),)
        commit = Commit(writes=writes, at=store.outside.clock.now_ms())
        (entries,) = (await backend.commit(commit)).entries
        works += [Work(backend.namespace, stream, entry.seq) for entry in entries]
    (queue,) = own_queues(backend.namespace, [HELPER])
    await asyncio.to_thread(_enqueue, address, queue, works)


def _enqueue(address: str, queue: str, works: Sequence[Work]) -> None:
    values = (queue, str(PROTOCOL), [work.id for work in works], [work.stream for work in works])
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(_ENQUEUE.encode(), values)


def _waiting(address: str) -> int:
    with psycopg.connect(address, autocommit=True) as db:
        row = db.execute(_WAITING).fetchone()
    assert row is not None
    return int(row[0])
