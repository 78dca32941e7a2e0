"""``kill -9`` of a process that writes session files: at each write, fsync, link and rename."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from perdure.errors import SessionNotFound
from perdure.session.codec import new_side
from perdure.session.ids import blob_hash
from perdure.session.ledger import TurnFinished
from perdure.stores.jsonl.store import JsonlStore
from perdure.stores.protocol import Commit, Write
from tests.crash.children import session_file_writer
from tests.crash.children.session_file_writer import SIZE, S, append, opened
from tests.fakes.forked import forked, preload, run_forked
from tests.fakes.samples import ALL_ONLY, EACH_KILL, rounds
from tests.fakes.session_files import context_of, file_of
from tests.fakes.session_tools import tool

preload(session_file_writer.__name__)

KILLS = 8


async def whole_commits(store: JsonlStore) -> set[int]:
    """Return the commits whose entries exist; check that each is complete and contiguous."""
    try:
        entries = await store.entries(S)
    except SessionNotFound:
        return set()
    numbers = [int(e.message.text.split()[0]) for e in entries if e.message is not None]
    assert numbers == sorted(numbers)
    found = set(numbers)
    assert all(numbers.count(number) == SIZE for number in found)
    return found


async def end_turn(store: JsonlStore) -> None:
    """Finish the turn of the process that was killed, if it had one open."""
    state = await store.state(S)
    if state.open_turn is not None:
        assert state.epoch == 1
        lease = await store.acquire_lease(S, "recovery", 60_000, dead_owner="me")
        assert await store.partial(S) in (None, (9, b"half"))
        end = Write(stream=S, entries=(new_side(TurnFinished("interrupted")),), lease=lease)
        await store.commit(Commit(writes=(end,), at=5))


async def check(folder: Path, dialect: str, acknowledged: set[int]) -> None:
    """Check that acknowledged commits exist, all are complete, and the store accepts more."""
    store = await opened(folder, dialect)
    try:
        problems = [problem.problem for problem in (await store.maintenance.verify()).problems]
        assert all("were never committed" in problem for problem in problems)
        found = await whole_commits(store)
        assert acknowledged <= found
        if not found:
            return
        await end_turn(store)
        number = max(found)
        before = await store.position()
        await append(store, number)  # the same key again: at most once
        await append(store, number + 1)
        assert await whole_commits(store) == found | {number, number + 1}
        assert await store.position() > before
        feed = [item.entry for item in await store.feed(0)]
        assert feed == await store.entries(S)
        assert await store.blob(blob_hash(f"blob {number + 1}".encode()))
        assert (await store.maintenance.verify()).problems == ()
        assert tool(dialect, file_of(folder, S)).context() == await context_of(store, S)
    finally:
        await store.close()


@pytest.mark.timeout(400)
@EACH_KILL
@pytest.mark.parametrize("dialect", ["operator", "pi"])
def test_kill_at_any_write_keeps_commits_whole(tmp_path: Path, dialect: str, step: int) -> None:
    assert run_forked(session_file_writer.kill_at_each, tmp_path, dialect, step).code == 0

    lives = sorted(tmp_path.glob("*.acks"))
    for acks in lives:
        acknowledged = {int(line) for line in acks.read_text().split() if line.isdigit()}
        asyncio.run(check(acks.with_suffix(""), dialect, acknowledged))
    assert len(lives) * step > 40


@pytest.mark.soak
@pytest.mark.parametrize("dialect", ["pi", pytest.param("operator", marks=ALL_ONLY)])
def test_session_files_survive_repeated_kills(tmp_path: Path, dialect: str) -> None:
    acknowledged: set[int] = set()
    chance = random.Random()
    for _ in range(rounds(KILLS)):
        with forked(session_file_writer.append_until_killed, tmp_path, dialect) as child:
            acknowledged |= {int(child.line()) for _ in range(chance.randrange(1, 40))}
            child.kill()
            acknowledged |= {int(line) for line in child.ended().out.split(b"\n")[:-1]}

    asyncio.run(check(tmp_path, dialect, acknowledged))
