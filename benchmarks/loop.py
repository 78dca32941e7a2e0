"""Goals: a message at the size limit, and the first call to a provider, do not stall the loop.

A turn with a message at the limit takes at most 5 s of CPU and 4 times its size in memory. No stall
of the event loop is over 50 ms, there or at the first model call of a process, which loads the
provider's library; a task that sleeps a millisecond at a time measures the stalls, on the wall.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import perdure
from benchmarks.figures import CLOCK, Figure, Run
from perdure.models.scenario import Reply, Say, Scenario
from perdure.models.scripted import ScriptedModel
from tests.fakes.openai_server import openai_server

LIMIT_BYTES = 16 * 2**20
BESIDE = 1_000
"""Bytes of the message that are not its text, generously."""

TEXT = "Some words of a long text with numbers like 12345, and more of them. "
SCENARIO = Scenario(name="bench", rules=(Reply(steps=(Say("That is a lot."),)),))
TICK_S = 0.001
CPU_S = 5.0
MEMORY = 4.0
STALL_MS = 50.0


async def measure(run: Run) -> list[Figure]:
    """The first model call comes first: whatever is loaded before it would take from it."""
    return [*await _first_call(), *await _large(run)]


async def _first_call() -> list[Figure]:
    os.environ["OPENAI_API_KEY"] = "sk-benchmark"
    async with openai_server() as server, perdure.open("memory:") as store:
        os.environ["OPENAI_BASE_URL"] = server.url
        async with perdure.Runtime(store) as runtime:
            chat = await runtime.start(perdure.Agent("bench", model="openai:gpt-5"))
            async with _stalls() as first:
                await chat.send("Hello.")
            async with _stalls() as second:
                await chat.send("Hello again.")
    claim = "the first model call of a process"
    return [
        Figure(claim, "longest stall of the loop", max(first), "ms", limit=STALL_MS),
        Figure(claim, "longest stall of the second call", max(second), "ms", limit=STALL_MS),
    ]


async def _large(run: Run) -> list[Figure]:
    text = (TEXT * (LIMIT_BYTES // len(TEXT) + 1))[: LIMIT_BYTES - BESIDE]
    async with (
        perdure.open(f"sqlite:///{run.folder}/large.db") as store,
        perdure.Runtime(store, models=ScriptedModel(SCENARIO, clock=CLOCK)) as runtime,
    ):
        chat = await runtime.start(perdure.Agent("bench", model="scripted:bench"))
        await chat.send("Hello.")
        before, computed = _most_bytes(), time.process_time()
        async with _stalls() as stalls:
            await chat.send(text)
        computed = time.process_time() - computed
        memory = (_most_bytes() - before) / len(text)
    claim = f"a turn with a message of {LIMIT_BYTES // 2**20} MiB, the limit"
    return [
        Figure(claim, "CPU", computed, "s", limit=CPU_S),
        Figure(claim, "memory over its size", memory, "x", limit=MEMORY),
        Figure(claim, "longest stall of the loop", max(stalls), "ms", limit=STALL_MS),
    ]


@asynccontextmanager
async def _stalls() -> AsyncGenerator[list[float]]:
    """How much later than asked for a task of the loop went on. Units: milliseconds."""
    found = [0.0]

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)
            found.append(1000 * (time.perf_counter() - began - TICK_S))

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    yield found
    await asyncio.sleep(TICK_S)
    ticking.cancel()


def _most_bytes() -> int:
    """The most memory this process has held so far."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
