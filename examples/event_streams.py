"""Event streams that end at the stop signal of the server, which would otherwise wait for them."""

from __future__ import annotations

import asyncio
import signal
import threading
from types import FrameType
from typing import Any
from weakref import WeakSet

import perdure

WATCHES = WeakSet[perdure.Watch]()


def until_shutdown(watch: perdure.Watch) -> perdure.Watch:
    """Return `watch` as an iterator that ends at the stop signal."""
    WATCHES.add(watch)
    return watch


def end_streams_at_signal() -> None:
    """Call this function when the application starts, in the thread of its event loop."""
    if threading.current_thread() is not threading.main_thread():
        return  # a test client: no signals
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        before: Any = signal.getsignal(number)  # the handler of the server

        def stop(number: int, frame: FrameType | None, before: Any = before) -> None:
            for watch in [*WATCHES]:
                asyncio.run_coroutine_threadsafe(watch.aclose(), loop)
            before(number, frame)

        signal.signal(number, stop)
