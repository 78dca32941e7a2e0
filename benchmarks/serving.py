"""Goal: 500 SSE watchers of 50 sessions receive every event, 99 % of the events within 50 ms.

The server is a separate process with perdure's API and SQLite; the watchers are sockets of this
process. The delay of an event is the time from the return of the append to its arrival. Plain
sockets that send the same number of bytes are measured in the same run.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process

import msgspec

from benchmarks.figures import Figure, Run, median, percentile
from benchmarks.served_child import Address, Job, Told

SESSIONS = 50
WATCHERS = 500
RATE = 200.0
EVENTS = 6_000
WITHIN_MS = 50.0
DRAIN_S = 20.0
LINE_LIMIT = 2**24

Arrivals = dict[int, int]
"""Maps the seq of each event to its time of arrival. Units: monotonic nanoseconds."""


async def measure(run: Run) -> list[Figure]:
    """Measure delay, gaps, memory and CPU."""
    raw, _ = await _watched(run, is_raw=True)
    delays, told = await _watched(run, is_raw=False)
    claim = f"{WATCHERS} SSE watchers of {SESSIONS} sessions, {RATE:.0f} events/s"
    gaps = len(told.commits) * WATCHERS // SESSIONS - len(delays)
    each_kb = (told.watched_bytes - told.idle_bytes) / WATCHERS / 1024
    sent = max(len(delays), 1)
    delay = "time from commit to watcher (Raw: plain sockets)"
    return [
        Figure(
            claim,
            f"p99 {delay}",
            percentile(delays, 0.99),
            "ms",
            percentile(raw, 0.99),
            limit=WITHIN_MS,
        ),
        Figure(claim, f"p50 {delay}", median(delays), "ms", median(raw)),
        Figure(claim, f"longest {delay}", max(delays), "ms", max(raw)),
        Figure(claim, "events that did not arrive", gaps, "", limit=0),
        Figure(claim, "memory of the server per watcher", each_kb, "KiB"),
        Figure(claim, "CPU time of the server per sent event", 1e6 * told.cpu_s / sent, "us"),
    ]


async def _watched(run: Run, *, is_raw: bool) -> tuple[list[float], Told]:
    """Return the delay of each event at each watcher in ms, and the printed commits."""
    job = Job(str(run.folder), SESSIONS, run.count(EVENTS), RATE, is_raw)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.served_child",
        msgspec.json.encode(job).decode(),
        stdin=PIPE,
        stdout=PIPE,
        limit=LINE_LIMIT,
    )
    address = msgspec.json.decode(await _line(child), type=Address)
    arrivals: list[Arrivals] = [{} for _ in range(WATCHERS)]
    ready = [asyncio.Event() for _ in range(WATCHERS)]
    tasks = [
        asyncio.create_task(_watch(address, number, arrivals[number], ready[number]))
        for number in range(WATCHERS)
    ]
    await asyncio.gather(*(event.wait() for event in ready))
    await _go_on(child)
    told = msgspec.json.decode(await _line(child), type=Told)
    await _drained(told, arrivals)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await _go_on(child)
    await child.wait()
    return _delays_ms(told, arrivals), told


async def _watch(address: Address, number: int, arrived: Arrivals, ready: asyncio.Event) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
    writer.write(address.requests[number % SESSIONS].encode())
    while line := await reader.readline():
        if line.startswith(b"id: "):
            arrived[int(line[4:])] = time.monotonic_ns()
        elif line.startswith(b"event: caught-up"):
            ready.set()


async def _drained(told: Told, arrivals: list[Arrivals]) -> None:
    """Wait until every watcher has received the last event of its session, or for `DRAIN_S`."""
    last = {session: seq for session, seq, _ in told.commits}
    waited_s = 0.0
    while waited_s < DRAIN_S and any(
        last[number % SESSIONS] not in arrived for number, arrived in enumerate(arrivals)
    ):
        await asyncio.sleep(0.1)
        waited_s += 0.1


def _delays_ms(told: Told, arrivals: list[Arrivals]) -> list[float]:
    at = {(session, seq): ns for session, seq, ns in told.commits}
    return [
        (arrived[seq] - at[number % SESSIONS, seq]) / 1e6
        for number, arrived in enumerate(arrivals)
        for seq in arrived
        if (number % SESSIONS, seq) in at
    ]


async def _line(child: Process) -> bytes:
    assert child.stdout is not None
    return await child.stdout.readline()


async def _go_on(child: Process) -> None:
    assert child.stdin is not None
    child.stdin.write(b"go\n")
    await child.stdin.drain()
