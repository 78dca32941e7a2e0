"""A second process that holds a lock and is stopped, as by Ctrl-Z."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.concurrency.children.stopped_holder import hold
from tests.fakes.forked import forked, preload

preload(hold.__module__)


@contextmanager
def stopped_holder(*arguments: object) -> Generator[int]:
    """Yield the pid of a stopped process that holds a lock; kill the process at the end.

    `arguments` are passed to the process; they name the lock.
    """
    with forked(hold, *map(str, arguments)) as process:
        word, _, pid = process.line().decode().strip().partition(" ")
        assert word == "held"
        while state_of(int(pid)) != "T":
            time.sleep(0.005)
        yield int(pid)


def state_of(pid: int) -> str:
    """Return the process state from the operating system; T means stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
