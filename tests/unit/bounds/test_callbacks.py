"""Every exception of a callback is an ordinary error, unless the caller itself is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from perdure.bounds.callbacks import CallbackFailed, run_callback, run_guarded


class Odd(BaseException):
    """A `BaseException` that is not an `Exception`."""


async def raised(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit(), Odd("very")])
async def test_base_exception_of_a_callback_becomes_an_error(error: BaseException) -> None:
    with pytest.raises(CallbackFailed, match=r"cancelled from inside|GeneratorExit|Odd: very"):
        await run_guarded(raised(error))


@pytest.mark.parametrize("error", [KeyError("a"), RuntimeError("b")])
async def test_exception_of_a_callback_is_raised_to_the_caller(error: Exception) -> None:
    with pytest.raises(type(error)):
        await run_guarded(raised(error))


async def test_cancellation_by_the_caller_raises_cancelled_error() -> None:
    task = asyncio.ensure_future(run_guarded(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await run_guarded(asyncio.Event().wait())


def test_closing_the_event_loop_causes_no_callback_error() -> None:
    outcomes: list[str] = []

    async def turn() -> None:
        try:
            await run_guarded(asyncio.Event().wait())
        except CallbackFailed:
            outcomes.append("the turn goes on")

    async def begin(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(coroutine)
        await asyncio.sleep(0)
        return task

    coroutine = turn()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # the task is pending for ever
    task = loop.run_until_complete(begin(coroutine))
    loop.close()
    coroutine.close()
    assert (task.done(), outcomes) == (False, [])


async def test_plain_and_async_callbacks_are_called() -> None:
    async def twice(number: int) -> int:
        return number * 2

    assert await run_callback(twice, 2) == 4
    assert await run_callback(str, 2) == "2"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_system_exit_of_a_callback_in_a_thread_becomes_an_error(
    error: BaseException,
) -> None:
    outcomes: list[BaseException] = []

    def serve() -> None:
        try:
            asyncio.run(run_guarded(raised(error)))
        except CallbackFailed as failed:
            outcomes.append(failed)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    assert [type(each) for each in outcomes] == [CallbackFailed]
