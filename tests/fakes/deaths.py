"""Lives of which one is killed at its first operation, one at its second, until one survives."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

MOST_OPERATIONS = 5_000


def die_at_each(live: Callable[[int], None], step: int) -> None:
    """Fork a process for every `step`-th operation, which `live` is to be killed at.

    `live` gets the operation's number (from 1), makes its own files and arms what kills it.
    Raises: AssertionError if a process fails, or none of them outlives its operation.
    """
    for operation in range(1, MOST_OPERATIONS, step):
        child = os.fork()
        if child == 0:
            live(operation)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, -signal.SIGKILL), f"it failed before operation {operation}"
        if code == 0:
            return
    raise AssertionError(f"it takes more than {MOST_OPERATIONS} operations")
