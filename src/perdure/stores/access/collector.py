"""Python's garbage collector, paused while many values that stay are made.

The collector runs each time some hundred more values exist than it saw last, and looks at all of
them again and again while a long log is decoded: 20 to 45 % of the time at 100,000 entries, and
more the longer the log is. None of it is garbage.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

_pausing = threading.Lock()


@contextmanager
def collector_paused() -> Generator[None]:
    """Pause the collector for a piece of work without `await`, in whatever thread.

    One piece of work at a time pauses it: others meanwhile, and those inside it, change nothing. So
    it runs again in between, however many threads read. One that was off stays off.
    """
    if not gc.isenabled() or not _pausing.acquire(blocking=False):
        yield
        return
    try:
        gc.disable()
        yield
    finally:
        gc.enable()
        _pausing.release()


def _resume_in_child() -> None:
    """Let the collector run in a process that was forked while another thread had paused it."""
    global _pausing  # noqa: PLW0603 - its holder is not in this process
    if _pausing.locked():
        _pausing = threading.Lock()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resume_in_child)
