"""A process that measures a turn: ``python -m benchmarks.large_child JOB``, started by `large`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

import perdure
from benchmarks.texts import text_of
from perdure.models.catalogue import PROVIDERS

_TICK_S = 0.001
_WARM_S = 0.5


class Job(msgspec.Struct, frozen=True):
    """The thing to measure: a turn of `size` bytes of `form`, or the first call of `provider`."""

    folder: str
    seed: int
    form: str = ""
    size: int = 0
    provider: str = ""
    is_fallback: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """The cost of a turn.

    `sizes` is the growth of the process's memory, divided by the size of the text.

    Three fields are maxima over the intervals between two iterations of the loop. `held_ms` is the
    CPU time of the loop's thread. `busy_ms` is the CPU time of all threads, which share Python's
    lock. `stall_ms` is the elapsed time.
    """

    cpu_s: float
    held_ms: float
    busy_ms: float
    stall_ms: float
    sizes: float = 0
    raw_s: float = 0
    search_cpu_s: float = 0
    search_held_ms: float = 0
    next_stall_ms: float = 0


class Watch:
    """The maximum duration and CPU time of an iteration of the event loop."""

    def __init__(self) -> None:
        self.held_s = self.busy_s = self.stall_s = 0.0

    async def tick(self) -> None:
        """Count until cancelled."""
        wall, cpu, all_cpu = time.perf_counter(), time.thread_time(), time.process_time()
        while True:
            await asyncio.sleep(_TICK_S)
            now, used, all_used = time.perf_counter(), time.thread_time(), time.process_time()
            self.stall_s = max(self.stall_s, now - wall - _TICK_S)
            self.held_s = max(self.held_s, used - cpu)
            self.busy_s = max(self.busy_s, all_used - all_cpu)
            wall, cpu, all_cpu = now, used, all_used


@asynccontextmanager
async def watched() -> AsyncGenerator[Watch]:
    """Watch the event loop during the block."""
    watch = Watch()
    ticking = asyncio.create_task(watch.tick())
    await asyncio.sleep(10 * _TICK_S)
    watch.held_s = watch.busy_s = watch.stall_s = 0.0
    try:
        yield watch
    finally:
        await asyncio.sleep(2 * _TICK_S)
        ticking.cancel()


async def turn_of(job: Job, folder: str) -> Outcome:
    """Measure a turn of long text with the model ``echo``, and a search after the turn."""
    async with (
        perdure.open(f"sqlite:///{folder}/s.db") as store,
        perdure.Runtime(store) as runtime,
    ):
        chat = await runtime.start(perdure.Agent("a", model="scripted:echo"))
        await chat.send("hello")
        await store.search("hello")
        text = text_of(job.form, job.size, job.seed)
        gc.collect()
        before, began = _peak_bytes(), time.process_time()
        async with watched() as watch:
            await chat.send(text)
        cpu_s, grown = time.process_time() - began, _peak_bytes() - before
        began = time.process_time()
        async with watched() as searching:
            await store.search("hello")
        searched_s = time.process_time() - began
        return Outcome(
            cpu_s=cpu_s,
            held_ms=watch.held_s * 1_000,
            busy_ms=watch.busy_s * 1_000,
            stall_ms=watch.stall_s * 1_000,
            sizes=grown / job.size,
            raw_s=_cpu_of(lambda: _raw(text, Path(folder) / "raw.json")),
            search_cpu_s=searched_s,
            search_held_ms=searching.held_s * 1_000,
        )


async def first_call(job: Job, folder: str) -> Outcome:
    """Measure the first turn whose model is `provider`'s, and the next turn."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.model_server", PROVIDERS[job.provider].wire),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    os.environ[PROVIDERS[job.provider].url_variables[0]] = url
    for name in PROVIDERS[job.provider].key_variables:
        os.environ[name] = "sk-test"
    model = f"{job.provider}:some-model"
    os.environ["OLLAMA_BASE_URL"] = "http://127.0.0.1:9/v1"  # where nothing listens
    models = ["ollama:absent", model] if job.is_fallback else [model]
    try:
        async with (
            perdure.open(f"sqlite:///{folder}/s.db") as store,
            perdure.Runtime(store) as runtime,
        ):
            agent = perdure.Agent("a", model=models[0], fallbacks=models[1:])
            chat = await runtime.start(agent)
            await asyncio.sleep(_WARM_S)
            began = time.process_time()
            async with watched() as watch:
                reply = await chat.send("hello")
            cpu_s = time.process_time() - began
            assert reply.text, reply
            async with watched() as again:
                await chat.send("hello")
    finally:
        process.stdin.close()
        await process.wait()
    return Outcome(
        cpu_s=cpu_s,
        held_ms=watch.held_s * 1_000,
        busy_ms=watch.busy_s * 1_000,
        stall_ms=watch.stall_s * 1_000,
        next_stall_ms=again.stall_s * 1_000,
    )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


def _cpu_of(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _raw(text: str, path: Path) -> None:
    """Write `text` with the least possible work."""
    with path.open("wb") as file:
        file.write(json.dumps(text).encode())
        file.flush()
        os.fsync(file.fileno())


async def main(job: Job) -> Outcome:
    """Measure `job`."""
    with TemporaryDirectory(dir=job.folder) as folder:
        return await (first_call if job.provider else turn_of)(job, folder)


if __name__ == "__main__":
    told = asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Job)))
    print(msgspec.json.encode(told).decode(), flush=True)
