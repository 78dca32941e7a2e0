"""Models that follow a test's script for each call, and record their requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.client.clock import Outside
from perdure.client.store import Store
from perdure.errors import ModelError
from perdure.events.projection import events_of
from perdure.models.protocol import (
    Delta,
    ModelInfo,
    ModelRequest,
    StreamEnd,
    TextDelta,
    ToolCallDelta,
)
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.messages import Usage
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import ManualClock, SeededRandom

BodyT = TypeVar("BodyT")


class Hold:
    """A call that continues only when the test releases it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()


Act = Sequence[Delta | ModelError | Hold | Exception]
"""What one call does, in order; without a final `StreamEnd` or error, the call breaks off."""

USED = Usage(100, 10)


def words(text: str, usage: Usage | None = USED) -> Act:
    """An answer of text."""
    return (TextDelta(text), StreamEnd("stop", usage))


def asks(*names: str, json: str = "{}", usage: Usage | None = USED) -> Act:
    """Return an answer that calls tools with ids ``<name>-<place>``."""
    calls = [ToolCallDelta(n, f"{name}-{n}", name, json) for n, name in enumerate(names)]
    return (*calls, StreamEnd("tool_calls", usage))


class Players:
    """A `ModelClient` and its price list.

    Shape: `acts` contains the calls of each model in order. A model without remaining acts answers
    ``done``. Units: `price` is the number of micro-cents for each token of any class; None:
    unknown.
    """

    def __init__(self, **acts: Sequence[Act]) -> None:
        self.acts = {name: list(each) for name, each in acts.items()}
        self.requests: list[ModelRequest] = []
        self.price: int | None = 1
        self.windows: dict[str, int] = {}

    @property
    def called(self) -> list[str]:
        """Return the names of the called models in order, without their providers."""
        return [request.model.partition(":")[2] for request in self.requests]

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model, self.windows.get(model.partition(":")[2]))

    def cost_microcents(self, model: str, usage: Usage) -> int | None:
        return None if self.price is None else usage.total_tokens * self.price

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.requests.append(request)
        acts = self.acts.get(request.model.partition(":")[2], [])
        for step in acts.pop(0) if acts else words("done"):
            await asyncio.sleep(0)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, Hold):
                step.entered.set()
                await step.leave.wait()
            else:
                yield step


class Theatre:
    """A store in memory and a runtime with players; only a test moves the clock."""

    def __init__(self, **acts: Sequence[Act]) -> None:
        self.clock = ManualClock()
        chance = SeededRandom(1)
        self.memory = MemoryStore(clock=self.clock, random=chance)
        self.store = Store(self.memory, Outside(self.clock, chance))
        self.players = Players(**acts)

    def runtime(self, *agents: Agent, **options: Any) -> Runtime:
        """A runtime of one process."""
        return Runtime(self.store, agents, models=self.players, owner="here", **options)

    async def chat(
        self, *, id: str = "s", options: dict[str, Any] | None = None, **agent: Any
    ) -> Chat:
        """Start a session with an agent whose model is ``p:main`` by default."""
        settings: dict[str, Any] = {"model": "p:main", **agent}
        made = Agent("helper", **settings)
        return await self.runtime(made, **(options or {})).start(made, id=id)

    async def entries(self, stream: str = "s") -> list[Entry]:
        """The whole log of a session."""
        return await self.memory.entries(StreamId(stream))

    async def events(self, stream: str = "s") -> list[tuple[str, dict[str, Any]]]:
        """Type and payload of every durable event of a session."""
        told = [event for entry in await self.entries(stream) for event in events_of(entry)]
        return [(event.type, dict(event.payload)) for event in told]

    async def bodies(self, kind: type[BodyT], stream: str = "s") -> list[BodyT]:
        """The bodies of one class in the log of a session, in order."""
        found = [body_of(entry) for entry in await self.entries(stream)]
        return [body for body in found if isinstance(body, kind)]

    async def types(self, stream: str = "s") -> list[str]:
        """The types of every durable event of a session."""
        return [type_ for type_, _ in await self.events(stream)]
