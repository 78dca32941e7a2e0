from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from perdure.errors import FormatError
from perdure.interop import bulk
from perdure.interop.bulk import Told, import_files, in_order, opened, size_of
from perdure.interop.formats.sources.content import FileContent
from perdure.interop.reports import FileOutcome
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.sources import empty_store, every_file, imported


async def outcomes(
    store: SessionStore, paths: list[Path], told: Told | None = None
) -> list[FileOutcome]:
    found = import_files(store, paths, clock=ManualClock(), random=SeededRandom(2), told=told)
    return [outcome async for outcome in found]


@pytest.fixture
def folder(tmp_path: Path) -> list[Path]:
    """Return every fixture as a file, with one invalid file between them."""
    contents = [*every_file(), b"no session\n"]
    contents.insert(2, b"")
    paths = [tmp_path / f"{number:03}.jsonl" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


async def test_outcomes_of_files_are_in_the_given_order(folder: list[Path]) -> None:
    store = empty_store()
    found = await outcomes(store, folder)
    assert [outcome.path for outcome in found] == folder
    assert len(folder) == len(every_file()) + 2
    failed = [outcome for outcome in found if outcome.error is not None]
    assert [folder.index(outcome.path) for outcome in failed] == [2, len(folder) - 1]
    assert all(isinstance(outcome.error, FormatError) for outcome in failed)
    assert (await store.maintenance.verify()).is_ok


async def test_parallel_import_equals_sequential_import(folder: list[Path]) -> None:
    together, alone = empty_store(), empty_store()
    await outcomes(together, folder)
    paths = {path.read_bytes(): path for path in folder}  # a path may name the session
    sessions = set[str]()
    for content in every_file():
        report = await imported(alone, paths[content])
        assert report.session not in sessions, "the second file with an id would get another one"
        sessions.add(report.session)
        ours = await together.entries(report.session)
        theirs = await alone.entries(report.session)
        assert [entry.id for entry in ours] == [entry.id for entry in theirs]
        assert [entry.kind for entry in ours] == [entry.kind for entry in theirs]


async def test_importing_same_file_twice_creates_one_session(
    folder: list[Path], tmp_path: Path
) -> None:
    store = empty_store()
    copies = [tmp_path / f"copy-{number}.jsonl" for number in range(8)]
    for copy in copies:
        copy.write_bytes(folder[0].read_bytes())
    found = await outcomes(store, copies)
    reports = [outcome.report for outcome in found if outcome.report is not None]
    assert len(reports) == 8
    assert sum(report.is_new for report in reports) == 1
    assert (await store.info()).streams == 1


async def test_missing_file_is_reported_and_other_files_are_imported(folder: list[Path]) -> None:
    found = await outcomes(empty_store(), [Path("/nowhere/x.jsonl"), folder[0]])
    assert [outcome.error is None for outcome in found] == [False, True]
    assert size_of(Path("/nowhere/x.jsonl")) == 0


async def test_progress_of_each_file_is_reported(folder: list[Path]) -> None:
    read: dict[Path, int] = {}
    await outcomes(empty_store(), folder, told=read.__setitem__)
    good = [path for path in folder if path.stat().st_size > 20]
    assert {path: read[path] for path in good} == {path: path.stat().st_size for path in good}


class Counted:
    """Counts how many jobs run, and how many bytes they have in memory, at the same time."""

    def __init__(self) -> None:
        self.held = self.most = self.running = self.most_running = 0

    def job(self, size: int) -> tuple[int, Callable[[], Coroutine[None, None, int]]]:
        async def work() -> int:
            self.held, self.running = self.held + size, self.running + 1
            self.most = max(self.most, self.held)
            self.most_running = max(self.most_running, self.running)
            await asyncio.sleep(0)
            self.held, self.running = self.held - size, self.running - 1
            return size

        return size, work


@pytest.mark.parametrize("sizes", [[3] * 50, [1, 9, 2, 8] * 9, [100, 1, 100], []])
async def test_memory_of_parallel_jobs_is_bounded(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BYTES_AT_ONCE", 10)
    counted = Counted()
    done = [size async for size in in_order(counted.job(size) for size in sizes)]
    assert done == sizes
    assert counted.most <= max([10, *sizes])
    assert counted.most_running <= bulk.FILES_AT_ONCE


async def test_bytes_of_a_finished_job_are_free_for_later_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk, "BYTES_AT_ONCE", 10)
    last = asyncio.Event()

    async def first() -> int:
        return 1

    async def waiting() -> int:
        await last.wait()
        return 2

    async def releasing() -> int:
        last.set()
        return 3

    async with asyncio.timeout(10):
        assert [n async for n in in_order([(10, first), (5, waiting), (5, releasing)])] == [1, 2, 3]


async def test_stopping_a_bulk_import_early_leaves_no_running_task() -> None:
    never = asyncio.Event()
    started = 0

    async def wait() -> int:
        nonlocal started
        started += 1
        await never.wait()
        return 0

    async def at_once() -> int:
        return 1

    results = in_order([(1, at_once), *[(1, wait)] * 20])
    assert await anext(results) == 1
    await results.aclose()
    assert started < 20
    assert len(asyncio.all_tasks()) == 1


async def test_closing_the_import_iterator_cancels_running_imports(folder: list[Path]) -> None:
    class Slow(MemoryStore):
        commits = 0

        async def commit(self, commit: Commit) -> CommitResult:
            self.commits += 1
            if self.commits > 1:
                await asyncio.Event().wait()
            return await super().commit(commit)

    store = Slow(clock=ManualClock(), random=SeededRandom(1))
    invalid = [path for path in folder if path.stat().st_size < 20]
    found = import_files(store, [*invalid, *folder], clock=ManualClock(), random=SeededRandom(2))
    await anext(found)
    await found.aclose()
    assert len(asyncio.all_tasks()) == 1


async def test_file_is_closed_if_its_opening_is_cancelled(
    folder: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_open, is_closed = threading.Event(), threading.Event(), asyncio.Event()

    class Slow(FileContent):
        def __init__(self, path: Path) -> None:
            has_begun.set()
            may_open.wait(60)
            super().__init__(path)

        def close(self) -> None:
            super().close()
            is_closed.set()

    monkeypatch.setattr(bulk, "FileContent", Slow)
    opening = asyncio.create_task(opened(folder[0]))
    await asyncio.to_thread(has_begun.wait, 60)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    may_open.set()
    await asyncio.wait_for(is_closed.wait(), 60)


async def test_unexpected_error_of_a_bulk_import_is_raised(folder: list[Path]) -> None:
    class Closed(MemoryStore):
        async def commit(self, commit: Commit) -> CommitResult:
            raise RuntimeError("closed")

    with pytest.raises(RuntimeError, match="closed"):
        await outcomes(Closed(clock=ManualClock(), random=SeededRandom(1)), folder)
