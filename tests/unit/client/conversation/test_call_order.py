"""Calls append in the order in which they were made."""

from __future__ import annotations

import asyncio

from perdure.client.conversation.call_order import CallOrder, wait_for_call


async def write(order: CallOrder, written: list[str], name: str, ticks: int) -> None:
    async with order.place():
        for _ in range(ticks):
            await asyncio.sleep(0)
        written.append(name)


async def test_calls_write_in_order_even_if_earlier_calls_are_slower() -> None:
    order, written = CallOrder(), list[str]()
    await asyncio.gather(*(write(order, written, name, 5 - n) for n, name in enumerate("abcde")))
    assert written == list("abcde")


async def test_call_can_write_after_an_earlier_call_fails() -> None:
    order, written = CallOrder(), list[str]()
    begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    await wait_for_call(order.take(begun))
    cancelled = asyncio.ensure_future(write(order, written, "cancelled", 0))
    last = asyncio.ensure_future(write(order, written, "last", 0))
    await asyncio.sleep(0)
    cancelled.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (cancelled.done(), written) == (True, [])
    begun.set_exception(RuntimeError("could not begin"))
    begun.exception()
    await last
    assert written == ["last"]
