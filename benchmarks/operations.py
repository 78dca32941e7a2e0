"""The operations to measure, and the sessions, agents and texts that the subjects use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

import perdure
from benchmarks.figures import CLOCK
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import Message, assistant, user
from perdure.stores.protocol import Commit, Write

FLAT, LINEAR = 0.15, 1.15
FEW, MANY = (10, 100, 1_000), (1_000, 10_000, 100_000)
AT_ONCE = 500

Act = Callable[[], Awaitable[object]]


class Operation(msgspec.Struct, frozen=True):
    """An operation to measure.

    `limit` is its maximum growth exponent. With `is_once`, it cannot be repeated.
    """

    name: str
    act: Act
    limit: float = FLAT
    is_once: bool = False


Made = Callable[[Store, int, AsyncExitStack], Awaitable[list[Operation]]]


@perdure.tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing in {where}"


AGENT = perdure.Agent(
    "bench", model="scripted:bench", tools=(look,), limits=perdure.Limits(max_turns=10_000)
)


def model_of(store: Store) -> ScriptedModel:
    """Return a model that calls a tool twice in each turn."""

    def looking(number: int) -> Reply:
        call = ScriptedCall("look", f'{{"where": "place {number}"}}')
        return Reply(when=When(round=number + 1), steps=(Say("Let me look."), CallTools((call,))))

    rules = (looking(0), looking(1), Reply(steps=(Say("There is nothing."),)))
    return ScriptedModel(Scenario(name="bench", rules=rules), clock=store.outside.clock)


@asynccontextmanager
async def runtime_with_tools(store: Store) -> AsyncGenerator[perdure.Runtime]:
    """Yield a runtime with an agent that has a tool."""
    async with perdure.Runtime(store, [AGENT], models=model_of(store)) as runtime:
        yield runtime


async def session_of(store: Store, size: int) -> Session:
    """Return a new session of `size` messages."""
    session = await store.create()
    await fill(session, size)
    return session


async def fill(session: Session, size: int) -> None:
    """Append `size` messages."""
    for first in range(0, size, AT_ONCE):
        await session.append_many([said(n) for n in range(first, min(size, first + AT_ONCE))])


def said(number: int) -> Message:
    """Return a message of some words."""
    text = f"This is number {number}, and it says what all the others say. " * 3
    return assistant(text) if number % 2 else user(text)


def sessions_of(numbers: range) -> Commit:
    """Return a commit with new sessions of two messages each."""
    at = CLOCK.now_ms()
    writes = [
        Write(
            stream=StreamId(f"s{number}"),
            create=StreamHeader(StreamId(f"s{number}"), at, cwd=f"/folder/{number % 50}"),
            entries=(new_tree(user(f"Number {number}")), new_tree(said(1))),  # a short name
        )
        for number in numbers
    ]
    return Commit(writes=tuple(writes), at=at)
