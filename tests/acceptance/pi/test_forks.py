"""Forks of sessions, made by pi and by perdure: their origin and their labels."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure import assistant, user
from tests.acceptance.pi.comparing import require_same
from tests.fakes.real_pi import RealPi
from tests.fakes.session_files import file_of


async def test_pi_fork_of_a_perdure_session_is_read_equally_by_both_programs(
    pi: RealPi, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    async with perdure.open(f"jsonl:///{folder}?dialect=pi") as store:
        session = await store.create(title="Tides", cwd="/harbour")
        first = await session.append(user("one"), assistant("two"), user("three"), assistant("4"))
        await session.label(first[1].id, "here")
        path = file_of(folder, session.id)
        said = [record for record in pi.look(path)["entries"] if record["type"] == "message"]
        for at, texts in ((3, ["one", "two", "three", "4"]), (1, ["one", "two"])):
            forked = Path(pi.ask("fork", path=path, at=said[at]["id"])["path"])
            fork = await store.open(forked)
            await require_same(fork, pi.look(forked), f"fork by pi at {at}")
            assert [message.text for message in await fork.messages()] == texts
            assert list((await fork.labels()).values()) == ["here"]


async def test_perdure_fork_of_a_pi_session_is_read_equally_by_both_programs(
    pi: RealPi, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    path = pi.make(folder, "/harbour", 7, 20)
    async with perdure.open(f"jsonl:///{folder}?dialect=pi") as store:
        session = await store.open(path)
        fork = await session.fork()
        await require_same(
            fork, pi.look(file_of(folder, fork.id)), "fork", file_of(folder, fork.id)
        )
        await fork.append(user("more"))
        await require_same(
            fork, pi.look(file_of(folder, fork.id)), "more", file_of(folder, fork.id)
        )
    listed = {each["id"]: each for each in pi.ask("list", cwd="/", folder=folder)["sessions"]}
    assert listed[fork.id]["parentSessionPath"] == str(path)
    assert listed[fork.id]["cwd"] == "/harbour"
