"""A process that appends: ``python -m benchmarks.child JOB``, started by `children`.

It prints ``ready``, waits for a line on its standard input, appends, and prints the outcome.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

import perdure
from benchmarks.figures import append, opened
from benchmarks.raw import RawLog, RawServer
from benchmarks.workload import conversation, turns
from perdure.client.clock import system_random
from perdure.errors import PerdureError
from perdure.session.codec import new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import StreamId
from perdure.session.messages import Message, user
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.session_store import SessionStore
from perdure.stores.sqlite.writer import Durability

Turn = tuple[NewEntry, ...]
Append = Callable[[str, Any], Awaitable[object]]
"""Append a turn to a stream: a list of entries or, if a handle appends, of messages."""

ENTRIES_OF_A_TAGGED_TURN = 4


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a child: each of its `writers` appends `count` turns to its stream concurrently.

    `kind` says what appends: the store, a handle or the raw driver. `where` is the path of a file
    or the address of a server. If `is_tagged`, each turn contains the name of its writer. If
    `is_announced`, each turn is printed as soon as it is acknowledged.
    """

    kind: str
    where: str
    writers: tuple[tuple[str, str], ...]
    count: int
    seed: int
    durability: Durability = "full"
    is_tagged: bool = False
    is_announced: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """The times and errors of a job.

    Units: `began_s` and `ended_s` are times of the monotonic clock, which all processes share.
    """

    began_s: float
    ended_s: float
    laps_ms: list[float]
    errors: list[str]


def tagged(writer: str, number: int) -> Turn:
    """Return a turn whose entries contain the writer, the number of the turn and of the entry."""
    return tuple(
        new_tree(user(f"{writer} {number} {part}")) for part in range(ENTRIES_OF_A_TAGGED_TURN)
    )


async def work(job: Job) -> Outcome:
    """Open what the job needs, wait for the start, and append."""
    append_turn, close = await _appending(job)
    planned = [
        (name, stream, _turns_of(job, name, number))
        for number, (name, stream) in enumerate(job.writers)
    ]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    laps_ms: list[float] = []
    errors: list[str] = []

    async def write(name: str, stream: str, planned_turns: list[Any]) -> None:
        for number, turn in enumerate(planned_turns):
            began = time.perf_counter()
            try:
                await append_turn(stream, turn)
            except PerdureError as error:
                errors.append(str(error))
            laps_ms.append((time.perf_counter() - began) * 1000)
            if job.is_announced:
                print(f"{name} {number}", flush=True)

    began_s = time.monotonic()
    await asyncio.gather(*(write(*each) for each in planned))
    outcome = Outcome(began_s, time.monotonic(), laps_ms, errors)
    await close()
    return outcome


def _turns_of(job: Job, name: str, number: int) -> list[Any]:
    if job.is_tagged:
        return [tagged(name, turn) for turn in range(job.count)]
    made = conversation if job.kind == "handle" else turns
    return list(made(job.seed + number, job.count))


async def _appending(job: Job) -> tuple[Append, Callable[[], Awaitable[None]]]:
    """Return the function that appends a turn to a stream, and the function that closes it."""
    match job.kind:
        case "raw":
            return _raw(job)
        case "raw-postgres":
            server = await RawServer.connect(job.where)

            async def at_server(stream: str, turn: Turn) -> None:
                await server.append([entry.body for entry in turn], int(stream))

            return at_server, server.close
        case "postgres":
            postgres = await PostgresStore.open(job.where, random=system_random)
            return _to(postgres), postgres.close
        case "handle":
            return await _through_handles(job)
        case _:
            store = await opened(Path(job.where), job.durability)
            return _to(store), store.close


def _to(store: SessionStore) -> Append:
    async def at_store(stream: str, turn: Turn) -> None:
        await append(store, StreamId(stream), turn)

    return at_store


async def _through_handles(job: Job) -> tuple[Append, Callable[[], Awaitable[None]]]:
    store = await perdure.open(f"sqlite:///{job.where}", durability=job.durability).__aenter__()
    sessions = {stream: await store.open(stream) for _, stream in job.writers}

    async def at_handle(stream: str, said: tuple[Message, ...]) -> None:
        await sessions[stream].append_many(said)

    return at_handle, store.close


def _raw(job: Job) -> tuple[Append, Callable[[], Awaitable[None]]]:
    log = RawLog(Path(job.where), job.durability)

    async def at_file(stream: str, turn: Turn) -> None:
        log.append([entry.body for entry in turn], int(stream))

    async def close() -> None:
        log.close()

    return at_file, close


if __name__ == "__main__":
    told = asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Job)))
    print(msgspec.json.encode(told).decode(), flush=True)
