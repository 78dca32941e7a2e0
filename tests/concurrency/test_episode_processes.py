"""Several processes concurrently end sessions, or open a store: each end gets one episode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure import user
from perdure.session.codec import new_side
from perdure.session.memory.kinds import EpisodeRecorded
from perdure.session.notes import SessionEnded
from perdure.stores.protocol import Commit, Write
from tests.fakes.forked import preload
from tests.fakes.postgres import PostgresServer
from tests.fakes.processes import run_together

preload("perdure.stores.postgres.store")

CHILD = Path(__file__).parent / "children" / "enders.py"
PROCESSES = 3
SESSIONS = 8


@pytest.fixture(params=["sqlite", "jsonl", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the address of an empty store."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("warm_postgres")
        taken = server.take()
        yield taken
        server.give_back(taken)
    else:
        yield f"{request.param}:///{tmp_path / 's'}"


@pytest.mark.parametrize("role", ["end", "open"])
async def test_concurrent_processes_record_one_episode_per_session_end(
    address: str, role: str
) -> None:
    async with perdure.open(address) as store:
        for number in range(SESSIONS):
            session = await store.create(id=f"s{number}")
            await session.append(user("Hello"))
            if role == "open":  # by a program that knows no episodes
                end = Write(stream=session.id, entries=(new_side(SessionEnded()),))
                await store.backend.commit(Commit(writes=(end,), at=1))
    assert run_together(CHILD, role, address, PROCESSES, SESSIONS) == ["done"] * PROCESSES
    async with perdure.open(address) as store:
        kinds = (SessionEnded.kind, EpisodeRecorded.kind)
        notes = await store.backend.notes_of_all(kinds)
        ends = sorted(note.id for note in notes if note.kind == SessionEnded.kind)
        about = sorted(note.about or "" for note in notes if note.kind == EpisodeRecorded.kind)
        assert ends == about
        assert len(ends) == SESSIONS
        assert (await store.verify()).is_ok
