"""Parallel runs of the tools of one answer, and how an abort stops them."""

from __future__ import annotations

import asyncio
import threading
import time

from perdure.models.scenario import CallTools, ScriptedCall
from perdure.session.codec import body_of
from perdure.session.ledger import ToolFinished
from perdure.tools.decorator import tool
from tests.fakes.chats import Stage, calls, says


async def test_asynchronous_tools_that_only_read_run_in_parallel() -> None:
    together, done = asyncio.Barrier(8), list[str]()

    @tool(effect="read")
    async def look(place: str) -> str:
        """Wait at a place; return once all eight tools wait."""
        await asyncio.wait_for(together.wait(), 60)
        done.append(place)
        return f"seen {place}"

    asked = [ScriptedCall("look", f'{{"place": "{name}"}}', id=name) for name in "abcdefgh"]
    chat = await Stage(says(CallTools(tuple(asked))), says("done")).chat([look])
    assert (await chat.send("go")).text == "done"
    texts = [each.text for each in await chat.session.messages() if each.role == "tool"]
    assert texts == [f"seen {name}" for name in "abcdefgh"]
    assert sorted(done) == list("abcdefgh")


async def test_synchronous_tools_that_only_read_run_one_at_a_time() -> None:
    lock, overlaps = threading.Lock(), 0

    @tool(effect="read")
    def look() -> str:
        """Look, in a thread."""
        nonlocal overlaps
        overlaps += not lock.acquire(timeout=0)
        time.sleep(0.01)
        if lock.locked():
            lock.release()
        return "seen"

    chat = await Stage(says(calls("look", "look", "look")), says("done")).chat([look])
    assert (await chat.send("go")).text == "done"
    assert overlaps == 0


async def test_tools_with_effects_run_one_at_a_time() -> None:
    active, peak = 0, 0

    @tool(effect="external")
    async def book() -> str:
        """Book."""
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        for _ in range(20):
            await asyncio.sleep(0)
        active -= 1
        return "booked"

    chat = await Stage(says(calls("book", "book", "book")), says("done")).chat([book])
    assert (await chat.send("go")).text == "done"
    assert peak == 1


async def test_abort_stops_all_parallel_tools() -> None:
    together, stopped = asyncio.Barrier(4), 0

    @tool(effect="read")
    async def look() -> str:
        """Look until stopped."""
        nonlocal stopped
        await together.wait()
        try:
            await asyncio.Event().wait()
        finally:
            stopped += 1
        return "never"

    stage = Stage(says(calls("look", "look", "look")))
    chat = await stage.chat([look])
    turn = chat.send("go")
    await asyncio.wait_for(together.wait(), 60)
    await chat.abort()
    assert ((await turn).end, stopped) == ("aborted", 3)
    ended = [body_of(e) async for e in chat.session.entries(kind=ToolFinished.kind)]
    assert [end.outcome for end in ended if isinstance(end, ToolFinished)] == ["aborted"] * 3


async def test_abort_stops_parallel_tools_immediately() -> None:
    together, cancelled, seen = asyncio.Barrier(4), 0, list[int]()

    @tool(effect="read")
    async def look() -> str:
        """Wait until cancelled; shortly afterwards, record how many calls have been cancelled."""
        nonlocal cancelled
        await together.wait()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled += 1
            for _ in range(20):
                await asyncio.sleep(0)
            seen.append(cancelled)
        return "never"

    chat = await Stage(says(calls("look", "look", "look"))).chat([look])
    turn = chat.send("go")
    await asyncio.wait_for(together.wait(), 60)
    await chat.abort()
    assert ((await turn).end, seen) == ("aborted", [3, 3, 3])


async def test_abort_keeps_results_of_finished_tools() -> None:
    ended = asyncio.Semaphore(0)

    @tool(effect="read", max_output_bytes=1000)
    async def look(place: str) -> str:
        """Wait at a place; wait forever at the first one."""
        if place == "a":
            await asyncio.Event().wait()
        ended.release()
        return f"seen {place}" + "." * 2000

    asked = [ScriptedCall("look", f'{{"place": "{name}"}}', id=name) for name in "abc"]
    stage = Stage(says(CallTools(tuple(asked))))
    chat = await stage.chat([look])
    turn = chat.send("go")
    for _ in range(2):
        await asyncio.wait_for(ended.acquire(), 60)
    for _ in range(20):
        await asyncio.sleep(0)
    await chat.abort()
    assert (await turn).end == "aborted"
    told = [body_of(e) async for e in chat.session.entries(kind=ToolFinished.kind)]
    ends = [end for end in told if isinstance(end, ToolFinished)]
    assert [end.outcome for end in ends] == ["aborted", "ok", "ok"]
    contents = [
        await stage.memory.blob(str(end.whole).removeprefix("media://")) for end in ends[1:]
    ]
    assert [len(content) for content in contents] == [2006, 2006]
    texts = [each.text for each in await chat.session.messages() if each.role == "tool"]
    assert [text[:7] for text in texts[1:]] == ["seen b.", "seen c."]
