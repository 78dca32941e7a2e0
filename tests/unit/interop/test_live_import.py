from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from perdure.errors import FormatError, TurnOpen
from perdure.interop.exports import export_session
from perdure.interop.formats.sources.database import MAGIC
from perdure.interop.live_import import (
    LATEST_S,
    QUIET_MS,
    RETRY_S,
    SOONEST_S,
    Change,
    FolderFollower,
    histories_in,
)
from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.databases import GOOSE, make_database, rows_in
from tests.fakes.sources import (
    FIXTURES,
    claude_file,
    codex_file,
    every_file,
    operator_file,
    pi_file,
)

GOOSE_ROWS = rows_in((FIXTURES / "goose" / "session.jsonl").read_bytes())
V3 = StreamId("0f6f3f0e-7d55-4c83-9d0a-6f3ad2b7b003")


class Desk:
    """A folder of session files, a store, and the importer that follows the folder."""

    def __init__(self, folder: Path, **more: object) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock, random=SeededRandom(1))
        self.follower = FolderFollower(
            self.store,
            [folder],
            clock=self.clock,
            random=SeededRandom(2),
            **more,  # type: ignore[arg-type]  # the keywords of FolderFollower, each test its own
        )

    def write(self, name: str, content: bytes, *, is_fresh: bool = False) -> Path:
        """Write a file with the current time if `is_fresh`, otherwise with an old time."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        at = self.clock.now_ms() - (0 if is_fresh else 10 * QUIET_MS)
        os.utime(path, ns=(at * 1_000_000, at * 1_000_000))
        return path

    async def look(self) -> list[Change]:
        """Return the reported changes after waiting until every file is due for a scan."""
        self.clock.advance(RETRY_S)
        return [change async for change in self.follower.look()]

    async def texts(self, stream: StreamId) -> list[str]:
        path = await self.store.branch(stream, (await self.store.state(stream)).leaf)
        return [entry.message.text for entry in path if entry.message is not None]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def lines(content: bytes, count: int) -> bytes:
    return b"".join(line + b"\n" for line in content.split(b"\n")[:count])


def told(changes: list[Change]) -> list[tuple[str, str, int]]:
    return [
        (each.path.name, each.what, 0 if each.report is None else each.report.entries)
        for each in changes
    ]


async def test_existing_files_are_imported_once(desk: Desk) -> None:
    desk.write("a.jsonl", pi_file("v3.jsonl"))
    desk.write("deep/er/b.jsonl", codex_file("agent.jsonl"))
    desk.write("notes.txt", pi_file("v2.jsonl"))
    assert told(await desk.look()) == [("a.jsonl", "imported", 19), ("b.jsonl", "imported", 2)]
    assert await desk.look() == []


@pytest.mark.parametrize(
    "content",
    [
        pi_file("v3.jsonl"),
        claude_file("tools.jsonl"),
        operator_file("current.jsonl"),
        codex_file("rollout.jsonl"),
    ],
    ids=["pi", "claude-code", "operator", "codex"],
)
async def test_live_import_of_a_growing_file_equals_one_import(desk: Desk, content: bytes) -> None:
    whole = Desk(desk.folder)
    for count in range(1, content.count(b"\n") + 1):
        desk.write("a.jsonl", lines(content, count), is_fresh=True)
        await desk.look()
    [change] = await whole.look()
    assert change.report is not None
    stream = change.report.session
    assert await desk.texts(stream) == await whole.texts(stream)
    assert (await desk.store.maintenance.verify()).is_ok


async def test_new_and_grown_files_are_reported(desk: Desk) -> None:
    content = pi_file("v3.jsonl")
    desk.write("a.jsonl", lines(content, 8))
    await desk.look()
    desk.write("a.jsonl", content)
    desk.write("b.jsonl", pi_file("v2.jsonl"))
    assert [each[:2] for each in told(await desk.look())] == [
        ("a.jsonl", "imported"),
        ("b.jsonl", "imported"),
    ]


@pytest.mark.parametrize("written", [1, 30, 100])
async def test_incomplete_last_line_is_read_after_its_completion(desk: Desk, written: int) -> None:
    content = pi_file("v3.jsonl")
    cut = len(lines(content, 3))
    desk.write("a.jsonl", content[: cut + written], is_fresh=True)
    [first] = await desk.look()
    assert first.report is not None
    assert (first.report.malformed, first.report.entries) == ((), 2)
    assert await desk.look() == []
    desk.write("a.jsonl", content, is_fresh=True)
    [second] = await desk.look()
    assert second.report is not None
    assert (second.report.malformed, second.report.entries) == ((), 17)
    assert (await export_session(desk.store, V3, "pi")).content == content


async def test_permanently_half_written_line_is_kept_unchanged(desk: Desk) -> None:
    content = pi_file("v3.jsonl")[:-40]
    desk.write("a.jsonl", content, is_fresh=True)
    await desk.look()
    desk.clock.advance(QUIET_MS / 1000)
    [change] = await desk.look()
    assert change.report is not None
    assert change.report.malformed == (20,)
    assert (await export_session(desk.store, V3, "pi")).content == content
    assert await desk.look() == []


async def test_unterminated_last_line_of_an_unchanged_file_is_read(desk: Desk) -> None:
    desk.write("a.jsonl", pi_file("v3.jsonl").removesuffix(b"\n"))
    [change] = await desk.look()
    assert change.report is not None
    assert (change.report.entries, change.report.malformed) == (19, ())


async def test_file_time_in_the_future_does_not_prevent_import(desk: Desk) -> None:
    path = desk.write("a.jsonl", pi_file("v3.jsonl").removesuffix(b"\n"))
    later = (desk.clock.now_ms() + 10**9) * 1_000_000
    os.utime(path, ns=(later, later))
    assert told(await desk.look()) == [("a.jsonl", "imported", 19)]


async def test_deleted_file_keeps_its_session(desk: Desk) -> None:
    path = desk.write("a.jsonl", pi_file("v3.jsonl"))
    await desk.look()
    path.unlink()
    assert told(await desk.look()) == [("a.jsonl", "gone", 0)]
    assert await desk.look() == []
    assert await desk.texts(V3)
    desk.write("a.jsonl", pi_file("v3.jsonl"))
    assert await desk.look() == []


async def test_followed_folder_can_disappear_and_return(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "folder")
    assert await desk.look() == []
    desk.write("a.jsonl", pi_file("v3.jsonl"))
    assert len(await desk.look()) == 1
    desk.folder.rename(tmp_path / "away")
    assert told(await desk.look()) == [("a.jsonl", "gone", 0)]
    (tmp_path / "away").rename(desk.folder)
    assert await desk.look() == []


async def test_renamed_file_is_recognized_as_same_file(desk: Desk) -> None:
    path = desk.write("a.jsonl", lines(pi_file("v3.jsonl"), 8))
    await desk.look()
    path.rename(desk.folder / "a.1.jsonl")
    assert await desk.look() == []
    desk.write("a.1.jsonl", pi_file("v3.jsonl"))
    assert told(await desk.look()) == [("a.1.jsonl", "imported", 12)]


async def test_rotated_file_is_recognized_as_another_file(desk: Desk) -> None:
    path = desk.write("a.jsonl", pi_file("v3.jsonl"))
    await desk.look()
    path.rename(desk.folder / "a.old.jsonl")
    desk.write("a.jsonl", pi_file("v2.jsonl"))
    [change] = await desk.look()
    assert change.path.name == "a.jsonl"
    assert change.report is not None
    assert change.report.session != V3


async def test_truncated_file_loses_no_entries(desk: Desk) -> None:
    desk.write("a.jsonl", pi_file("v3.jsonl"))
    await desk.look()
    before = await desk.texts(V3)
    desk.write("a.jsonl", lines(pi_file("v3.jsonl"), 4))
    assert await desk.look() == []
    assert await desk.texts(V3) == before


async def test_file_with_two_hard_links_is_imported_once(desk: Desk) -> None:
    path = desk.write("a.jsonl", pi_file("v3.jsonl"))
    (desk.folder / "b.jsonl").hardlink_to(path)
    assert told(await desk.look()) == [("a.jsonl", "imported", 19)]


async def test_unrecognized_file_is_reported_once_and_retried(desk: Desk) -> None:
    desk.write("a.jsonl", b'{"level":"info"}\n')
    [change] = await desk.look()
    assert isinstance(change.error, FormatError)
    desk.write("a.jsonl", b'{"level":"info"}\n{"level":"warn"}\n')
    assert await desk.look() == []
    desk.write("a.jsonl", pi_file("v3.jsonl"))
    assert told(await desk.look()) == [("a.jsonl", "imported", 19)]


async def test_empty_file_is_not_reported(desk: Desk) -> None:
    path = desk.write("a.jsonl", b"")
    assert await desk.look() == []
    desk.write("b.jsonl", b'{"type":"sess', is_fresh=True)
    assert await desk.look() == []
    path.unlink()
    assert await desk.look() == []


async def test_session_with_open_turn_is_imported_after_its_end(desk: Desk) -> None:
    desk.write("a.jsonl", lines(pi_file("v3.jsonl"), 8))
    await desk.look()
    lease = await desk.store.acquire_lease(V3, "me", 10**9)

    async def append(body: TurnStarted | TurnFinished) -> None:
        write = Write(stream=V3, entries=(new_side(body),), lease=lease)
        await desk.store.commit(Commit(writes=(write,), at=START_MS))

    await append(TurnStarted(1, "agent"))
    desk.write("a.jsonl", pi_file("v3.jsonl"))
    [change] = await desk.look()
    assert isinstance(change.error, TurnOpen)
    assert await desk.look() == []
    await append(TurnFinished("stop"))
    assert told(await desk.look()) == [("a.jsonl", "imported", 12)]


async def test_files_of_the_store_are_not_imported(tmp_path: Path) -> None:
    own = tmp_path / "own"
    output = tmp_path / "output.jsonl"
    output.write_bytes(b"")
    status = output.stat()
    desk = Desk(tmp_path, excluded=[own], open={(status.st_dev, status.st_ino)})
    desk.write("own/a.jsonl", pi_file("v3.jsonl"))
    output.write_bytes(pi_file("v2.jsonl"))
    assert await desk.look() == []


async def test_file_with_slow_import_is_read_less_often(tmp_path: Path) -> None:
    class Slow(ManualClock):
        def steady_s(self) -> float:
            self.advance(1.0)
            return super().steady_s()

    desk = Desk(tmp_path)
    slow = Slow()
    follower = FolderFollower(desk.store, [tmp_path], clock=slow, random=SeededRandom(2))
    desk.write("a.jsonl", lines(pi_file("v3.jsonl"), 8))
    assert len([change async for change in follower.look()]) == 1
    desk.write("a.jsonl", pi_file("v3.jsonl"))
    assert [change async for change in follower.look()] == []
    slow.advance(100)
    assert len([change async for change in follower.look()]) == 1


async def test_all_fixtures_are_imported_in_one_scan(desk: Desk) -> None:
    for number, content in enumerate(every_file()):
        desk.write(f"{number:03}.jsonl", content)
    changes = await desk.look()
    assert all(change.what == "imported" for change in changes)
    assert len(changes) == len(every_file())


async def until(is_met: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if is_met():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come to that")


async def test_scans_become_rarer_without_changes_and_more_frequent_after_a_change(
    tmp_path: Path,
) -> None:
    pauses: list[float] = []

    class Noting(ManualClock):
        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)
            await super().sleep(seconds)

    desk, clock = Desk(tmp_path), Noting()
    follower = FolderFollower(desk.store, [tmp_path], clock=clock, random=SeededRandom(2))

    async def follow() -> list[Change]:
        return [change async for change in follower.changes()]

    following = asyncio.create_task(follow())
    for number in range(1, 9):
        await until(lambda: len(pauses) == number)  # noqa: B023 - awaited before the next round
        if number == 7:
            desk.write("a.jsonl", pi_file("v3.jsonl"))
        clock.advance(LATEST_S)
    assert pauses[0] == SOONEST_S * 2
    assert pauses[:7] == sorted(pauses[:7])
    assert pauses[6] == LATEST_S
    assert pauses[7] == SOONEST_S
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert await desk.texts(V3)


async def test_followed_database_includes_changes_in_its_write_ahead_log(desk: Desk) -> None:
    path = desk.folder / "sessions.db"
    first, *_ = messages = [row for row in GOOSE_ROWS if row[0] == "messages"]
    make_database(path, GOOSE, [*GOOSE_ROWS[-1:], first])
    assert told(await desk.look()) == [("sessions.db", "imported", 2)]
    assert await desk.look() == []
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE sessions SET name = 'Pears'")
        writer.commit()
        assert told(await desk.look()) == [("sessions.db", "imported", 1)]
        make_database(path, GOOSE, messages[1:])
        assert told(await desk.look()) == [("sessions.db", "imported", len(messages) - 1)]
        assert await desk.look() == []


async def test_damaged_session_of_a_database_is_reported_once(desk: Desk) -> None:
    path = desk.write("sessions.db", MAGIC + b"\0" * 5_000)
    assert told(await desk.look()) == [("sessions.db", "failed", 0)]
    path.write_bytes(MAGIC + b"\1" * 6_000)
    assert told(await desk.look()) == []


def test_files_below_a_folder_are_returned_in_order(tmp_path: Path) -> None:
    names = ["b.jsonl", "a/z.jsonl", "a/c/x.jsonl", "a.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = [path.relative_to(tmp_path).as_posix() for path in histories_in(tmp_path)]
    assert found == ["b.jsonl", "a/z.jsonl", "a/c/x.jsonl"]
    assert list(histories_in(tmp_path / "a.txt")) == [tmp_path / "a.txt"]
    assert list(histories_in(tmp_path / "nowhere")) == []


def test_folder_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    told: list[OSError] = []
    assert list(histories_in(tmp_path / "closed", told.append)) == []
    assert [error.filename for error in told] == [str(tmp_path / "closed")]
