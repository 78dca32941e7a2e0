"""Child processes that begin when they are told to, and report on standard output."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

END_S = 60


class Child:
    """One process, up to the point where it waits to be told to begin."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        assert self.line() == "ready"

    def tell(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """The next line it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def last_line(self) -> str:
        """What it prints at the end; it must end well."""
        last = self.line()
        assert self._process.wait(END_S) == 0
        return last


@contextmanager
def child(script: Path, *arguments: object) -> Generator[Child]:
    """A process that runs `script`; killed at the end, should it not have ended itself."""
    command = [sys.executable, str(script), *map(str, arguments)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    with process:
        try:
            yield Child(process)
        finally:
            process.kill()


def run_together(script: Path, role: str, store: object, processes: int, count: int) -> list[str]:
    """What each process prints at its end, all begun at the same moment."""
    with ExitStack() as stack:
        children = [
            stack.enter_context(child(script, role, store, f"w{number}", count))
            for number in range(processes)
        ]
        for each in children:
            each.tell()
        return [each.last_line() for each in children]
