"""The received part of an answer is stored in the background."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

from perdure.engine.turns.executor.partial_answers import EVERY_BYTES, EVERY_S, PartialStorage
from perdure.errors import StoreUnavailable
from tests.fakes.clock import ManualClock


class Arriving:
    """An arriving answer and its storage, which is slow if `is_slow`."""

    def __init__(self, *, is_slow: bool = False) -> None:
        self.clock = ManualClock()
        self.content = b""
        self.begun: list[bytes] = []
        self.kept: list[bytes] = []
        self.fault: Exception | None = None
        self.free = asyncio.Event()
        if not is_slow:
            self.free.set()
        self.keeping = PartialStorage(self.clock, lambda: self.content, self._put)

    def grow(self, by: bytes) -> None:
        self.content += by
        self.keeping.grown(len(by))

    async def pass_time(self, seconds: float = EVERY_S) -> None:
        await turns()
        self.clock.advance(seconds)
        await turns()

    async def _put(self, content: bytes) -> None:
        self.begun.append(content)
        await self.free.wait()
        if self.fault is not None:
            raise self.fault
        self.kept.append(content)


async def turns() -> None:
    """Yield to the event loop a few times, so that ready tasks run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_partial_answer_is_saved_while_the_stream_stalls() -> None:
    answer = Arriving()
    async with answer.keeping:
        answer.grow(b"one ")
        await answer.pass_time(EVERY_S / 2)
        answer.grow(b"two ")
        assert answer.kept == []
        await answer.pass_time(EVERY_S / 2)
        assert answer.kept == [b"one two "]
        await answer.pass_time()
        assert len(answer.kept) == 1  # nothing was new
        answer.grow(b"three")
        await answer.pass_time()
    assert answer.kept == [b"one two ", b"one two three"]


async def test_large_piece_of_an_answer_is_saved_immediately() -> None:
    answer = Arriving()
    async with answer.keeping:
        answer.grow(b"a")
        await turns()
        answer.grow(b"b" * EVERY_BYTES * 20)
        await turns()
        assert len(answer.kept) == 1
        answer.grow(b"c" * EVERY_BYTES)
        await turns()
        assert len(answer.kept) == 1
        answer.grow(b"d" * EVERY_BYTES)
        await turns()
    much, all_of_it = (len(kept) for kept in answer.kept)
    assert (much, all_of_it) == (1 + 20 * EVERY_BYTES, len(answer.content))


async def test_partial_answer_is_saved_immediately_on_request() -> None:
    answer = Arriving()
    async with answer.keeping:
        answer.grow(b"hm ")
        await turns()
        answer.content += b"one"
        await answer.keeping.now()
        assert answer.kept == [b"hm one"]
        await answer.pass_time()
        assert len(answer.kept) == 1  # the waiting save had nothing left to do


async def test_immediate_save_waits_for_running_save() -> None:
    answer = Arriving(is_slow=True)
    async with answer.keeping:
        answer.grow(b"x" * EVERY_BYTES)
        await turns()
        answer.content += b"one"
        keeping = asyncio.create_task(answer.keeping.now())
        await turns()
        assert len(answer.begun) == 1
        answer.free.set()
        await keeping
    assert answer.kept[-1] == answer.content


async def test_partial_text_of_a_quick_answer_is_not_saved() -> None:
    answer = Arriving()
    async with answer.keeping:
        answer.grow(b"all of it")
    await answer.pass_time()
    assert answer.begun == []


async def test_slow_store_gets_one_save_at_a_time() -> None:
    answer = Arriving(is_slow=True)
    async with answer.keeping:
        for _ in range(5):
            answer.grow(b"x" * EVERY_BYTES)
            await turns()
        assert len(answer.begun) == 1
        answer.free.set()
        await turns()
    assert answer.kept == [answer.content[:EVERY_BYTES], answer.content]


async def test_no_save_runs_after_end_of_answer() -> None:
    answer = Arriving(is_slow=True)

    async def stream() -> None:
        async with answer.keeping:
            answer.grow(b"x" * EVERY_BYTES)
            await turns()

    streaming = asyncio.create_task(stream())
    await turns()
    assert not streaming.done()
    answer.free.set()
    await streaming
    assert len(answer.kept) == 1


@pytest.mark.parametrize("is_ending", [False, True])
async def test_cancelled_caller_waits_for_a_running_save(*, is_ending: bool) -> None:
    answer = Arriving(is_slow=True)

    async def stream() -> None:
        async with answer.keeping:
            answer.grow(b"x" * EVERY_BYTES)
            await (turns() if is_ending else asyncio.Event().wait())

    streaming = asyncio.create_task(stream())
    for _ in range(4):
        await turns()
    assert len(answer.begun) == 1
    streaming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await streaming
    assert answer.kept == []


@pytest.mark.parametrize("has_more", [False, True])
async def test_save_error_is_raised_at_next_delta(*, has_more: bool) -> None:
    answer = Arriving()
    answer.fault = StoreUnavailable("there", "it is away")

    async def stream() -> None:
        async with answer.keeping:
            answer.grow(b"x" * EVERY_BYTES)
            await turns()
            if has_more:
                answer.grow(b"more")

    with pytest.raises(StoreUnavailable) if has_more else nullcontext():
        await stream()
    assert len(answer.begun) == 1
