"""``kill -9`` at each write and fsync at the end of a session: each end gets one episode."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure
from perdure.errors import SessionNotFound
from perdure.session.ids import StreamId
from perdure.session.memory.kinds import EpisodeRecorded
from perdure.session.notes import SessionEnded
from tests.crash.children import session_ender
from tests.crash.children.session_ender import SESSION
from tests.fakes.forked import preload, run_forked
from tests.fakes.samples import EACH_KILL

preload(session_ender.__name__)


async def ends_in(path: Path) -> int:
    """Check that each end in the store has exactly one episode; return the number of ends.

    Opening the store records an episode for an end that a program without episodes wrote.
    """
    async with perdure.open(f"sqlite:///{path}") as store:
        try:
            entries = await store.backend.entries(StreamId(SESSION))
        except SessionNotFound:
            return 0
        ends = [entry.id for entry in entries if entry.kind == SessionEnded.kind]
        about = [entry.about for entry in entries if entry.kind == EpisodeRecorded.kind]
        assert sorted(ends) == sorted(filter(None, about))
        episodes = (await store.memory.episodes(session=SESSION))[::-1]
        assert [each.id for each in episodes] == ends
        starts = [0, *(each.last + 1 for each in episodes)][: len(episodes)]
        assert [each.first for each in episodes] == starts
        assert await store.backend.open_of_all("session_ended") == []
        assert (await store.verify()).is_ok
        return len(ends)


@pytest.mark.timeout(400)
@EACH_KILL
def test_killed_process_records_one_episode_per_session_end(tmp_path: Path, step: int) -> None:
    assert run_forked(session_ender.kill_at_each, tmp_path, step).code == 0

    lives = sorted(tmp_path.glob("*.acks"))
    found = {
        acks.stem: (acks.read_bytes().count(b"+"), asyncio.run(ends_in(acks.with_suffix(".db"))))
        for acks in lives
        if acks.with_suffix(".db").exists()
    }
    assert all(acknowledged <= ends <= acknowledged + 1 for acknowledged, ends in found.values())
    assert {ends for _, ends in found.values()} >= {0, 3}
    assert len(lives) * step > 40
