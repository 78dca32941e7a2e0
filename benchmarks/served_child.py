"""A process that serves sessions: ``python -m benchmarks.served_child JOB``, run by `serving`.

It prints its address, waits for a line on its standard input, appends at a constant rate, and
prints the time of each commit. In raw mode, the process sends the same bytes over plain sockets.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import uvicorn

import perdure
from perdure.server import TokenFile, TokenRecord, app
from perdure.session.messages import user

TEXT = "one event of the many that a page shows while it is open " * 4
BLOCK = b'event: durable\nid: %d\ndata: {"text":"' + TEXT.encode() + b'"}\n\n'

Tell = Callable[[int], Awaitable[int]]
"""A function that appends to the session with a given number, and returns the entry's seq."""


class Job(msgspec.Struct, frozen=True):
    """The work of the child: `count` appends to `sessions` in turn, at `rate` per second."""

    folder: str
    sessions: int
    count: int
    rate: float
    is_raw: bool = False


class Address(msgspec.Struct, frozen=True):
    """The port of the child, and for each session the request that starts its stream."""

    port: int
    requests: list[str]


class Told(msgspec.Struct, frozen=True):
    """The commits: number of the session, seq, and time. Units: monotonic ns, bytes, seconds."""

    commits: list[tuple[int, int, int]]
    idle_bytes: int
    watched_bytes: int
    cpu_s: float


async def work(job: Job) -> None:
    """Start the server, print its address, wait, append, and print the commits."""
    serve = _raw if job.is_raw else _served
    async with serve(job) as (address, tell):
        idle = _resident()
        print(msgspec.json.encode(address).decode(), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        watched, cpu = _resident(), time.process_time()
        commits = [commit async for commit in _paced(job, tell)]
        told = Told(commits, idle, watched, time.process_time() - cpu)
        print(msgspec.json.encode(told).decode(), flush=True)
        await asyncio.to_thread(sys.stdin.readline)


async def _paced(job: Job, tell: Tell) -> AsyncGenerator[tuple[int, int, int]]:
    began = time.monotonic()
    for number in range(job.count):
        wait_s = began + number / job.rate - time.monotonic()
        await asyncio.sleep(max(wait_s, 0))
        session = number % job.sessions
        yield session, await tell(session), time.monotonic_ns()


@asynccontextmanager
async def _served(job: Job) -> AsyncGenerator[tuple[Address, Tell]]:
    folder = Path(job.folder)
    tokens = TokenFile(folder / "tokens.json")
    token = tokens.create(TokenRecord("bench", "", "admin", created_at=0), secrets.token_bytes(32))
    async with (
        perdure.open(f"sqlite:///{folder}/served.db") as store,
        perdure.Runtime(store) as runtime,
    ):
        sessions = [await store.create() for _ in range(job.sessions)]
        served = app(runtime, tokens=tokens)
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server = uvicorn.Server(uvicorn.Config(served, log_level="error"))
            running = asyncio.create_task(server.serve(sockets=[listening]))
            while not server.started:  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(0.005)
            requests = [
                f"GET /v1/sessions/{session.id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                f"Authorization: Bearer {token}\r\n\r\n"
                for session in sessions
            ]

            async def tell(number: int) -> int:
                await sessions[number].append(user(TEXT))
                return sessions[number].head

            yield Address(listening.getsockname()[1], requests), tell
            server.force_exit = server.should_exit = True
            await running


@asynccontextmanager
async def _raw(job: Job) -> AsyncGenerator[tuple[Address, Tell]]:
    watching: list[list[asyncio.StreamWriter]] = [[] for _ in range(job.sessions)]
    seqs = [-1] * job.sessions

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        watching[int(await reader.readline())].append(writer)
        writer.write(b"event: caught-up\ndata: {}\n\n")

    async def tell(number: int) -> int:
        seqs[number] += 1
        for writer in watching[number]:
            writer.write(BLOCK % seqs[number])
        return seqs[number]

    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=1024)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Address(port, [f"{number}\n" for number in range(job.sessions)]), tell


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Job)))
