"""Missing acknowledged entries of a session file: verify reports them in every later run."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from perdure.apps.maintenance.repair import repair_store
from perdure.client.open import open as open_by_address
from perdure.errors import SessionNotFound
from perdure.session.messages import user
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.store import DialectName
from tests.fakes.samples import with_larger
from tests.fakes.session_files import file_of

TAIL = "entries 2 to 3 were acknowledged and are gone from the session's file"


@pytest.fixture
def address(folder: Path, dialect: DialectName) -> str:
    return f"jsonl:///{folder}?dialect={dialect}"


async def commit(address: str, *texts: str, id: str = "s") -> None:
    """Commit each text separately, through a separate handle."""
    async with open_by_address(address) as store:
        session = await store.open_or_create(id)
        for text in texts:
            await session.append(user(text))


async def problems(address: str) -> list[tuple[str | None, int | None, str]]:
    async with open_by_address(address) as store:
        found = (await store.backend.maintenance.verify()).problems
    return [(each.stream, each.seq, each.problem) for each in found]


def cut(path: Path, lines: int) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-lines]))


async def fed(address: str, after: int = 0) -> list[tuple[int, int, bytes]]:
    async with open_by_address(address) as store:
        found = await store.backend.feed(after)
        return [(each.position, each.entry.seq, each.entry.body) for each in found]


async def test_lost_entries_are_still_reported_after_later_commits(
    address: str, folder: Path
) -> None:
    await commit(address, "m0", "m1", "m2", "m3")
    position = (await fed(address))[-1][0]
    cut(file_of(folder, "s"), 2)
    for number in range(5):
        assert await problems(address) == [("s", 2, TAIL)]
        await commit(address, f"n{number}")
    assert await problems(address) == [("s", 2, TAIL)]
    new = await fed(address, position)
    assert [seq for _, seq, _ in new] == [2, 3, 4, 5, 6]  # a reader of the feed misses none
    assert new[0][0] > position
    async with open_by_address(address) as store:
        assert [hit.entry for hit in await store.search("n0")] == ["s/2"]
        assert await store.search("m3") == []

    cut(file_of(folder, "s"), 1)
    await commit(address, "again")
    second = ("s", 6, "it was acknowledged and is gone from the session's file")
    assert await problems(address) == [("s", 2, TAIL), second]


async def test_process_that_read_lost_entries_reports_their_loss(
    address: str, folder: Path
) -> None:
    await commit(address, "m0", "m1")
    async with open_by_address(address) as here:
        session = await here.open("s")
        writer = textwrap.dedent(f"""
            import asyncio, perdure
            async def main():
                async with perdure.open({address!r}) as store:
                    session = await store.open("s")
                    await session.append(perdure.user("m2"))
                    await session.append(perdure.user("m3"))
            asyncio.run(main())
        """)
        subprocess.run([sys.executable, "-c", writer], check=True, timeout=60)  # noqa: ASYNC221 - nothing else is to run
        cut(file_of(folder, "s"), 2)
        await session.append(user("n0"))
        await session.append(user("n1"))
    assert await problems(address) == [("s", 2, TAIL)]


async def test_verify_reports_an_older_copy_of_a_session_file(
    address: str, folder: Path, tmp_path: Path
) -> None:
    await commit(address, "m0", "m1")
    path = file_of(folder, "s")
    older = path.read_bytes()
    await commit(address, "m2", "m3")
    async with open_by_address(address) as store:
        session = await store.open("s")
        assert len(await session.messages()) == 4
        copy = tmp_path / "older"
        copy.write_bytes(older)
        copy.replace(path)
        await session.append(user("n0"), user("n1"), user("n2"))
    assert await problems(address) == [("s", 2, TAIL)]

    done = await repair_store(address, to=f"sqlite:///{tmp_path / 'repaired.db'}")
    assert [(each.stream, each.seq, each.problem) for each in done.losses] == [("s", 2, TAIL)]
    assert await problems(f"sqlite:///{tmp_path / 'repaired.db'}") == []

    async with open_by_address(address) as store:
        await store.erase("s")
    assert await problems(address) == []


async def test_kill_after_a_loss_was_recorded_does_not_repeat_the_report(
    address: str, folder: Path
) -> None:
    await commit(address, "m0", "m1", "m2", "m3")
    cut(file_of(folder, "s"), 2)
    dying = textwrap.dedent(f"""
        import asyncio, os, signal, perdure
        from perdure.stores.jsonl.disk.feed import Feed
        lose = Feed.lose
        def lose_and_die(*arguments):
            lose(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        Feed.lose = lose_and_die
        async def main():
            async with perdure.open({address!r}) as store:
                await (await store.open("s")).append(perdure.user("n"))
        asyncio.run(main())
    """)
    ended = subprocess.run([sys.executable, "-c", dying], check=False, timeout=60)  # noqa: ASYNC221 - nothing else is to run
    assert ended.returncode == -signal.SIGKILL
    assert await problems(address) == [("s", 2, TAIL)]
    await commit(address, "n0", "n1", "n2")
    assert await problems(address) == [("s", 2, TAIL)]
    assert (folder / ".perdure" / "feed").read_bytes().count(b" -") == 1


async def test_session_reduced_to_header_is_reported(address: str, folder: Path) -> None:
    await commit(address, "m0", "m1")
    path = file_of(folder, "s")
    first_lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in first_lines if b'"m' not in line))
    await commit(address, "n0", "n1", "n2")
    text = "entries 0 to 1 were acknowledged and are gone from the session's file"
    assert ("s", 0, text) in await problems(address)


async def test_session_whose_file_was_removed_starts_again_at_seq_zero(
    address: str, folder: Path
) -> None:
    await commit(address, "m0", "m1", "m2", "m3")
    file_of(folder, "s").unlink()
    await commit(address, "n0")
    assert await problems(address) == []
    assert [seq for _, seq, _ in await fed(address)] == [0]


async def test_damaged_line_of_the_feed_adds_no_entries(address: str, folder: Path) -> None:
    await commit(address, "m0", "m1")
    most = 10**30
    lines = f"9 s 2 -{most}\n9 s 0 {most}\n{most} s 2 1\n9 s -4 -3\n9 s 2 --3\n9 s 2 -\n"
    with (folder / ".perdure" / "feed").open("a") as feed:
        feed.write(lines)
    assert await problems(address) == []
    await commit(address, "m2")
    assert await problems(address) == []
    assert [seq for _, seq, _ in await fed(address)] == [0, 1, 2]


WRITER = """
import asyncio, random, sys, perdure
async def main():
    chance = random.Random(sys.argv[2])
    async with perdure.open(sys.argv[1]) as store:
        while True:
            session = await store.open_or_create(chance.choice("ab"))
            await session.append(*(perdure.user("x") for _ in range(chance.randint(1, 3))))
            if chance.random() < 0.3:
                await store.backend.position()
            print("k", flush=True)
asyncio.run(main())
"""


@pytest.mark.all_only
@pytest.mark.full_only
@pytest.mark.parametrize("dialect", ["operator"], indirect=True)
def test_killed_writers_and_readers_report_no_loss(address: str, folder: Path) -> None:
    chance = random.Random(7)
    for number in range(4):
        children = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, address, f"{number} {which}"],
                stdout=subprocess.PIPE,
            )
            for which in range(2)
        ]
        try:
            for child in children:
                assert child.stdout is not None
                for _ in range(chance.randint(1, 20)):
                    child.stdout.readline()
        finally:
            for child in children:
                os.kill(child.pid, signal.SIGKILL)
                child.communicate()
        lost = [each for each in asyncio.run(problems(address)) if "acknowledged" in each[2]]
        assert lost == []
    assert b" -" not in (folder / ".perdure" / "feed").read_bytes()


@pytest.mark.full_only
@pytest.mark.parametrize("count", with_larger(30, 100))
async def test_missed_feed_writes_cause_no_false_report_of_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A missed feed write leaves the same files as a kill right before the feed write."""
    extend_soon = Feed.extend_soon
    for number in range(count):
        chance = random.Random(number)
        address = f"jsonl:///{tmp_path / str(number)}"

        def sometimes(
            feed: Feed, stream: str, head: int, path: Path, chance: random.Random = chance
        ) -> None:
            if chance.random() < 0.6:
                extend_soon(feed, stream, head, path)  # pyright: ignore[reportArgumentType] - passed on

        monkeypatch.setattr(Feed, "extend_soon", sometimes)
        async with open_by_address(address) as one, open_by_address(address) as other:
            ids = ["a", "b"]
            for step in range(10):
                store = chance.choice((one, other))
                match chance.randint(0, 5):
                    case 0:
                        await store.backend.feed(0)
                    case 1:
                        assert (await store.backend.maintenance.verify()).problems == (), number
                    case 2:
                        erased, ids[0] = ids[0], f"a{step}"
                        with suppress(SessionNotFound):
                            await store.erase(erased)
                    case _:
                        session = await store.open_or_create(chance.choice(ids))
                        await session.append(*(user("x") for _ in range(chance.randint(1, 3))))
            assert (await one.backend.maintenance.verify()).problems == ()
        feed = tmp_path / str(number) / ".perdure" / "feed"
        assert not feed.exists() or b" -" not in feed.read_bytes()
