"""``kill -9`` of a process that writes a store: at any moment, and at each write and fsync."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from perdure.client.clock import SystemClock, system_random
from perdure.errors import SessionNotFound
from perdure.session.ids import StreamId
from perdure.stores.sqlite.store import SqliteStore
from tests.crash.children import log_writer
from tests.crash.children.log_writer import SIZES, STREAMS
from tests.fakes.forked import forked, preload, run_forked
from tests.fakes.samples import EACH_KILL, FOR_LONG, rounds, with_larger

preload(log_writer.__name__)


async def commits_in(store: SqliteStore, stream: StreamId) -> Counter[int]:
    """Return how many entries of each commit the stream has."""
    found: Counter[int] = Counter()
    for entry in await store.entries(stream):
        message = entry.message
        assert message is not None
        found[int(message.text.split()[0])] += 1
    return found


async def check(path: Path, acknowledged: set[int]) -> None:
    """Check that acknowledged commits exist, all are complete, and the store is valid."""
    store = await SqliteStore.open(path, clock=SystemClock(), random=system_random)
    try:
        verification = await store.maintenance.verify()
        assert verification.problems == ()
        for stream, size in zip(STREAMS, SIZES, strict=True):
            try:
                found = await commits_in(store, stream)
            except SessionNotFound:
                assert not acknowledged
                continue
            assert acknowledged - {-1} <= set(found)
            assert set(found.values()) <= {size}
            assert sorted(found) == list(range(len(found)))
        assert verification.entries % sum(SIZES) == 0
    finally:
        await store.close()


def killed_after(path: Path, commits: int, seconds: float) -> set[int]:
    """Let a child append until it is killed; return the commits that it acknowledged."""
    with forked(log_writer.append_until_killed, path) as child:
        first = b"".join(child.line() for _ in range(commits))
        time.sleep(seconds)
        child.kill()
        return {int(line) for line in (first + child.ended().out).split(b"\n")[:-1]}


@pytest.mark.parametrize("kills", with_larger(6, 30, *FOR_LONG))
def test_random_kills_neither_lose_nor_split_a_commit(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "sessions.db"
    acknowledged: set[int] = set()
    for number in range(rounds(kills)):
        acknowledged |= killed_after(path, 1 + number % 3, random.uniform(0.0, 0.15))
        asyncio.run(check(path, acknowledged))

    assert len(acknowledged) > rounds(kills)


@pytest.mark.timeout(400)
@EACH_KILL
def test_store_survives_kill_at_each_write_and_fsync(tmp_path: Path, step: int) -> None:
    assert run_forked(log_writer.kill_at_each, tmp_path, step).code == 0

    lives = sorted(tmp_path.glob("*.acks"))
    for acks in lives:
        acknowledged = {int(line) for line in acks.read_bytes().split()}
        asyncio.run(check(acks.with_suffix(".db"), acknowledged))
    # Making the file, two commits and the last checkpoint are some dozens of operations.
    assert len(lives) * step > 40
