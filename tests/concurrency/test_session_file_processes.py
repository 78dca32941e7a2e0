"""Several processes on one folder of session files: every append kept, one order, one leader."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from perdure.client.clock import SystemClock, system_random
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.stores.jsonl.store import DialectName, JsonlStore
from perdure.stores.protocol import Commit, Write
from tests.concurrency.children.session_file_writers import S
from tests.fakes.session_files import file_of
from tests.fakes.session_tools import tool

CHILD = Path(__file__).parent / "children" / "session_file_writers.py"
PROCESSES = 4


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
        assert self._process.wait(30) == 0
        return last


@pytest.fixture(params=["operator", "pi"])
def dialect(request: pytest.FixtureRequest) -> DialectName:
    return request.param


@pytest.fixture
async def store(tmp_path: Path, dialect: DialectName) -> AsyncIterator[JsonlStore]:
    store = await JsonlStore.open(
        tmp_path, dialect=dialect, clock=SystemClock(), random=system_random
    )
    write = Write(stream=S, create=StreamHeader(S, 1))
    await store.commit(Commit(writes=(write,), at=1))
    yield store
    await store.close()


@contextmanager
def child(role: str, folder: Path, dialect: str, name: str, count: int) -> Generator[Child]:
    command = [sys.executable, str(CHILD), role, str(folder), dialect, name, str(count)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    with process:
        try:
            yield Child(process)
        finally:
            process.kill()


def run_together(role: str, folder: Path, dialect: str, count: int) -> list[str]:
    """What each process prints at its end, all begun at the same moment."""
    with ExitStack() as stack:
        children = [
            stack.enter_context(child(role, folder, dialect, f"w{number}", count))
            for number in range(PROCESSES)
        ]
        for each in children:
            each.tell()
        return [each.last_line() for each in children]


async def texts(store: JsonlStore) -> list[list[str]]:
    """The words of every message, in log order."""
    messages = [entry.message for entry in await store.entries(S)]
    return [message.text.split() for message in messages if message is not None]


async def test_processes_append_and_nothing_is_lost_doubled_or_mixed(
    store: JsonlStore, tmp_path: Path, dialect: str
) -> None:
    count = 60
    assert run_together("append", tmp_path, dialect, count) == ["done"] * PROCESSES

    entries = await store.entries(S)
    assert [entry.seq for entry in entries] == list(range(2 * PROCESSES * count))
    said = await texts(store)
    assert said[::2] == said[1::2]  # the entries of one commit stand together
    for number in range(PROCESSES):
        own = [int(index) for name, index in said[::2] if name == f"w{number}"]
        assert own == list(range(count))
    assert [item.entry.id for item in await store.feed(0)] == [entry.id for entry in entries]
    assert (await store.verify()).problems == ()
    assert len(tool(dialect, file_of(tmp_path, S)).context()) == 2 * PROCESSES * count


async def test_of_processes_that_expect_the_same_head_one_wins(
    store: JsonlStore, tmp_path: Path, dialect: str
) -> None:
    count = 80
    outcomes = run_together("race", tmp_path, dialect, count)

    won = [int(head) for line in outcomes for head in line.split()]
    assert sorted(won) == list(range(count))
    assert (await store.verify()).problems == ()


async def test_a_key_that_processes_share_appends_once(
    store: JsonlStore, tmp_path: Path, dialect: str
) -> None:
    count = 40
    assert run_together("key", tmp_path, dialect, count) == ["done"] * PROCESSES

    assert await texts(store) == [["all", str(number)] for number in range(count)]


async def test_an_id_that_processes_share_is_made_once(
    store: JsonlStore, tmp_path: Path, dialect: str
) -> None:
    count = 30
    made = [
        id_ for line in run_together("create", tmp_path, dialect, count) for id_ in line.split()
    ]

    assert sorted(made) == sorted(f"new{number}" for number in range(count))
    assert len(await store.sessions(limit=None)) == count + 1
    for number in range(count):
        assert (await store.state(StreamId(f"new{number}"))).head == 0


async def test_a_leader_that_slept_past_its_lease_is_refused(
    store: JsonlStore, tmp_path: Path, dialect: str
) -> None:
    with child("hold", tmp_path, dialect, "sleeper", 100) as sleeper:
        sleeper.tell()
        assert sleeper.line() == "held"
        os.kill(sleeper.pid, signal.SIGSTOP)
        with child("take", tmp_path, dialect, "successor", 60_000) as successor:
            successor.tell()
            assert successor.last_line() == "epoch 2"
        os.kill(sleeper.pid, signal.SIGCONT)
        sleeper.tell()
        assert sleeper.last_line() == "lease_lost"

    assert [words[0] for words in await texts(store)] == ["begun"]
    kinds = [entry.kind for entry in await store.entries(S)]
    assert kinds == ["turn_started", "message", "turn_finished"]
    assert (await store.state(S)).epoch == 2
    assert (await store.verify()).problems == ()
