"""Wake-ups after commits of this process and of others."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from perdure.errors import StoreUnavailable
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.wakeups import Changes
from tests.fakes.streams import S, create, say
from tests.integration.sqlite.conftest import Opener

DEADLINE_S = 60


async def woken(changes: Changes) -> None:
    await asyncio.wait_for(anext(changes), DEADLINE_S)


async def woken_until(store: SqliteStore, changes: Changes, head: int) -> None:
    """Wait for wake-ups until the head of the stream is `head`."""
    while (await store.state(S)).head < head:
        await woken(changes)


async def test_commit_of_this_process_wakes_watchers_immediately(store: SqliteStore) -> None:
    changes = store.changes()
    await create(store)
    await woken(changes)
    await say(store, "hello")
    await woken_until(store, changes, 0)


async def test_commit_of_another_process_wakes_watchers_soon(
    store: SqliteStore, path: Path
) -> None:
    await create(store)
    changes = store.changes()
    child = Path(__file__).parent / "children" / "append.py"
    command = [sys.executable, str(child), str(path), "20"]
    process = await asyncio.to_thread(subprocess.Popen, command)
    try:
        await woken_until(store, changes, 19)
    finally:
        assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0


async def test_commit_before_first_poll_is_not_missed(store: SqliteStore) -> None:
    changes = store.changes()
    await create(store)

    await woken(changes)


async def test_closing_the_store_ends_the_wait_for_changes(open_store: Opener) -> None:
    store = await open_store()
    changes = store.changes()
    seen = asyncio.ensure_future(_all(changes))
    await asyncio.sleep(0)
    await store.close()

    await asyncio.wait_for(seen, DEADLINE_S)
    with pytest.raises(StopAsyncIteration):
        await anext(changes)


async def _all(changes: Changes) -> None:
    async for _ in changes:
        pass


async def test_watch_that_begins_after_a_file_move_is_woken(store: SqliteStore, path: Path) -> None:
    await asyncio.to_thread(path.rename, path.with_suffix(".moved"))

    await woken(store.changes())


async def test_watchers_are_woken_if_the_store_file_is_moved(
    store: SqliteStore, path: Path
) -> None:
    await create(store)
    changes = store.changes()
    try:
        async with asyncio.timeout(0.5):  # the thread polls the file
            async for _ in changes:
                await store.state(S)
    except TimeoutError:
        await asyncio.to_thread(path.rename, path.with_suffix(".moved"))

    await woken(changes)
    with pytest.raises(StoreUnavailable, match="was removed while it was open"):
        await store.state(S)


async def test_store_is_not_polled_without_watchers(store: SqliteStore) -> None:
    changes = store.changes()
    assert _is_asking()
    del changes
    gc.collect()

    await asyncio.to_thread(_wait_until_nobody_asks)
    await woken_by_a_new_watch(store)


async def woken_by_a_new_watch(store: SqliteStore) -> None:
    changes = store.changes()
    await create(store)
    await woken(changes)


def _is_asking() -> bool:
    return any(thread.name == "perdure-watch" for thread in threading.enumerate())


def _wait_until_nobody_asks() -> None:
    deadline = time.monotonic() + DEADLINE_S
    while _is_asking():
        assert time.monotonic() < deadline
        time.sleep(0.01)
