"""pi and perdure write one session file alternately."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import perdure
from perdure import assistant, user
from tests.acceptance.pi.comparing import require_same
from tests.acceptance.pi.moves import move
from tests.fakes.real_pi import RealPi
from tests.fakes.session_files import file_of

SESSIONS = 25
ROUNDS = 6
STEPS = 5
METADATA = {"ticket": "T-1", "tags": ["a", "é"], "note": "x" * 900}


@pytest.mark.all_only
async def test_pi_and_perdure_append_alternately_to_one_file(pi: RealPi, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    address = f"jsonl:///{folder}?dialect=pi"
    for seed in range(SESSIONS):
        chance = random.Random(seed)
        if seed % 2:
            path = pi.make(folder, "/harbour", seed, STEPS)
        else:
            async with perdure.open(address, durability="normal") as store:
                new = await store.create(title=f"Tides {seed}", cwd="/harbour", metadata=METADATA)
                await new.append(user("begin"), assistant("begun"))
                path = file_of(folder, new.id)
        for number in range(ROUNDS):
            what = f"seed {seed}, round {number}"
            before = path.read_bytes()
            async with perdure.open(address, durability="normal") as store:
                session = await store.open(pi.look(path)["id"])
                for _ in range(STEPS):
                    await move(session, chance)
                await require_same(session, pi.look(path), f"{what}, after perdure", path)
            by_perdure = path.read_bytes()
            assert by_perdure.startswith(before), what
            pi.ask("extend", path=path, seed=1000 * seed + number, steps=STEPS)
            assert path.read_bytes().startswith(by_perdure), what
            async with perdure.open(address, durability="normal") as store:
                session = await store.open(session.id)
                await require_same(session, pi.look(path), f"{what}, after pi", path)
    async with perdure.open(address, durability="normal") as store:
        assert (await store.verify()).problems == ()
    listed = pi.ask("list", cwd="/harbour", folder=folder)["sessions"]
    assert len(listed) == SESSIONS
