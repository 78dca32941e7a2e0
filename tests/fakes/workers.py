"""Workers as processes: started, killed, stopped and continued by a test."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from perdure.__main__ import run
from perdure.stores.cluster.protocol import PROTOCOL
from perdure.stores.postgres.cluster import liveness
from tests.fakes.forked import SERVER, preload, take_streams
from tests.fakes.worker_program import FOLDER

preload(
    "dbos._sys_db_postgres",
    "perdure.apps.cli.main",
    "perdure.apps.cli.program",
    "perdure.apps.cluster.worker_command",
    "perdure.apps.server_commands.factory",
    "perdure.client.cluster.dbos_queue",
    "perdure.client.cluster.worker",
    "perdure.client.lookup.session_files",
    "perdure.stores.postgres.store",
    "shellingham",
    "sqlalchemy.dialects.sqlite",
    "tests.fakes.worker_program",
    __name__,
)

ROOT = Path(__file__).parents[2]
READY_S = 60
PATIENCE_S = 20.0
"""How long a patient worker waits for a report of another worker before it takes over."""

_ID = re.compile(r"^worker ([0-9a-f]+)$", re.MULTILINE)

_OTHER = """
import runpy
import perdure.stores.cluster.protocol as cluster
cluster.PROTOCOL = {}
runpy.run_module("perdure", run_name="__main__", alter_sys=True)
"""
"""A program that runs the command line as a version with another protocol number."""


class ForkedWorker:
    """A worker in a fork of a process that has loaded its modules; has methods of ``Popen``."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], log: Path, silence_s: float
    ) -> None:
        self._process = SERVER.Process(
            target=_work, args=(list(words), dict(environment), str(log), silence_s), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        assert self._process.exitcode is not None, "it did not end"
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _work(words: list[str], environment: dict[str, str], log: str, silence_s: float) -> None:
    gc.freeze()
    liveness.SILENCE_S = silence_s
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(written)
    take_streams()
    faulthandler.enable(2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    sys.argv = ["perdure", *words]
    sys.exit(run())


class WorkerProcess:
    """One ``perdure worker``. The words in `within` precede the command of the worker.

    `factory` is a function of ``worker_program``, or ``MODULE:FUNCTION``. If `is_forked`, the
    worker is a fork, which is ready sooner. Without `is_forked`, the worker is a new interpreter,
    for tests of the worker's start.

    Unless `is_patient` is False, a fork is patient: it does not take over from a worker that only
    pauses for some seconds, as on a busy machine. A patient fork takes over from a killed worker
    soon, because the lock of a killed worker is free.
    """

    def __init__(
        self,
        address: str,
        folder: Path,
        factory: str,
        *options: str,
        protocol: int = PROTOCOL,
        within: Sequence[str] = (),
        is_forked: bool = False,
        is_patient: bool = True,
    ) -> None:
        program = ("-m", "perdure") if protocol == PROTOCOL else ("-c", _OTHER.format(protocol))
        named = factory if ":" in factory else f"tests.fakes.worker_program:{factory}"
        self.log = folder / f"worker-{time.monotonic_ns()}.log"
        words = ("worker", named, "--store", address, *options)
        environment = {**os.environ, FOLDER: str(folder), "PERDURE_RUNNER": ""}
        self._process: subprocess.Popen[bytes] | ForkedWorker
        with self.log.open("w") as log:
            if is_forked:
                silence_s = PATIENCE_S if is_patient else liveness.SILENCE_S
                self._process = ForkedWorker(words, environment, self.log, silence_s)
            else:
                self._process = subprocess.Popen(
                    (*within, sys.executable, *program, *words),
                    cwd=ROOT,
                    env={**environment, "PYTHONFAULTHANDLER": "1"},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
        self.pid = self._process.pid

    def is_ready(self) -> bool:
        """Whether the worker accepts work. Fails the test if the worker has ended."""
        assert self._process.poll() is None, self.log.read_text()
        return _ID.search(self.log.read_text()) is not None

    def has_begun(self) -> bool:
        """Return whether the worker has accepted work. True even if the worker has ended since.

        Fails the test if the worker ended before it accepted work.
        """
        has_ended = self._process.poll() is not None
        printed = self.log.read_text()
        has_begun = _ID.search(printed) is not None
        assert has_begun or not has_ended, printed
        return has_begun

    def has_printed(self, text: str) -> bool:
        """Return whether the worker has printed `text`. Fails the test if the worker has ended."""
        has_ended = self._process.poll() is not None
        printed = self.log.read_text()
        assert text in printed or not has_ended, printed
        return text in printed

    @property
    def id(self) -> str:
        """Return the id of this process among the workers of the database."""
        (found,) = _ID.findall(self.log.read_text())
        return str(found)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the worker."""
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait until the process has ended; return its exit code."""
        return self._process.wait(READY_S)

    def stacks(self) -> str:
        """End the process, and return its log, which contains the stack of each thread."""
        self.send(signal.SIGABRT)
        self.end()
        return self.log.read_text()

    def kill(self) -> None:
        """Kill the process in any state."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(READY_S)


class Workers:
    """Workers that accept work inside the block, and are killed at its end.

    If a store is open in the event loop, use ``async with``, so that the event loop can end the
    open transactions of the store. With ``with``, the first worker would not start, because it
    builds indexes, and PostgreSQL builds an index only after the open transactions have ended.
    """

    def __init__(self, start: Callable[[], list[WorkerProcess]]) -> None:
        self._start = start
        self._started: list[WorkerProcess] = []

    def __enter__(self) -> list[WorkerProcess]:
        self._started = self._start()
        try:
            until = time.monotonic() + READY_S
            while True:
                if self._are_ready(until):
                    return self._started
                time.sleep(0.05)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for each in self._started:
            each.kill()

    async def __aenter__(self) -> list[WorkerProcess]:
        self._started = self._start()
        try:
            until = time.monotonic() + READY_S
            while True:
                if self._are_ready(until):
                    return self._started
                await asyncio.sleep(0.05)
        except BaseException:
            self.__exit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def _are_ready(self, until: float) -> bool:
        assert time.monotonic() < until, self._started[0].stacks()
        return all(each.has_begun() for each in self._started)


def workers(
    count: int,
    address: str,
    folder: Path,
    *options: str,
    factory: str = "runtime",
    protocol: int = PROTOCOL,
    is_forked: bool = True,
    is_patient: bool = True,
) -> Workers:
    """Return `count` workers with the version `protocol`; see `WorkerProcess`.

    A worker with another version is not a fork, because the loaded modules of a fork have the
    current version. A fork does not run what is registered with `atexit`.
    """

    def start() -> list[WorkerProcess]:
        return [
            WorkerProcess(
                *(address, folder, factory, *options),
                protocol=protocol,
                is_forked=is_forked and protocol == PROTOCOL,
                is_patient=is_patient,
            )
            for _ in range(count)
        ]

    return Workers(start)


def effects(folder: Path) -> list[tuple[int, str]]:
    """Return the effects of the tools: the process id and the text of each."""
    file = folder / "effects"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(line.split(" ", 1)[0]), line.split(" ", 1)[1]) for line in lines]


async def effect_of(folder: Path, text: str) -> int:
    """Wait until a tool has the effect `text`; return the id of its process."""
    async with asyncio.timeout(READY_S):
        while True:
            for pid, done in effects(folder):
                if done == text:
                    return pid
            await asyncio.sleep(0.02)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `condition` holds. Fails the test after a minute."""
    async with asyncio.timeout(READY_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.1)


def of(pid: int, started: list[WorkerProcess]) -> WorkerProcess:
    """Return the worker with the id `pid`."""
    return next(each for each in started if each.pid == pid)
