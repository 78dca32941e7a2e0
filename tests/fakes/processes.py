"""Child processes that start on a signal from the test, and report on standard output.

The processes are forked from a process that has loaded the library, because loading takes most of
the time of a short process.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from io import FileIO
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.fakes.forked import SERVER, Pipe, take_streams

END_S = 60


class Child:
    """One child process, which waits for the signal of the test to start."""

    def __init__(self, process: ForkServerProcess, stdin: int, stdout: int) -> None:
        assert process.pid is not None
        self.pid = process.pid
        self._process = process
        self._stdin = stdin
        self._stdout = FileIO(stdout, closefd=False)
        assert self.line() == "ready"

    def tell(self) -> None:
        """Let the process continue."""
        os.write(self._stdin, b"\n")

    def line(self) -> str:
        """The next line that the process prints."""
        return self._stdout.readline().decode().rstrip("\n")

    def last_line(self) -> str:
        """Return the last line of output; check that the process succeeds."""
        last = self.line()
        self._process.join(END_S)
        assert self._process.exitcode == 0
        return last


@contextmanager
def child(script: Path, *arguments: object) -> Generator[Child]:
    """Yield a process that runs `script`; kill the process at the end if it still runs."""
    its_in, stdin = SERVER.Pipe(duplex=False)
    stdout, its_out = SERVER.Pipe(duplex=False)
    with stdin, stdout:
        with its_in, its_out:
            words = [str(script), *map(str, arguments)]
            given = (its_in, its_out, words, dict(os.environ), str(Path.cwd()))
            process = SERVER.Process(target=_run_script, args=given, daemon=True)
            process.start()
        try:
            yield Child(process, stdin.fileno(), stdout.fileno())
        finally:
            process.kill()
            process.join()
            process.close()


def _run_script(
    stdin: Pipe, stdout: Pipe, words: list[str], environment: dict[str, str], folder: str
) -> None:
    os.dup2(stdin.fileno(), 0)
    os.dup2(stdout.fileno(), 1)
    stdin.close()
    stdout.close()
    take_streams()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def run_together(script: Path, role: str, store: object, processes: int, count: int) -> list[str]:
    """Start processes at the same moment; return the last line of each."""
    with ExitStack() as stack:
        children = [
            stack.enter_context(child(script, role, store, f"w{number}", count))
            for number in range(processes)
        ]
        for each in children:
            each.tell()
        return [each.last_line() for each in children]
