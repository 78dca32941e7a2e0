"""The agents and tools of the workers in the tests. The tools write in `$WORKER_FOLDER`."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from perdure import Agent, MemoryConfig, Recurring, Runtime, Store, tool
from perdure.client.clock import SystemClock
from perdure.engine.turns.config import Limits
from perdure.models.protocol import Delta, ModelRequest
from perdure.models.scenario import Reply, Say, Scenario
from perdure.models.scripted import ScriptedModel
from perdure.stores.cluster import live_sender
from perdure.stores.cluster.live_table import LINGER_S
from tests.fakes.embedders import WordEmbedder

FOLDER = "WORKER_FOLDER"
HELD = "held"
"""While the folder has a file of this name, no tool ends, and no model continues its answer."""
BRIEF = "brief"
"""If the folder has a file of this name, the rows of live events of `SLOW` are deleted soon."""


async def released() -> None:
    """Wait until no test blocks the tools of the worker."""
    while (Path(os.environ[FOLDER]) / HELD).exists():  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.02)


def note(text: str) -> None:
    """Write a line with the id of this process, so that a test sees the effect."""
    with (Path(os.environ[FOLDER]) / "effects").open("a") as effects:
        effects.write(f"{os.getpid()} {text}\n")


@tool(effect="read", on_unknown="retry")
async def wait(text: str, seconds: float) -> str:
    """Take some time."""
    note(text)
    await asyncio.sleep(seconds)
    await released()
    return f"waited for {text}"


@tool(effect="write", on_unknown="never")
async def once(text: str, seconds: float) -> str:
    """Make an effect that must not happen twice."""
    note(text)
    await asyncio.sleep(seconds)
    await released()
    return f"wrote {text}"


@tool(effect="read", on_unknown="retry")
async def die(text: str) -> str:
    """Kill the process."""
    note(text)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@tool(effect="write", needs_approval=True)
async def publish(text: str) -> str:
    """Make an effect that needs the approval of a person."""
    note(text)
    return f"published {text}"


MODEL = "scripted:echo"
HELPER = Agent("helper", model=MODEL, tools=[wait, once, die, publish])
CAPPED = Agent("capped", model=MODEL, limits=Limits(max_turns=1))
CAREFUL = Agent("careful", model=MODEL, on_pasted="refuse")
SPECIAL = Agent("special", model=MODEL, tools=[wait])
STORY = " ".join(f"word{number:03}" for number in range(120))
"""The answer of `SLOW`, streamed in about four seconds."""
PAUSE_AT = 30
"""The piece of an answer at which the model of `SLOW` blocks if the message has "pause"."""

SLOW = Agent("slow", model="scripted:slow")
GREEN = Recurring("0 9 1 1 *", "Is the build green?")
DAILY = Agent("daily", model=MODEL, recurring=[GREEN])


def runtime(store: Store) -> Runtime:
    """Return the runtime of an ordinary worker."""
    return Runtime(store, agents=[HELPER, CAPPED, CAREFUL])


def measured(store: Store) -> Runtime:
    """Return the runtime of a worker with metrics."""
    importlib.import_module("tests.fakes.measured_worker").begin(Path(os.environ[FOLDER]))
    return Runtime(store, agents=[HELPER])


class HeldModel(ScriptedModel):
    """A model that a test can block after each piece of each answer.

    If the message has "pause", the model blocks itself at a piece in the middle of the answer.
    """

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        folder = Path(os.environ[FOLDER])
        is_brief = (folder / BRIEF).exists()
        live_sender.LINGER_S = LINGER_S if is_brief else 10.0  # or a busy watcher reads too late
        pauses, pieces = "pause" in request.messages[-1].text, 0
        async for delta in super().stream(request):
            pieces += 1
            if pauses and pieces == PAUSE_AT:
                (folder / HELD).touch()
            yield delta
            await released()


def slow(store: Store) -> Runtime:
    """Return the runtime of a worker whose model streams for about four seconds."""
    live_sender.SETTLE_S = 60.0  # or a busy machine leaves the last live events out
    return Runtime(store, agents=[SLOW], models=HeldModel(slow_scenario(), clock=SystemClock()))


def slow_scenario() -> Scenario:
    """Return the scenario of the model of `SLOW`."""
    told = Reply(steps=(Say(STORY),), chunk_chars=8, chunk_delay_s=0.03)
    return Scenario(name="slow", rules=(told,))


def slow_model() -> ScriptedModel:
    """Return the model of `SLOW`."""
    return ScriptedModel(slow_scenario(), clock=SystemClock())


def impatient(store: Store) -> Runtime:
    """Return the runtime of a worker that ends sessions after a very short idle time."""
    return Runtime(store, agents=[HELPER], idle_timeout_s=0.2)


class NotedEmbedder(WordEmbedder):
    """An embedder that records each call of this process."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        note("embedded")
        await released()
        return await super().embed(texts)


