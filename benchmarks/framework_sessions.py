"""`python -m benchmarks.framework_sessions [TURNS ...]`: our sessions and each framework's own.

The frameworks are the OpenAI Agents SDK and Google's ADK, each on an SQLite file. A turn adds a
question and an answer of 500 characters. `ours` is as durable as `theirs`: neither loses a commit
after a kill. Times depend on this machine and its current load.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import islice
from random import Random
from typing import Any

from agents import SQLiteSession
from google.adk.events import Event
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

import perdure
from benchmarks.side_by_side import Meter, megabytes, show
from perdure.adapters.google_adk import PerdureSessionService
from perdure.adapters.openai_agents import PerdureSession

TURNS = (100, 1_000, 5_000)
LISTED = 20
"""Number of sessions in the list that is read from the ADK."""

APP: dict[str, Any] = {"app_name": "app", "user_id": "ana"}
WORDS = [
    f"{word}{number}" for word in ("light", "cape", "stone", "harbour") for number in range(99)
]
Read = Callable[[], Awaitable[None]]
WARM = 5
"""How often one measurement repeats the read of a session that was read before."""


def main() -> None:
    """Print the rows of each framework and number of turns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.framework_sessions")
    parser.add_argument("turns", nargs="*", type=int, default=TURNS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("openai", "adk"))
    given = parser.parse_args()
    for turns in given.turns:
        for framework in ("openai", "adk"):
            if given.only in (None, framework):
                compare(framework, turns, given.rounds)


def compare(framework: str, turns: int, rounds: int) -> None:
    """Measure our session and the framework's own, one after the other, and print their rows."""
    meters = {whose: Meter() for whose in ("ours", "theirs", "memory")}
    for _ in range(rounds):
        for whose, meter in meters.items():
            asyncio.run(measure(f"{framework} {whose}", turns, meter))
    ours, theirs, memory = meters.values()
    text = 2 * turns * 500 / 1e6
    ratios = {
        "growth of our share": ours.growth("append, first half", "append, last half", memory),
        "growth of theirs": theirs.growth("append, first half", "append, last half", memory),
        "file x text, ours": ours.wall["file MB"] / text,
        "file x text, theirs": theirs.wall["file MB"] / text,
    }
    show(f"{framework}, {turns:,} turns", ours, theirs, ratios)


def texts(turns: int) -> Iterator[str]:
    """Return questions and answers of 500 characters."""
    rng = Random(7)
    for _ in range(2 * turns):
        yield " ".join(rng.choices(WORDS, k=80))[:500]


async def measure(kind: str, turns: int, meter: Meter) -> None:
    """Fill a session in a new file, read it, and read it again after opening the file."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            session = await opened(kind, folder, stack)
            said = texts(turns)
            await session.begin(said)
            half = turns // 2
            with meter.row("append, first half", half - 1):
                await session.add(islice(said, 2 * (half - 1)))
            with meter.row("append, last half", turns - half):
                await session.add(said)
            for name, read in session.reads().items():
                await read()
                with meter.row(f"{name}, warm", WARM):
                    for _ in range(WARM):
                        await read()
        if kind.endswith("memory"):
            return
        meter.note("file MB", megabytes(folder))
        for name in session.reads():
            async with AsyncExitStack() as stack:
                with meter.row("opening"):
                    session = await opened(kind, folder, stack)
                with meter.row(f"{name}, first after opening"):
                    await session.reads()[name]()


class OpenAISession:
    """A session of the OpenAI Agents SDK, which has no list of sessions."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def reads(self) -> dict[str, Read]:
        """Return the calls that read the session."""
        return {"all": self.all, "newest 10": self.newest}

    async def begin(self, said: Iterator[str]) -> None:
        """Create the session with its first turn."""
        await self.add(islice(said, 2))

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


class Unkept:
    """A session that stores its items in a list, to measure the cost of the SDK itself."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    async def add_items(self, items: list[Any]) -> None:
        """Append `items` to the list."""
        self._items += items

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the newest items."""
        return self._items[-(limit or 0) :]


class AdkSession:
    """A session of the ADK, among other sessions of its user."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self._session: Any = None

    def reads(self) -> dict[str, Read]:
        """Return the calls that read the session."""
        return {"all": self.all, "newest 10": self.newest, "list": self.listed}

    async def begin(self, said: Iterator[str]) -> None:
        """Create the session with its first turn, and the other sessions of its user."""
        for number in range(LISTED - 1):
            await self._service.create_session(**APP, session_id=f"{number}", state={"n": number})
        self._session = await self._service.create_session(**APP, session_id="s")
        await self.add(islice(said, 2))

    async def add(self, said: Iterator[str]) -> None:
        """Append the events of each turn."""
        for number, question in enumerate(said):
            for author, text in (("user", question), ("guide", next(said))):
                role = "user" if author == "user" else "model"
                content = types.Content(role=role, parts=[types.Part(text=text)])
                event = Event(invocation_id=f"e-{number}", author=author, content=content)
                await self._service.append_event(self._session, event)

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
    if whose == "memory":
        return (
            AdkSession(InMemorySessionService()) if framework == "adk" else OpenAISession(Unkept())
        )
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


if __name__ == "__main__":
    main()
