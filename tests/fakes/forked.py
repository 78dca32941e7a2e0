"""Child processes that are forked from a process that has loaded their modules.

Loading modules takes most of the time of a short process, and the crash tests start hundreds of
processes. The parent process opens no store and starts no thread, so that each fork behaves like a
new process.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, TypeAlias

END_S = 90

SERVER = multiprocessing.get_context("forkserver")
_PRELOADED = [
    "tests.fakes.fork_garbage",
    "perdure.client.agents.runtime",
    "perdure.client.flows.flows",
    "perdure.client.open",
    "perdure.models.scenario_yaml",
    "perdure.stores.in_memory.store",
    "perdure.stores.jsonl.address",
    "perdure.stores.jsonl.store",
    "perdure.stores.sqlite.address",
    "perdure.stores.sqlite.store",
    "perdure.yaml.parser",
    "perdure.yaml.representer",
]
SERVER.set_forkserver_preload(_PRELOADED)


def preload(*modules: str) -> None:
    """Load `modules` in the process from which the forks are made.

    A call after the first fork has no effect. A test preloads only the modules that its own forks
    use.
    """
    _PRELOADED.extend(modules)
    SERVER.set_forkserver_preload(_PRELOADED)


@dataclass(frozen=True)
class Ended:
    """The end of a process: its exit code, negative for a signal, and its output."""

    code: int
    out: bytes
    err: str


class Forked:
    """A running process that was forked."""

    def __init__(self, process: ForkServerProcess, out: int, err: int) -> None:
        self._process = process
        self._out = FileIO(out, closefd=False)
        self._err = FileIO(err, closefd=False)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    def line(self) -> bytes:
        """Return the next line of the process's output; empty after its end."""
        return self._out.readline()

    def error_line(self) -> str:
        """Return the next line of the process's stderr; empty after its end."""
        return self._err.readline().decode()

    def kill(self) -> None:
        """``kill -9``."""
        self._process.kill()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def send_signal(self, number: int) -> None:
        """Send the signal `number`."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait until the process ends; return its exit code."""
        self._process.join(END_S)
        assert self._process.exitcode is not None, "it did not end"
        return self._process.exitcode

    def ended(self) -> Ended:
        """Wait until the process ends."""
        out = self._out.readall()
        err = self._err.readall().decode()
        self._process.join(END_S)
        assert self._process.exitcode is not None, "it closed its output and did not end"
        return Ended(self._process.exitcode, out, err)


@contextmanager
def forked(work: Callable[..., None], *arguments: object) -> Generator[Forked]:
    """Yield a process that does `work`; the process is killed at the end if it has not ended by
    then.

    `work` is a module-level function, because the fork loads the function by name.
    """
    out, its_out = SERVER.Pipe(duplex=False)
    err, its_err = SERVER.Pipe(duplex=False)
    with out, err:
        with its_out, its_err:
            process = SERVER.Process(
                target=_become, args=(its_out, its_err, work, *arguments), daemon=True
            )
            process.start()
        try:
            yield Forked(process, out.fileno(), err.fileno())
        finally:
            process.kill()
            process.join()
            process.close()


def run_forked(work: Callable[..., None], *arguments: object) -> Ended:
    """Run a process that does `work`; return how the process ended."""
    with forked(work, *arguments) as process:
        return process.ended()


def take_streams() -> None:
    """Replace `sys.stdin`, `sys.stdout` and `sys.stderr` by files on the descriptors 0, 1 and 2."""
    out, err = FileIO(1, "w", closefd=False), FileIO(2, "w", closefd=False)
    is_terminal = out.isatty()
    sys.stdin = TextIOWrapper(BufferedReader(FileIO(0, "r", closefd=False)), "utf-8")
    sys.stdout = TextIOWrapper(BufferedWriter(out), "utf-8", line_buffering=is_terminal)
    sys.stderr = TextIOWrapper(BufferedWriter(err), "utf-8", line_buffering=True)
    system: Any = sys
    system.__stdin__, system.__stdout__, system.__stderr__ = sys.stdin, sys.stdout, sys.stderr


Pipe: TypeAlias = "Connection[object, object]"


def _become(out: Pipe, err: Pipe, work: Callable[..., None], *arguments: object) -> None:
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    out.close()
    err.close()
    work(*arguments)