def upkeeping(store: Store) -> Runtime:
    """Return the runtime of a worker that a test can block at each removal and each vector."""
    service: Any = store.backend.retention
    remove = service.remove

    async def slow_remove(stream: str, **conditions: object) -> bool:
        done = bool(await remove(stream, **conditions))
        if done:
            note("removed")
            await released()
        return done

    service.remove = slow_remove
    remembering = Agent("remembering", model=MODEL, memory=MemoryConfig(embedder=NotedEmbedder()))
    return Runtime(store, agents=[remembering])


def special(store: Store) -> Sequence[Agent]:
    """Return the agents of a worker with one additional agent."""
    del store
    return [HELPER, CAPPED, SPECIAL]


def recurring(store: Store) -> Sequence[Agent]:
    """Return the agents of a worker, one of which has a recurring message."""
    del store
    return [DAILY]


STANDS_STILL_AT = ('INSERT INTO "perdure_work".dbos_migrations', "INSERT INTO perdure.worker")


def standing(store: Store) -> Runtime:
    """Return the runtime of a worker that is blocked for two seconds twice at its start."""
    halt_once_at(STANDS_STILL_AT, lambda: time.sleep(2))
    return Runtime(store, agents=[HELPER])


def stalled(store: Store) -> Runtime:
    """Return the runtime of a worker whose launch is blocked longer than the time limit."""
    queues: Any = importlib.import_module("perdure.client.cluster.dbos_queue")
    queues.LAUNCHING_MS = 500
    halt_once_at(STANDS_STILL_AT[:1], lambda: time.sleep(2))
    return Runtime(store, agents=[HELPER])


def halt_once_at(beginnings: Sequence[str], wait: Callable[[], None]) -> None:
    """Write a note and call `wait` before certain SQL statements.

    Each text of `beginnings` causes one call, at the first statement that begins with the text.
    """
    execute, left = psycopg.Cursor.execute, list(beginnings)

    def slow_execute(cursor: Any, query: Any, *values: Any, **options: Any) -> Any:
        for begin in tuple(left):
            if str(query).strip().startswith(begin):
                left.remove(begin)
                note(begin)
                wait()
        return execute(cursor, query, *values, **options)

    psycopg.Cursor.execute = slow_execute  # type: ignore[method-assign]  # in this process only


def wait_to_go() -> None:
    """Block until a test makes the file ``go``."""
    while not (Path(os.environ[FOLDER]) / "go").exists():
        time.sleep(0.05)


def halting(store: Store) -> Sequence[Agent]:
    """Return the agents of a worker whose start is blocked until a test creates the file ``go``."""
    del store
    note("halted")
    wait_to_go()
    return [HELPER]


def halting_in_launch(store: Store) -> Sequence[Agent]:
    """Return the agents of a worker that is blocked while it creates the schema of its queues."""
    del store
    halt_once_at(STANDS_STILL_AT[:1], wait_to_go)
    return [HELPER]


def halting_in_registration(store: Store) -> Sequence[Agent]:
    """Return the agents of a worker that is blocked while it registers itself."""
    del store
    halt_once_at(STANDS_STILL_AT[1:], wait_to_go)
    return [HELPER]
