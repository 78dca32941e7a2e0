"""Threads of tools: separate from threads of stores, limited, and ended with the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar
from pathlib import Path

import pytest

import perdure
from perdure import user
from perdure.tools import threads
from perdure.tools.threads import MAX_THREADS, Threads, in_tool_thread

NAME: ContextVar[str] = ContextVar("name", default="")
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(100_000)


async def test_function_runs_in_the_context_of_the_caller() -> None:
    NAME.set("ana")
    assert await in_tool_thread(NAME.get) == "ana"
    assert await in_tool_thread(threading.current_thread) is not threading.main_thread()
    numbers: dict[str, int] = {}
    with pytest.raises(KeyError, match="gone"):
        await in_tool_thread(numbers.pop, "gone")


async def test_commit_succeeds_while_all_tool_threads_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_threads", Threads(MAX_THREADS))
    release, running = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        running.release()
        release.wait()

    async with asyncio.timeout(60), perdure.open(f"sqlite:///{tmp_path}/s.db") as store:
        hanging = [asyncio.ensure_future(in_tool_thread(hang)) for _ in range(MAX_THREADS + 1)]
        try:
            await asyncio.to_thread(lambda: [running.acquire() for _ in range(MAX_THREADS)])
            session = await store.create(title="Trip")
            await session.append(user("Look", perdure.media(PICTURE, "image/png")))
            assert len(await session.messages()) == 1
            assert not running.acquire(blocking=False)  # the one above the limit waits
        finally:
            release.set()
        await asyncio.gather(*hanging)


async def test_waiting_call_that_is_cancelled_never_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "_threads", Threads(1))
    release, ran = threading.Event(), list[str]()
    first = asyncio.ensure_future(in_tool_thread(release.wait))
    second = asyncio.ensure_future(in_tool_thread(ran.append, "second"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait((second,))
    release.set()
    assert await first
    await in_tool_thread(ran.append, "third")
    assert ran == ["third"]


async def test_function_never_runs_if_its_thread_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "_threads", Threads(1))
    ran: list[str] = []

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await in_tool_thread(ran.append, "first")
    async with asyncio.timeout(60):
        await in_tool_thread(ran.append, "second")  # the only thread that the limit allows
    assert ran == ["second"]


HANGING = """
import asyncio, threading
import perdure
from perdure import assistant, tool_call
from perdure.testing import ScriptedModel

@perdure.tool(timeout_s=0.1, description="Hang.")
def hang() -> str:
    threading.Event().wait()
    return "never"

async def main() -> None:
    model = ScriptedModel([assistant(tool_call("c1", "hang", {})), "Over."])
    agent = perdure.Agent("a", model="test:x", tools=[hang])
    async with perdure.open() as store, perdure.Runtime(store, [agent], models=model) as runtime:
        print((await (await runtime.start("a")).send("Go")).text)

asyncio.run(main())
"""


def test_process_exits_while_a_tool_function_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Over.\n", "")
