"""Run tools that are plain (not ``async``) functions in threads of their own.

Tools do not run in the event loop's threads, which stores use, because a function that never
returns would stop every commit. The threads for tools are daemon threads, so a process can end
while some of them still run.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")

MAX_THREADS = 64
"""Maximum number of tool functions that run at a time in a process; further calls wait."""

_IDLE_S = 10.0
"""How long a thread waits for new work before it ends."""


async def in_tool_thread(function: Callable[..., T], *arguments: object) -> T:
    """Call `function` in a thread for tools, and return its result.

    If the call is cancelled while it waits for a thread, `function` never runs.
    """
    future: Future[T] = Future()
    context = copy_context()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = context.run(function, *arguments)
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            future.set_exception(error)
        else:
            future.set_result(result)

    _threads.start(work)
    return await asyncio.wrap_future(future)


class Threads:
    """A pool of at most `limit` daemon threads. A thread ends when it has no work."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._count = 0
        self._idle = 0

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` as soon as a thread is free.

        Raises: RuntimeError if the system cannot start another thread; in this case, `work` never
        runs.
        """
        with self._changed:
            self._waiting.append(work)
            if len(self._waiting) <= self._idle:
                self._changed.notify()
            elif self._count < self._limit:
                self._count += 1
                try:
                    threading.Thread(target=self._run, name="perdure-tool", daemon=True).start()
                except BaseException:
                    self._count -= 1
                    self._waiting.pop()  # the lock is held since it was appended
                    raise

    def _run(self) -> None:
        while self._run_next():  # its arguments are not kept until the next one
            pass

    def _run_next(self) -> bool:
        work = self._next()
        if work is not None:
            work()
        return work is not None

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next piece of work, and return it; return None if the thread must end."""
        with self._changed:
            self._idle += 1
            has_work = self._changed.wait_for(lambda: bool(self._waiting), _IDLE_S)
            self._idle -= 1
            if has_work:
                return self._waiting.popleft()
            self._count -= 1
            return None


_threads = Threads(MAX_THREADS)


def _begin_anew() -> None:
    """Forget the threads of the parent process, because a forked child does not have them."""
    global _threads  # noqa: PLW0603 - the threads of a process are its own
    _threads = Threads(MAX_THREADS)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_anew)
