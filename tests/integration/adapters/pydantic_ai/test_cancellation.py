"""A save that is cancelled at any of its awaits is complete or has no effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)

import perdure
from perdure.adapters.pydantic_ai import PerdureConversationStore

Store = perdure.Store | perdure.blocking.Store


def turn(number: int) -> list[ModelMessage]:
    return [
        ModelRequest(parts=[UserPromptPart(f"question {number}")]),
        ModelResponse(parts=[TextPart(f"answer {number}")]),
    ]


class Counted:
    """A coroutine that counts its awaits."""

    def __init__(self, inner: Coroutine[Any, Any, Any], suspended: Callable[[], None]) -> None:
        self._inner = inner
        self._suspended = suspended

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._inner.__await__()
        told: BaseException | None = None
        while True:
            try:
                waits_for = steps.send(None) if told is None else steps.throw(told)
            except StopIteration as done:
                return done.value
            self._suspended()
            told = None
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - passed to the coroutine
                told = error


async def cancelled_at(number: int, work: Callable[[], Awaitable[object]]) -> bool:
    """Cancel `work` at one of its awaits; return whether `work` has this await.

    `number` is the number of the await, counted over all tasks of `work`.
    """
    loop = asyncio.get_running_loop()
    seen = 0
    task: asyncio.Task[object] | None = None

    def suspended() -> None:
        nonlocal seen
        seen += 1
        if seen == number and task is not None:
            loop.call_soon(task.cancel)

    async def run(coroutine: Coroutine[Any, Any, Any]) -> object:
        return await Counted(coroutine, suspended)

    def factory(inner_loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(run(coroutine), loop=inner_loop, **options)

    async def whole() -> object:
        return await work()

    loop.set_task_factory(factory)
    try:
        task = asyncio.ensure_future(whole())
        try:
            await task
        except asyncio.CancelledError:
            return True
        return seen >= number
    finally:
        loop.set_task_factory(None)


@asynccontextmanager
async def opened(kind: str, address: str) -> AsyncGenerator[Store]:
    """Open an async store, or a blocking store, which works in any event loop."""
    if kind == "async":
        async with perdure.open(address) as store:
            yield store
        return
    with perdure.blocking.open(address) as store:
        yield store


async def texts_in(store: Store) -> list[str]:
    """Return the texts that a new reader of the conversation gets."""
    loaded = await PerdureConversationStore(store).load("c")
    messages = [] if loaded is None else loaded.messages
    return [str(getattr(message.parts[0], "content", "")) for message in messages]


@pytest.mark.full_only
@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_cancelled_save_is_complete_or_has_no_effect(tmp_path: Path, kind: str) -> None:
    finished = begun = 0
    for number in count(1):
        address = f"sqlite:///{tmp_path / f'{number}.db'}"
        async with opened(kind, address) as store:
            conversations = PerdureConversationStore(store)
            conversation = Conversation(conversation_id="c", messages=turn(1))
            is_cancelled = await cancelled_at(number, partial(conversations.save, conversation))
            found = await texts_in(store)
            assert found in ([], ["question 1", "answer 1"]), number
            begun += is_cancelled
            finished += is_cancelled and bool(found)
            again = await conversations.load("c")
            if again is None:
                again = Conversation(conversation_id="c", messages=turn(1))
                await conversations.save(again)
            again.messages += turn(2)
            is_again_cancelled = await cancelled_at(number, partial(conversations.save, again))
            both = ["question 1", "answer 1", "question 2", "answer 2"]
            assert await texts_in(store) in (both[:2], both), number
            last = await conversations.load("c")
            assert last is not None
            last.messages += turn(3)
            await conversations.save(last)
            assert (await texts_in(store))[-1] == "answer 3"
        async with perdure.open(address) as store:
            assert (await store.verify()).is_ok
            entries = await (await store.open("pai:c")).tree_entries()
            said = [entry.text for entry in entries if entry.message]
            assert len(said) == len(set(said))
        if not is_cancelled and not is_again_cancelled:
            break
    assert 0 < finished < begun
