"""A program that handles no error of a fault; perdure must print nothing to its stderr.

faulty_program.py ADDRESS FAULT

FAULT is one of these:
    left_open     the store is never closed, and the event loop ends
    stopped_loop  the event loop is stopped and closed in the middle of a turn
    cancelled     appends are cancelled
    cut           connections are cut, or the server is killed, while turns run;
                  a line on stdin says when the fault is over
    closed_early  the store is closed while calls run
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import perdure


async def opened(address: str) -> tuple[Any, perdure.Store]:
    opening = perdure.open(address)
    return opening, await opening.__aenter__()


async def left_open(address: str) -> None:
    _, store = await opened(address)
    session = await store.create()
    await session.append(perdure.user("one"))
    watching = asyncio.ensure_future(anext(session.watch()))
    await asyncio.sleep(0.05)
    watching.cancel()


async def cancelled(address: str) -> None:
    async with perdure.open(address) as store:
        session = await store.create()
        tasks = [asyncio.ensure_future(session.append(perdure.user("x"))) for _ in range(40)]
        for number, task in enumerate(tasks):
            if number % 3 == 0:
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def closed_early(address: str) -> None:
    async with perdure.open(address) as store:
        session = await store.create()
        agent = perdure.Agent("a", model="scripted:echo")
        runtime = perdure.Runtime(store, [agent])
        chat = await runtime.start(agent)
        chat.send("hello")  # never awaited
        calls = [asyncio.ensure_future(session.append(perdure.user("x"))) for _ in range(20)]
        await asyncio.sleep(0)
    await asyncio.gather(*calls, return_exceptions=True)


async def cut(address: str) -> None:
    agent = perdure.Agent("a", model="scripted:echo")
    async with perdure.open(address) as store, perdure.Runtime(store, [agent]) as runtime:
        chat = await runtime.start(agent, id="s")
        os.write(1, b"running\n")
        over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        while not over.done():
            with suppress(perdure.errors.PerdureError):
                chat.send("nobody awaits this")
            with suppress(perdure.errors.PerdureError):
                await chat.session.append(perdure.user("x"))
            await asyncio.sleep(0.002)
            if chat.turn is not None and not chat.turn.is_running:
                with suppress(perdure.errors.PerdureError):
                    chat = await runtime.resume("s")


def stopped_loop(address: str) -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> list[Any]:
        opening, store = await opened(address)
        agent = perdure.Agent("a", model="scripted:echo")
        chat = await perdure.Runtime(store, [agent]).start(agent)
        return [opening, store, chat, chat.send("hello")]

    kept = loop.run_until_complete(begin())
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()  # the driver's pool swallows one that comes as it connects
        loop.run_until_complete(asyncio.wait(tasks, timeout=0.5))
    loop.close()
    kept.clear()


if sys.argv[2] == "stopped_loop":
    stopped_loop(sys.argv[1])
else:
    asyncio.run(globals()[sys.argv[2]](sys.argv[1]))
gc.collect()
os.write(1, b"done\n")
