"""Goals for the public handles, compared with the internal call and with the raw driver.

The raw driver, the store and a `Session` append each turn in random order. If the package
``openai-agents`` is installed, `SQLiteSession` of the OpenAI SDK appends each turn, too. The first
open is measured in new processes. Its time includes the imports of perdure and its libraries, but
not the start of Python and the import of asyncio.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import perdure
from benchmarks.concurrent import OVER_RAW, PROCESSES, of_processes
from benchmarks.figures import Figure, Run, Stopwatch, append, create, median, opened
from benchmarks.raw import RawLog
from benchmarks.tool_turns import tool_turns
from benchmarks.workload import conversation
from perdure.session.codec import encode, new_tree
from perdure.session.ids import StreamId
from perdure.session.messages import Message
from perdure.stores.sqlite.writer import Durability

TURNS = 2_000
EXTRA_MS = 0.30
SESSIONS = 64
TURNS_EACH = 100
ROUNDS = 5
GROUP_RATIO = 1.2
NEWEST = 50
NEWEST_MS = 0.5
READS = 1_000
FIRST_MS = 60.0
STARTS = 9

_FIRST = """
import asyncio, sys, time
async def first():
    began = time.process_time()
    import perdure
    async with perdure.open(sys.argv[1]):
        print(1000 * (time.process_time() - began))
asyncio.run(first())
"""


async def measure(run: Run) -> list[Figure]:
    """Measure appends, concurrent sessions and processes, reads, turns, and the first open."""
    return [
        *await _append(run, "full"),
        *await _append(run, "normal"),
        *await _sessions(run),
        await _newest(run),
        *await of_processes(
            run,
            "handle",
            f"{PROCESSES} processes through handles, one SQLite file, durability full",
        ),
        *await tool_turns(run),
        _first(run),
    ]


async def _append(run: Run, durability: Durability) -> list[Figure]:
    stream = StreamId("benchmark")
    raw = RawLog(run.folder / f"raw-{durability}.db", durability)
    inner = await opened(run.folder / f"inner-{durability}.db", durability)
    await create(inner, stream)
    chance = random.Random(run.seed)
    peer = _peer(run.folder / f"peer-{durability}.db") if durability == "normal" else None
    address = f"sqlite:///{run.folder}/handles-{durability}.db"
    async with perdure.open(address, durability=durability) as store:
        session = await store.create()

        async def by_raw(said: tuple[Message, ...]) -> None:
            raw.append([encode(message) for message in said])

        async def by_store(said: tuple[Message, ...]) -> None:
            await append(inner, stream, [new_tree(message) for message in said])

        async def by_handle(said: tuple[Message, ...]) -> None:
            await session.append_many(said)

        ways: dict[str, Callable[[tuple[Message, ...]], Awaitable[object]]] = {
            "raw": by_raw,
            "the internal store": by_store,
            "the handle": by_handle,
            **({} if peer is None else {"OpenAI SDK's SQLiteSession": peer}),
        }
        watches = {name: Stopwatch() for name in ways}
        for said in conversation(run.seed, run.count(TURNS)):
            for name in chance.sample(sorted(ways), len(ways)):
                with watches[name]:
                    await ways[name](said)
    await inner.close()
    raw.close()
    middle = {name: median(watch.laps_ms) for name, watch in watches.items()}
    claim = f"append a turn through a session handle, durability {durability}"
    others = [Figure(claim, f"p50 of {name}", value, "ms") for name, value in middle.items()]
    extra = middle["the handle"] - middle["raw"]
    found = [
        *others,
        Figure(claim, "p50 of the handle minus p50 of raw", extra, "ms", limit=EXTRA_MS),
    ]
    if peer is not None:
        ratio = middle["the handle"] / middle["OpenAI SDK's SQLiteSession"]
        found.append(
            Figure(claim, "p50 of the handle, divided by p50 of OpenAI's", ratio, "x", limit=1)
        )
    return found


def _peer(path: Path) -> Callable[[tuple[Message, ...]], Awaitable[object]] | None:
    """Return a function that appends with the OpenAI SDK; None if the SDK is not installed."""
    if find_spec("agents") is None:
        return None
    memory: Any = importlib.import_module("agents")
    session = memory.SQLiteSession("benchmark", path)

    async def by_peer(said: tuple[Message, ...]) -> None:
        items = [{"role": message.role, "content": message.text} for message in said]
        await session.add_items(items)

    return by_peer


async def _sessions(run: Run) -> list[Figure]:
    count = run.count(TURNS_EACH)
    planned = [list(conversation(run.seed + n, count)) for n in range(SESSIONS)]
    alone = [[encode(m) for m in said] for said in conversation(run.seed, run.count(500) * ROUNDS)]
    raw = RawLog(run.folder / "raw-sessions.db", "full")
    rates: list[float] = []
    raw_rates: list[float] = []
    async with perdure.open(f"sqlite:///{run.folder}/sessions.db") as store:
        sessions = [await store.create() for _ in range(SESSIONS)]

        async def write(session: perdure.Session, said: Sequence[tuple[Message, ...]]) -> None:
            for messages in said:
                await session.append_many(messages)

        for turn in range(ROUNDS):
            began = time.perf_counter()
            bodies = alone[turn::ROUNDS]
            for each in bodies:
                raw.append(each)
            between = time.perf_counter()
            parts = [plan[turn::ROUNDS] for plan in planned]
            await asyncio.gather(*map(write, sessions, parts))
            ended = time.perf_counter()
            raw_rates.append(len(bodies) / (between - began))
            rates.append(sum(map(len, parts)) / (ended - between))
    raw.close()
    claim = f"{SESSIONS} concurrent sessions through handles, one SQLite file, durability full"
    ratio = median(rates) / median(raw_rates)
    return [
        Figure(claim, "turns appended per second", median(rates), "/s", median(raw_rates)),
        Figure(claim, OVER_RAW, ratio, "x", least=GROUP_RATIO),
    ]


async def _newest(run: Run) -> Figure:
    watch = Stopwatch()
    async with perdure.open(f"sqlite:///{run.folder}/newest.db", durability="normal") as store:
        session = await store.create()
        for said in conversation(run.seed, run.count(TURNS)):
            await session.append_many(said)
        for _ in range(run.count(READS)):
            with watch:
                again = await store.open(session.id)
                await again.messages(last=NEWEST)
    claim = f"open a session and read its newest {NEWEST} messages"
    return Figure(claim, "p50", median(watch.laps_ms), "ms", limit=NEWEST_MS)


def _first(run: Run) -> Figure:
    address = f"sqlite:///{run.folder}/first.db"
    command = [sys.executable, "-c", _FIRST, address]
    taken = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(STARTS)
    ]
    claim = "open a store in a new process, with the imports"
    return Figure(claim, "p50 of CPU time", median(taken), "ms", limit=FIRST_MS)
