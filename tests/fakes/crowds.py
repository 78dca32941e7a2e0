"""Several processes on one store of any kind: what each process does, and the required results."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from perdure.session.info import StreamHeader
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.concurrency.children.many_writers import S
from tests.fakes.processes import child, run_together

CHILD = Path(__file__).parents[1] / "concurrency" / "children" / "many_writers.py"


async def make_shared(store: SessionStore) -> None:
    """Make the session to which all processes write."""
    write = Write(stream=S, create=StreamHeader(S, 1))
    await store.commit(Commit(writes=(write,), at=1))


async def texts(store: SessionStore) -> list[list[str]]:
    """The words of every message, in log order."""
    messages = [entry.message for entry in await store.entries(S)]
    return [message.text.split() for message in messages if message is not None]


async def all_append(store: SessionStore, where: Path | str, processes: int, count: int) -> None:
    """Processes append `count` times each: all entries are stored, in the order of each process."""
    assert run_together(CHILD, "append", where, processes, count) == ["done"] * processes

    entries = await store.entries(S)
    assert [entry.seq for entry in entries] == list(range(processes * count))
    said = await texts(store)
    for number in range(processes):
        own = [int(index) for name, index in said if name == f"w{number}"]
        assert own == list(range(count))
    assert (await store.maintenance.verify()).problems == ()


async def all_race(store: SessionStore, where: Path | str, processes: int, count: int) -> None:
    """Processes race for `count` heads: one process wins each, and only its message is stored."""
    outcomes = run_together(CHILD, "race", where, processes, count)

    won = [int(head) for line in outcomes for head in line.split()]
    assert sorted(won) == list(range(count))
    said = await texts(store)
    for number, line in enumerate(outcomes):
        own = [index for name, index in said if name == f"w{number}"]
        assert own == line.split()
    assert (await store.maintenance.verify()).problems == ()


async def two_read_and_write(store: SessionStore, where: Path | str, count: int) -> None:
    """Two processes append `count` times each, and read all entries in between."""
    assert run_together(CHILD, "mixed", where, 2, count) == ["done"] * 2

    assert (await store.state(S)).head == 2 * count - 1
    assert (await store.maintenance.verify()).problems == ()


async def leader_sleeps(store: SessionStore, where: Path | str) -> None:
    """Stop a lease owner until its lease expires: another takes over, and the owner is rejected."""
    with child(CHILD, "hold", where, "sleeper", 100) as sleeper:
        sleeper.tell()
        assert sleeper.line() == "held"
        os.kill(sleeper.pid, signal.SIGSTOP)
        with child(CHILD, "take", where, "successor", 60_000) as successor:
            successor.tell()
            assert successor.last_line() == "epoch 2"
        os.kill(sleeper.pid, signal.SIGCONT)
        sleeper.tell()
        assert sleeper.last_line() == "lease_lost"

    assert [words[0] for words in await texts(store)] == ["begun"]
    kinds = [entry.kind for entry in await store.entries(S)]
    assert kinds == ["turn_started", "message", "turn_finished"]
    assert (await store.state(S)).epoch == 2
    assert (await store.maintenance.verify()).problems == ()
