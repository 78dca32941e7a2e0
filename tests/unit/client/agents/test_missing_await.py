"""A call of the runtime without await, and with every way to await it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
import perdure.blocking

ECHO = perdure.Agent("a", model="scripted:echo")


async def test_error_for_a_message_to_an_unawaited_chat_mentions_the_missing_await() -> None:
    async with perdure.open("memory:") as store, perdure.Runtime(store, [ECHO]) as runtime:
        for call, name in ((runtime.start, "start"), (runtime.resume, "resume")):
            chat: Any = call("a")
            told = (
                rf"Runtime\.{name} was not awaited; write `chat = await runtime\.{name}\(\.\.\.\)`$"
            )
            with pytest.raises(TypeError, match=told):
                chat.send("Hello")
            with pytest.raises(AttributeError, match=told):
                _ = chat.session
            chat.close()


async def test_started_chat_is_awaited_in_every_way_of_asyncio() -> None:
    async with perdure.open("memory:") as store, perdure.Runtime(store, [ECHO]) as runtime:
        first = await runtime.start("a")
        second, third = await asyncio.gather(
            runtime.start("a"), asyncio.create_task(runtime.start("a"))
        )
        fourth = await asyncio.wait_for(runtime.resume(first.id), 60)
        assert len({chat.id for chat in (first, second, third, fourth)}) == 3


def test_blocking_runtime_returns_the_chat_itself() -> None:
    with (
        perdure.blocking.open("memory:") as store,
        perdure.blocking.Runtime(store, [ECHO]) as runtime,
    ):
        assert runtime.resume(runtime.start("a").id).agent.id == "a"
