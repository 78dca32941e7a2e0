"""An event loop on a separate thread."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from perdure.client.sync.portal import Portal
from perdure.errors import SessionNotFound, StoreUnavailable


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def count(to: int, ended: list[str] | None = None) -> AsyncIterator[int]:
    try:
        for number in range(to):
            await asyncio.sleep(0)
            yield number
    finally:
        if ended is not None:
            ended.append("ended")


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "perdure-blocking"]


def test_portal_call_returns_the_result_of_its_coroutine() -> None:
    portal = Portal()
    assert portal.call(double(21)) == 42
    portal.close()


def test_portal_call_raises_the_error_of_its_coroutine() -> None:
    async def fail() -> None:
        raise SessionNotFound("s")

    portal = Portal()
    with pytest.raises(SessionNotFound):
        portal.call(fail())
    portal.close()


def test_function_passed_to_a_portal_is_called_inside_its_event_loop() -> None:
    portal = Portal()
    assert portal.run(asyncio.get_running_loop).is_running()
    portal.close()


def test_many_threads_can_use_one_portal_concurrently() -> None:
    portal = Portal()

    def call(number: int) -> int:
        return portal.call(double(number))

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(call, range(200)))
    assert results == [2 * number for number in range(200)]
    portal.close()


def test_async_iterator_is_read_step_by_step() -> None:
    portal = Portal()
    assert list(portal.iterate(count(5))) == [0, 1, 2, 3, 4]
    portal.close()


@pytest.mark.full_only
def test_iterator_of_an_abandoned_loop_is_closed() -> None:
    portal = Portal()
    ended: list[str] = []
    for number in portal.iterate(count(5, ended)):
        if number == 2:
            break
    gc.collect()
    assert ended == ["ended"]
    portal.close()


def test_iterator_can_outlive_its_portal() -> None:
    portal = Portal()
    numbers = portal.iterate(count(5))
    assert next(numbers) == 0
    portal.close()
    with pytest.raises(StoreUnavailable):
        next(numbers)


def test_portal_waits_for_tasks_that_end_when_the_store_closes() -> None:
    """The tasks behave like a cancelled pool worker, which only ends its job and continues."""
    stop: list[asyncio.Event] = []
    workers: list[asyncio.Task[None]] = []

    async def work() -> None:
        stop.append(asyncio.Event())
        while not stop[0].is_set():
            with suppress(asyncio.CancelledError):
                await stop[0].wait()

    async def begin() -> None:
        workers.append(asyncio.create_task(work()))
        await asyncio.sleep(0)

    async def close() -> None:
        stop[0].set()
        await workers[0]

    portal = Portal()
    portal.call(begin())
    portal.closes(close)
    closing = threading.Thread(target=portal.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    assert workers[0].done()


def test_closing_a_portal_cancels_its_running_calls() -> None:
    steps: list[str] = []

    async def for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")

    async def close() -> None:
        steps.append("closed")

    portal = Portal()
    portal.closes(close)
    task = portal.run(lambda: asyncio.ensure_future(for_ever()))
    portal.call(double(1))
    portal.close()
    portal.close()
    assert steps == ["cancelled", "closed"]
    assert task.cancelled()
    assert not loop_threads()


def test_portal_calls_during_shutdown_never_hang() -> None:
    for _ in range(20):
        portal = Portal()
        results: list[int | str] = []

        def call(portal: Portal = portal, results: list[int | str] = results) -> None:
            try:
                results.append(portal.call(double(1)))
            except StoreUnavailable:
                results.append("closed")

        callers = [threading.Thread(target=call) for _ in range(8)]
        for caller in callers:
            caller.start()
        portal.close()
        for caller in callers:
            caller.join(60)
        assert len(results) == 8


def test_closed_portal_raises_a_clear_error() -> None:
    portal = Portal()
    portal.close()
    with pytest.raises(StoreUnavailable):
        portal.call(double(1))


@pytest.mark.full_only
def test_unreferenced_portal_stops_its_thread() -> None:
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    portal = Portal()
    portal.closes(close)
    assert len(loop_threads()) == 1
    del portal
    gc.collect()
    assert closed == [True]
    assert not loop_threads()


def test_blocking_call_inside_the_same_event_loop_raises_an_error() -> None:
    portal = Portal()

    def call_again() -> int:
        return portal.call(double(1))

    with pytest.raises(RuntimeError, match=r"perdure\.open"):
        portal.run(call_again)
    portal.close()


def test_portal_stops_if_it_is_released_inside_its_event_loop() -> None:
    closed = threading.Event()

    async def close() -> None:
        closed.set()

    def left() -> None:
        portal = Portal()
        portal.closes(close)
        portal.run(lambda: holders.append([portal]))

    holders: list[list[Portal]] = []
    left()
    (thread,) = loop_threads()

    async def drop() -> None:
        holders.clear()

    loop = holders[0][0].run(asyncio.get_running_loop)
    asyncio.run_coroutine_threadsafe(drop(), loop)
    assert closed.wait(60)
    thread.join(60)
    assert not thread.is_alive()
