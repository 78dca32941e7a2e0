"""The cost and the result of an append after another process committed to the same file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from perdure.errors import LeaseLost
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.messages import user
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.raw_database import raw_database
from tests.fakes.streams import S, create, say
from tests.integration.sqlite.conftest import Opener

Statements = list[str]


@pytest.fixture
async def store(open_store: Opener) -> SqliteStore:
    return await open_store(durability="full")


@pytest.fixture
async def statements(store: SqliteStore) -> Statements:
    """Return a list of the statements that the writer of `store` runs from now on."""
    ran: Statements = []
    await create(store, S)
    await say(store, "first")

    def traced(_: object, sql: str, __: object) -> bool:
        ran.append(" ".join(sql.split()[:2]))
        return True

    def trace(tables: Tables) -> None:
        cast("Any", tables.db).set_exec_trace(traced)

    await store.handle.write(lambda tables, _: trace(tables))
    ran.clear()
    return ran


def touch(path: Path) -> None:
    """Commit something that does not affect the session."""
    with raw_database(path) as other:
        other.execute("UPDATE namespace SET name = name")


async def until_asked(statements: Statements) -> None:
    """Wait until the writer tries to lock the file."""
    async with asyncio.timeout(60):
        while "BEGIN IMMEDIATE" not in statements:  # noqa: ASYNC110 - said by another thread
            await asyncio.sleep(0)


async def test_append_after_commit_of_another_process_takes_two_more_statements(
    store: SqliteStore, path: Path, statements: Statements
) -> None:
    await say(store, "alone")
    alone, statements[:] = len(statements), []
    touch(path)

    await say(store, "beside others")

    # The version of the schema, and whether the session still stands so.
    assert len(statements) == alone + 2, statements
    assert [entry.seq for entry in await store.entries(S)] == [0, 1, 2]


async def test_append_sees_commits_of_other_processes(
    store: SqliteStore, path: Path, statements: Statements
) -> None:
    lease = await store.acquire_lease(S, "me", 1_000)
    await say(store, "mine")
    with raw_database(path) as other:
        other.execute("UPDATE stream SET epoch = epoch + 1, owner = 'they'")

    write = Write(stream=S, entries=(new_tree(user("late")),), lease=lease)
    with pytest.raises(LeaseLost):
        await store.commit(Commit(writes=(write,), at=1))
    assert "SELECT s.no," in statements


async def test_cached_session_stays_correct_after_many_other_commits(
    store: SqliteStore, path: Path, statements: Statements
) -> None:
    others = [StreamId(f"other-{number}") for number in range(5)]
    for stream in others:
        await create(store, stream)
    for number in range(4):
        for stream in (S, *others):
            touch(path)
            await say(store, f"{stream} {number}", stream=stream)

    assert (await store.maintenance.verify()).problems == ()
    assert [(await store.state(stream)).head for stream in (S, *others)] == [4, *[3] * 5]
    assert statements


async def test_commits_during_file_lock_share_one_transaction(
    store: SqliteStore, path: Path, statements: Statements
) -> None:
    with raw_database(path) as other:
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(say(store, "first of them"))
        await until_asked(statements)
        others = [asyncio.create_task(say(store, f"beside it {number}")) for number in range(5)]
        await asyncio.sleep(0)  # they have asked
        other.execute("COMMIT")
    await asyncio.gather(first, *others)

    assert statements.count("COMMIT") == 1
    assert (await store.state(S)).head == 6
