"""Pause Python's garbage collector while a long log is decoded, or modules are loaded.

The collector runs after every few hundred new objects and scans them repeatedly. Decoding 100,000
entries spends 20 to 45 % of its time in the collector, and decoding more entries spends an even
larger share. None of the objects that decoding or loading creates is garbage.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

_pausing = threading.Lock()
_LOADED = 500
"""A block that created this many new objects has loaded modules."""


@contextmanager
def collector_paused() -> Generator[None]:
    """Pause the collector during a block without `await`, in any thread.

    Only one block at a time pauses the collector; concurrent and nested blocks change nothing.
    Because paused blocks do not overlap, the collector runs between them even if many threads read.
    A disabled collector stays disabled.
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


@contextmanager
def collector_paused_to_load() -> Generator[None]:
    """Pause the collector while modules are loaded, and add their objects to the oldest generation.

    The modules remain loaded, so scanning their tens of thousands of objects finds no garbage.
    Without this function, the next collection would scan all objects of the loaded modules. Garbage
    that other code made before the call waits for a full collection. Use this function only for
    loading modules, because each use delays the collection of other garbage. If the program has
    frozen objects (``gc.freeze``), they remain frozen, and the objects of the modules are not
    moved.
    """
    with collector_paused():
        before = gc.get_count()[0]
        yield
        # Counting takes 160 ms in a process that froze millions of objects, so not for a block that
        # found its modules loaded.
        if gc.get_count()[0] - before >= _LOADED and gc.get_freeze_count() == 0:
            gc.freeze()
            gc.unfreeze()  # returns them as the oldest objects


def _resume_in_child() -> None:
    """Enable the collector in a child that was forked while another thread paused the collector."""
    global _pausing  # noqa: PLW0603 - the thread that holds it is not in this process
    if _pausing.locked():
        _pausing = threading.Lock()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resume_in_child)
