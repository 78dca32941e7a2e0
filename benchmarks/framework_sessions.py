"""`python -m benchmarks.framework_sessions [TURNS ...]`: our sessions beside each framework's own.

OpenAI Agents SDK and Google's ADK, each on an SQLite file: a turn adds a question and an answer of
500 characters. `ours` commits as durably as `theirs` (a kill loses nothing). Times are of this
machine at this moment.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

from agents import SQLiteSession
from google.adk.events import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from rich.console import Console
from rich.table import Table

import perdure
from perdure.adapters.google_adk import PerdureSessionService
from perdure.adapters.openai_agents import PerdureSession

TURNS = (100, 1_000, 5_000)
LISTED = 20
"""Sessions of the ADK in a list."""

KINDS = ("openai ours", "openai theirs", "adk ours", "adk theirs")
COLUMNS = ("append ms", "CPU ms", "all ms", "opened", "newest 10", "list", "MB", "x text")
APP: dict[str, Any] = {"app_name": "app", "user_id": "ana"}
WORDS = [
    f"{word}{number}" for word in ("light", "cape", "stone", "harbour") for number in range(99)
]


def main() -> None:
    """Print a row for each kind of session and number of turns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.framework_sessions")
    parser.add_argument("turns", nargs="*", type=int, default=TURNS)
    table = Table("turns", "sessions", *COLUMNS)
    for turns in parser.parse_args().turns:
        for kind in KINDS:
            figures = asyncio.run(measured(kind, turns))
            table.add_row(str(turns), kind, *(f"{each:.2f}" for each in figures))
    Console().print(table)


def texts(turns: int) -> Iterator[str]:
    """Return questions and answers of 500 characters."""
    rng = Random(7)
    for _ in range(2 * turns):
        yield " ".join(rng.choices(WORDS, k=80))[:500]


async def measured(kind: str, turns: int) -> list[float]:
    """Return the figures of one kind; times of reads are in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            session = await opened(kind, folder, stack)
            begun, cpu = time.perf_counter(), time.process_time()
            await session.add(texts(turns))
            figures = [(time.perf_counter() - begun) / turns * 1000]
            figures.append((time.process_time() - cpu) / turns * 1000)
            figures.append(await best_ms(session.all))
            newest = await best_ms(session.newest)
            listed = await best_ms(session.listed)
        async with AsyncExitStack() as stack:
            session = await opened(kind, folder, stack)
            figures.append(await best_ms(session.all, times=1))
        size = sum(file.stat().st_size for file in Path(folder).iterdir())  # noqa: ASYNC240 - nothing else runs
    return [*figures, newest, listed, size / 1e6, size / (2 * turns * 500)]


class OpenAISession:
    """One session of the OpenAI Agents SDK; it has no list."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def add(self, said: Iterator[str]) -> None:
        """Add the items of each turn."""
        for question in said:
            asked = {"role": "user", "content": question}
            part: Any = {"type": "output_text", "text": next(said), "annotations": []}
            answer: Any = {"id": "msg", "type": "message", "role": "assistant", "content": [part]}
            await self._session.add_items([asked, {**answer, "status": "completed"}])

    async def all(self) -> None:
        """Read everything."""
        await self._session.get_items()

    async def newest(self) -> None:
        """Read the newest 10."""
        assert len(await self._session.get_items(10)) == 10

    async def listed(self) -> None:
        """Do nothing."""


class AdkSession:
    """One session of the ADK among others of its user."""

    def __init__(self, service: Any) -> None:
        self._service = service

    async def add(self, said: Iterator[str]) -> None:
        """Append the events of each turn."""
        for number in range(LISTED - 1):
            await self._service.create_session(**APP, session_id=f"{number}", state={"n": number})
        session = await self._service.create_session(**APP, session_id="s")
        for number, question in enumerate(said):
            for author, text in (("user", question), ("guide", next(said))):
                role = "user" if author == "user" else "model"
                content = types.Content(role=role, parts=[types.Part(text=text)])
                event = Event(invocation_id=f"e-{number}", author=author, content=content)
                await self._service.append_event(session, event)

    async def all(self) -> None:
        """Read everything."""
        await self._service.get_session(**APP, session_id="s")

    async def newest(self) -> None:
        """Read the newest 10."""
        config = GetSessionConfig(num_recent_events=10)
        session = await self._service.get_session(**APP, session_id="s", config=config)
        assert len(session.events) == 10

    async def listed(self) -> None:
        """List the sessions of the user."""
        assert len((await self._service.list_sessions(**APP)).sessions) == LISTED


async def opened(kind: str, folder: str, stack: AsyncExitStack) -> OpenAISession | AdkSession:
    """Open the session `kind` with its file in `folder`."""
    framework, _, whose = kind.partition(" ")
    if whose == "theirs":
        file = f"{folder}/theirs.db"
        if framework == "adk":
            return AdkSession(SqliteSessionService(file))
        session = SQLiteSession("s", file)
        stack.callback(session.close)
        return OpenAISession(session)
    address = f"sqlite:///{folder}/ours.db"
    store = await stack.enter_async_context(perdure.open(address, durability="normal"))
    if framework == "adk":
        return AdkSession(PerdureSessionService(store))
    return OpenAISession(PerdureSession("s", store))


async def best_ms(act: Callable[[], Awaitable[None]], times: int = 3) -> float:
    """Return the shortest time of `act`. Units: milliseconds."""
    taken: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        await act()
        taken.append((time.perf_counter() - begun) * 1000)
    return min(taken)


if __name__ == "__main__":
    main()
