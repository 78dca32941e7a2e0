"""Several processes at the quota of one namespace: never exceeded, and counted correctly."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from perdure.client.open import open as open_store
from perdure.client.store import Store
from perdure.session.info import StreamHeader
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.session_store import SessionStore
from tests.concurrency.children.quota_writer import S
from tests.fakes.postgres import PostgresServer
from tests.fakes.processes import Child, child
from tests.fakes.samples import ALL_ONLY

CHILD = Path(__file__).parent / "children" / "quota_writer.py"
PROCESSES = 4
TRIES = 40
LIMITS = {
    "entries": Quota(max_entries=101),
    "sessions": Quota(max_sessions=17),
    "bytes": Quota(max_bytes=9_001),
}
STORES = ("sqlite", "jsonl", "postgres")
CASES = [(store, limit) for store in STORES for limit in LIMITS]
PAIRS = [*zip(STORES, LIMITS, strict=True)]
"""The cases that `make test` runs: each store and each limit occurs in one of them."""


@pytest.fixture(params=STORES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("warm_postgres")
        taken = server.take()
        yield taken
        server.give_back(taken)
    else:
        yield f"{request.param}:///{tmp_path / 'shared'}"


@pytest.fixture
async def store(address: str) -> AsyncIterator[Store]:
    async with open_store(address) as opened:
        write = Write(stream=S, create=StreamHeader(S, 1))
        await opened.backend.commit(Commit(writes=(write,), at=1))
        yield opened


def limiting(store: Store) -> SessionStore:
    return store.backend


async def counted(address: str) -> Usage:
    """Return the usage of the namespace, counted by a new handle."""
    async with open_store(address) as fresh:
        backend = limiting(fresh)
        await backend.retention.set_quota(Quota())
        _, usage = await backend.retention.quota()
        entries = 0
        for each in await fresh.backend.maintenance.segment_states():
            entries += len(await fresh.backend.entries(each.stream))
    assert usage.entries == entries
    return usage


def is_within(usage: Usage, quota: Quota) -> bool:
    return (
        usage.sessions <= (quota.max_sessions or usage.sessions)
        and usage.entries <= (quota.max_entries or usage.entries)
        and usage.bytes <= (quota.max_bytes or usage.bytes)
    )


def begun(stack: ExitStack, address: str, name: str = "w") -> list[Child]:
    children = [
        stack.enter_context(child(CHILD, "fill", address, f"{name}{number}", TRIES))
        for number in range(PROCESSES)
    ]
    for each in children:
        each.tell()
    return children


def kept_by(each: Child) -> int:
    """Return the number of commits that a child reported as stored."""
    kept = 0
    while each.line() == "kept":
        kept += 1
    return kept


async def until_done(address: str, pids: list[int]) -> None:
    """Wait until a database server has ended the last calls of processes that were killed."""
    if not address.startswith("postgresql:"):
        return
    clients = [f"perdure (process {pid} on %" for pid in pids]
    asking = "SELECT FROM pg_stat_activity WHERE application_name LIKE ANY(%s)"
    async with (
        asyncio.timeout(60),
        await psycopg.AsyncConnection.connect(address, autocommit=True) as db,
    ):
        while (await db.execute(asking, (clients,))).rowcount:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("address", "limit"),
    [case if case in PAIRS else pytest.param(*case, marks=ALL_ONLY) for case in CASES],
    indirect=["address"],
)
async def test_processes_never_exceed_quota(store: Store, address: str, limit: str) -> None:
    quota = LIMITS[limit]
    await limiting(store).retention.set_quota(quota)
    with ExitStack() as stack:
        kept = [kept_by(each) for each in begun(stack, address)]

    _, usage = await limiting(store).retention.quota()
    assert usage.entries == 2 * sum(kept)
    assert is_within(usage, quota)
    assert 0 < sum(kept) < PROCESSES * TRIES
    assert (await store.backend.maintenance.verify()).problems == ()
    assert await counted(address) == usage


@pytest.mark.parametrize(
    ("rounds", "quota"),
    [
        ((3,), Quota(max_entries=10_000, max_bytes=900_001)),
        ((3,), Quota()),  # what is held is counted without a quota, too
        pytest.param((1, 4, 7), Quota(max_entries=10_000, max_bytes=900_001), marks=ALL_ONLY),
        pytest.param((1, 4, 7), Quota(), marks=ALL_ONLY),
    ],
)
async def test_quota_count_is_correct_after_kill(
    store: Store, address: str, rounds: tuple[int, ...], quota: Quota
) -> None:
    await limiting(store).retention.set_quota(quota)
    acknowledged = 0
    for stops_after in rounds:
        with ExitStack() as stack:
            children = begun(stack, address, f"round{stops_after}-")
            for each in children:
                for _ in range(stops_after):
                    assert each.line() == "kept"
            for each in children:
                os.kill(each.pid, signal.SIGKILL)
            acknowledged += sum(stops_after + kept_by(each) for each in children)
        await until_done(address, [each.pid for each in children])

    _, usage = await limiting(store).retention.quota()
    assert usage.entries >= 2 * acknowledged
    assert is_within(usage, quota)
    assert (await store.backend.maintenance.verify()).problems == ()
    assert await counted(address) == usage
