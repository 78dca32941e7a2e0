"""Several processes on one PostgreSQL database: what SQLite's do, on a server."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from perdure.client.clock import system_random
from perdure.session.info import StreamHeader
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Commit, Write
from tests.concurrency.children.many_writers import S
from tests.fakes.postgres import PostgresServer
from tests.fakes.processes import child, run_together

CHILD = Path(__file__).parent / "children" / "many_writers.py"
PROCESSES = 8
APPENDS = 100
RACES = 60


@pytest.fixture
def address(postgres: PostgresServer) -> Iterator[str]:
    taken = postgres.take()
    yield taken
    postgres.give_back(taken)


@pytest.fixture
async def store(address: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(address, random=system_random)
    write = Write(stream=S, create=StreamHeader(S, 1))
    await store.commit(Commit(writes=(write,), at=1))
    yield store
    await store.close()


async def texts(store: PostgresStore) -> list[list[str]]:
    """The words of every message, in log order."""
    messages = [entry.message for entry in await store.entries(S)]
    return [message.text.split() for message in messages if message is not None]


@pytest.mark.slow
async def test_eight_processes_append_to_one_session_and_all_is_kept_in_order(
    store: PostgresStore, address: str
) -> None:
    outcomes = run_together(CHILD, "append", address, PROCESSES, APPENDS)
    assert outcomes == ["done"] * PROCESSES

    entries = await store.entries(S)
    assert [entry.seq for entry in entries] == list(range(PROCESSES * APPENDS))
    said = await texts(store)
    for number in range(PROCESSES):
        own = [int(index) for name, index in said if name == f"w{number}"]
        assert own == list(range(APPENDS))
    assert (await store.verify()).problems == ()


@pytest.mark.slow
async def test_eight_processes_race_for_every_head_and_one_wins_each(
    store: PostgresStore, address: str
) -> None:
    outcomes = run_together(CHILD, "race", address, PROCESSES, RACES)

    won = [int(head) for line in outcomes for head in line.split()]
    assert sorted(won) == list(range(RACES))
    said = await texts(store)
    for number, line in enumerate(outcomes):
        own = [index for name, index in said if name == f"w{number}"]
        assert own == line.split()
    assert (await store.verify()).problems == ()


async def test_two_processes_read_and_write_at_once(store: PostgresStore, address: str) -> None:
    assert run_together(CHILD, "mixed", address, 2, 30) == ["done"] * 2

    assert (await store.state(S)).head == 59
    assert (await store.verify()).problems == ()


async def test_a_leader_that_slept_past_its_lease_is_refused(
    store: PostgresStore, address: str
) -> None:
    with child(CHILD, "hold", address, "sleeper", 100) as sleeper:
        sleeper.tell()
        assert sleeper.line() == "held"
        os.kill(sleeper.pid, signal.SIGSTOP)
        with child(CHILD, "take", address, "successor", 60_000) as successor:
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
