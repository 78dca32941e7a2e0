"""Runtime calls: an error names a missing `await` or `async`; every way to await works."""

from __future__ import annotations

import asyncio
import copy
import inspect
from typing import Any
from unittest.mock import MagicMock, create_autospec

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


async def test_runtime_in_a_plain_with_raises_an_error_that_mentions_async_with() -> None:
    async with perdure.open("memory:") as store:
        runtime: Any = perdure.Runtime(store, [ECHO])
        told = r"use `with perdure\.blocking\.Runtime\(\.\.\.\) as runtime`$"
        with pytest.raises(TypeError, match=f"^perdure.Runtime needs `async with .*{told}"):
            runtime.__enter__()
        with pytest.raises(TypeError, match=told), runtime:
            pass


async def test_start_can_be_awaited_with_every_function_of_asyncio() -> None:
    async with perdure.open("memory:") as store, perdure.Runtime(store, [ECHO]) as runtime:
        first = await runtime.start("a")
        second, third = await asyncio.gather(
            runtime.start("a"), asyncio.create_task(runtime.start("a"))
        )
        fourth = await asyncio.wait_for(runtime.resume(first.id), 60)
        assert len({chat.id for chat in (first, second, third, fourth)}) == 3


def test_blocking_runtime_returns_a_chat_without_await() -> None:
    with (
        perdure.blocking.open("memory:") as store,
        perdure.blocking.Runtime(store, [ECHO]) as runtime,
    ):
        assert runtime.resume(runtime.start("a").id).agent.id == "a"


@pytest.mark.parametrize(
    "mocked", [MagicMock(spec=perdure.Runtime), create_autospec(perdure.Runtime, instance=True)]
)
async def test_start_and_resume_of_a_mocked_runtime_can_be_awaited(mocked: Any) -> None:
    await mocked.start("a")
    await mocked.resume("a")


async def test_unawaited_start_behaves_like_a_coroutine() -> None:
    async with perdure.open("memory:") as store, perdure.Runtime(store, [ECHO]) as runtime:
        unawaited: Any = runtime.start("a")
        assert inspect.getcoroutinestate(unawaited) == inspect.CORO_CREATED
        assert unawaited.cr_frame.f_code is unawaited.cr_code
        unawaited.close()
        assert inspect.getcoroutinestate(unawaited) == inspect.CORO_CLOSED
        assert inspect.isawaitable(copy.copy(unawaited))
        with pytest.raises(TypeError, match="pickle"):
            copy.deepcopy(unawaited)
