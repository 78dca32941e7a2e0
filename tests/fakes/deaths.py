"""Forks of this process that are killed at a chosen operation, for example their third write."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

MOST_OPERATIONS = 5_000
PIPE_BYTES = 65_536


class ForksImports:
    """Collects the modules that forks import, so that later forks have them from the start.

    Importing the modules takes most of the time of a short process, so a fork saves this time.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def tell(self) -> None:
        """In a fork: report each module when it is imported, because the fork might be killed."""

        def told(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "import" and arguments[0].startswith("perdure."):
                with suppress(BlockingIOError):  # a later fork tells it
                    os.write(self._writing, f"{arguments[0]}\n".encode())

        sys.addaudithook(told)

    def load(self) -> None:
        """Import the modules that the forks reported."""
        with suppress(BlockingIOError):  # nothing new
            for name in os.read(self._reading, PIPE_BYTES).decode().split():
                with suppress(ImportError):  # neither could the fork
                    importlib.import_module(name)


def exit_code_of(work: Callable[[], object]) -> int:
    """Fork this process to do `work`; return the exit code of the fork, negative for a signal."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_in_fork(folder: Path, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Create `folder`, run `work` in a fork, and print the exit code of the fork."""
    folder.mkdir(parents=True)
    sys.stdout.write(f"{exit_code_of(lambda: asyncio.run(work()))}\n")
    sys.stdout.flush()


def die_at_each(live: Callable[[int], None], step: int) -> None:
    """Run `live` in a fork for every `step`-th operation, until a fork ends without being killed.

    `live` receives the number of the operation at which it must be killed (from 1), creates its own
    files and sets up the kill.
    Raises: AssertionError if a process fails, or if every process is killed.
    """
    imports = ForksImports()

    def life(operation: int) -> None:
        imports.tell()
        live(operation)

    for operation in range(1, MOST_OPERATIONS, step):
        code = exit_code_of(partial(life, operation))
        imports.load()
        assert code in (0, -signal.SIGKILL), f"it failed before operation {operation}"
        if code == 0:
            return
    raise AssertionError(f"it takes more than {MOST_OPERATIONS} operations")
