"""Work that is finished even if its caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from perdure.stores.access import cancellation
from perdure.stores.access.cancellation import finished


async def test_caller_gets_the_result_or_error_of_the_work() -> None:
    async def work(*, is_failing: bool) -> str:
        await asyncio.sleep(0)
        if is_failing:
            raise LookupError
        return "done"

    assert await finished(work(is_failing=False)) == "done"
    with pytest.raises(LookupError):
        await finished(work(is_failing=True))


@pytest.mark.parametrize("is_failing", [False, True])
@pytest.mark.parametrize("times", [1, 2, 7])
async def test_cancelled_caller_waits_for_the_end_of_the_work(
    times: int, *, is_failing: bool
) -> None:
    leave, ended = asyncio.Event(), list[bool]()

    async def work() -> None:
        await leave.wait()
        ended.append(True)
        if is_failing:
            raise LookupError

    caller = asyncio.ensure_future(finished(work()))
    for _ in range(times):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    leave.set()
    await asyncio.wait((caller,))
    assert caller.cancelled()
    assert ended == [True]


@pytest.mark.parametrize("times", [1, 5])
async def test_work_that_does_not_end_is_cancelled_after_a_time_limit(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "FINISH_S", 0.05)
    cleaned = list[bool]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    caller = asyncio.ensure_future(finished(work()))
    for _ in range(times):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.wait((caller,), timeout=60)
    assert caller.cancelled()
    assert cleaned == [True]
