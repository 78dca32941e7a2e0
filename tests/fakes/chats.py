"""Chats on a store in memory, with a scripted model and a clock that only tests move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.client.clock import Outside
from perdure.client.store import Store
from perdure.engine.turns.executor.partial_answers import EVERY_S
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, Step
from perdure.models.scripted import ScriptedModel
from perdure.session.ids import StreamId
from perdure.session.messages import Message, decode_message
from perdure.stores.in_memory.store import MemoryStore
from perdure.tools.spec import ToolSpec
from tests.fakes.clock import ManualClock, SeededRandom

MODEL = "scripted:test"


class Stage:
    """A store in memory and everything needed to run turns in it."""

    def __init__(self, *replies: Reply, context_window: int | None = None) -> None:
        self.clock = ManualClock()
        random = SeededRandom(1)
        self.memory = MemoryStore(clock=self.clock, random=random)
        self.store = Store(self.memory, Outside(self.clock, random))
        scenario = Scenario(name="test", sequence=replies, context_window=context_window)
        self.models = ScriptedModel(scenario, clock=self.clock)

    def runtime(self, *agents: Agent, owner: str = "here") -> Runtime:
        """A runtime of one process."""
        return Runtime(self.store, agents, models=self.models, owner=owner)

    async def chat(
        self,
        tools: Sequence[str | ToolSpec | Callable[..., Any]] = (),
        *,
        id: str = "s",
        **agent: Any,
    ) -> Chat:
        """Start a session with an agent that has the given `tools` and settings."""
        made = Agent("helper", model=MODEL, tools=tuple(tools), **agent)
        return await self.runtime(made).start(made, id=id)

    async def kept(self, stream: str = "s") -> Message:
        """Advance the clock until a part of the arriving answer is stored; return it."""

        async def is_kept() -> bool:
            self.clock.advance(EVERY_S)
            return await self.memory.partial(StreamId(stream)) is not None

        await until(is_kept)
        found = await self.memory.partial(StreamId(stream))
        assert found is not None
        return decode_message(found[1])

    async def kinds(self, stream: str = "s") -> list[str]:
        """The kinds of all entries of a session."""
        session = await self.store.open(stream)
        return [entry.kind async for entry in session.entries()]


def says(*steps: str | Step, **settings: Any) -> Reply:
    """A reply that consists of texts and other steps."""
    return Reply(steps=tuple(Say(s) if isinstance(s, str) else s for s in steps), **settings)


def calls(*names: str, json: str = "{}") -> CallTools:
    """A step that calls tools, with distinct ids."""
    return CallTools(
        tuple(ScriptedCall(name, json, id=f"{name}-{n}") for n, name in enumerate(names))
    )


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = 60.0) -> None:
    """Wait until `condition` is true.

    Raises: AssertionError if `condition` does not become true in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not await condition():
        assert loop.time() < deadline, "the condition never held"
        await asyncio.sleep(0.001)
