"""Several processes on one database file: every append kept, one order, one winner, one leader."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.client.clock import SystemClock, system_random
from perdure.session.info import StreamHeader
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.store import SqliteStore
from tests.concurrency.children.many_writers import S
from tests.fakes.processes import child, run_together

CHILD = Path(__file__).parent / "children" / "many_writers.py"
PROCESSES = 8
COUNT = 1_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, clock=SystemClock(), random=system_random)
    write = Write(stream=S, create=StreamHeader(S, 1))
    await store.commit(Commit(writes=(write,), at=1))
    yield store
    await store.close()


async def texts(store: SqliteStore) -> list[list[str]]:
    """The words of every message, in log order."""
    messages = [entry.message for entry in await store.entries(S)]
    return [message.text.split() for message in messages if message is not None]


@pytest.mark.slow
async def test_eight_processes_append_a_thousand_times_each(store: SqliteStore, path: Path) -> None:
    assert run_together(CHILD, "append", path, PROCESSES, COUNT) == ["done"] * PROCESSES

    entries = await store.entries(S)
    assert [entry.seq for entry in entries] == list(range(PROCESSES * COUNT))
    said = await texts(store)
    for number in range(PROCESSES):
        own = [int(index) for name, index in said if name == f"w{number}"]
        assert own == list(range(COUNT))
    assert (await store.verify()).problems == ()


@pytest.mark.slow
async def test_eight_processes_race_for_a_thousand_heads(store: SqliteStore, path: Path) -> None:
    outcomes = run_together(CHILD, "race", path, PROCESSES, COUNT)

    won = [int(head) for line in outcomes for head in line.split()]
    assert sorted(won) == list(range(COUNT))
    said = await texts(store)
    for number, line in enumerate(outcomes):
        own = [index for name, index in said if name == f"w{number}"]
        assert own == line.split()
    assert (await store.verify()).problems == ()


async def test_two_processes_read_and_write_at_once(store: SqliteStore, path: Path) -> None:
    assert run_together(CHILD, "mixed", path, 2, 100) == ["done"] * 2

    assert (await store.state(S)).head == 199
    assert (await store.verify()).problems == ()


async def test_processes_that_open_and_close_do_not_disturb_each_other(
    store: SqliteStore, path: Path
) -> None:
    await store.close()
    assert run_together(CHILD, "visit", path, 4, 15) == ["done"] * 4

    again = await SqliteStore.open(path, clock=SystemClock(), random=system_random)
    assert (await again.verify()).problems == ()
    assert (await again.state(S)).head == 59
    await again.close()


async def test_a_leader_that_slept_past_its_lease_is_refused(
    store: SqliteStore, path: Path
) -> None:
    with child(CHILD, "hold", path, "sleeper", 100) as sleeper:
        sleeper.tell()
        assert sleeper.line() == "held"
        os.kill(sleeper.pid, signal.SIGSTOP)
        with child(CHILD, "take", path, "successor", 60_000) as successor:
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
