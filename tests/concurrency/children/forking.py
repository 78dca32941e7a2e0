"""A program that opens each of some stores, forks, and uses the store in the child.

forking.py async|blocking ADDRESS...

For each store, prints one line for each call the child made, "NAME ERROR: MESSAGE", then "parent
OK" when the parent's store still works. Each call of the child can take up to a minute.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import perdure
from perdure import blocking

warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of a fork with threads
CALL_S = 60


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def in_child(calls: dict[str, Callable[[], Any]]) -> None:
    """Make the calls in a forked child, and wait for it."""
    pid = os.fork()
    if pid == 0:
        for name, call in calls.items():
            say(f"{name} {outcome(call)}")
        os._exit(0)
    os.waitpid(pid, 0)


def outcome(call: Callable[[], Any]) -> str:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends a child that hangs
    signal.alarm(CALL_S)
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is, the test judges it
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return "no error"


def awaited(make: Callable[[], Awaitable[Any]]) -> Callable[[], Any]:
    async def work() -> Any:
        return await make()

    return lambda: asyncio.new_event_loop().run_until_complete(work())


async def watched(session: perdure.Session) -> None:
    async for _ in session.watch():
        return


async def with_async(address: str) -> None:
    async with perdure.open(address) as store:
        session = await store.create()
        await session.append(perdure.user("parent"))
        loop = asyncio.get_running_loop()
        asyncio.events._set_running_loop(None)  # the child runs its own loops
        try:
            in_child(
                {
                    "append": awaited(lambda: session.append(perdure.user("child"))),
                    "read": awaited(session.messages),
                    "create": awaited(store.create),
                    "list": awaited(store.recent),
                    "search": awaited(lambda: store.search("parent")),
                    "watch": awaited(lambda: watched(session)),
                    "close": awaited(store.close),
                }
            )
        finally:
            asyncio.events._set_running_loop(loop)
        await session.append(perdure.user("parent"))
        assert [m.text for m in await session.messages()] == ["parent", "parent"]
        say("parent OK")


def with_blocking(address: str) -> None:
    with blocking.open(address) as store:
        session = store.create()
        session.append(perdure.user("parent"))
        in_child(
            {
                "append": lambda: session.append(perdure.user("child")),
                "read": session.messages,
                "create": store.create,
                "list": store.recent,
                "search": lambda: store.search("parent"),
                "watch": lambda: next(iter(session.watch())),
                "close": store.close,
            }
        )
        session.append(perdure.user("parent"))
        assert [m.text for m in session.messages()] == ["parent", "parent"]
        say("parent OK")


for each in sys.argv[2:]:
    if sys.argv[1] == "async":
        asyncio.run(with_async(each))
    else:
        with_blocking(each)
