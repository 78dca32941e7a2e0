"""Workers that start while their server is not running."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import perdure
from perdure import Runtime
from tests.fakes.postgres import PostgresServer, serving
from tests.fakes.worker_program import HELPER, STANDS_STILL_AT
from tests.fakes.workers import WorkerProcess, effect_of, until

pytestmark = pytest.mark.full_only

WAITS = "waiting for the store: postgresql://"
STRANGER: Final = "stranger"


@pytest.fixture
def own() -> Iterator[PostgresServer]:
    """A server that a test can kill."""
    with serving(is_own=True) as server:
        yield server


async def printed(worker: WorkerProcess, text: str) -> None:
    """Wait until the worker has printed `text`."""

    async def is_there() -> bool:
        return worker.has_printed(text)

    await until(is_there)


@pytest.mark.all_only
async def test_worker_waits_for_a_server_that_starts_later(
    own: PostgresServer, folder: Path
) -> None:
    address = own.new_database()
    own.kill()
    worker = WorkerProcess(address, folder, "runtime", is_forked=True)
    try:
        await printed(worker, WAITS)
        own.start()
        async with (
            perdure.open(address) as store,
            Runtime(store, agents=[HELPER], runner="workers") as runtime,
        ):
            assert "hello" in (await (await runtime.start(HELPER)).send("hello")).text
        assert "the store is available" in worker.log.read_text()
        worker.send(signal.SIGTERM)
        assert worker.end() == 0
    finally:
        worker.kill()


async def test_worker_that_waits_for_its_server_ends_at_sigterm(folder: Path) -> None:
    worker = WorkerProcess(
        "postgresql://nobody@127.0.0.1:9/nothing", folder, "runtime", is_forked=True
    )
    try:
        await printed(worker, WAITS)
        worker.send(signal.SIGTERM)
        assert worker.end() == 0
    finally:
        worker.kill()
    assert worker.log.read_text().count(WAITS) == 1


@pytest.mark.all_only
async def test_worker_with_a_missing_database_waits_until_the_database_is_created(
    own: PostgresServer, folder: Path
) -> None:
    worker = WorkerProcess(own.address_of("later"), folder, "runtime", is_forked=True)
    try:
        await printed(worker, WAITS)
        own.execute(own.address, "CREATE DATABASE later")
        await printed(worker, "it takes queued turns")
        worker.send(signal.SIGTERM)
        assert worker.end() == 0
    finally:
        worker.kill()


@pytest.mark.all_only
async def test_worker_without_rights_on_the_schema_exits_with_an_error(
    own: PostgresServer, folder: Path
) -> None:
    address = own.new_database()
    async with perdure.open(address):
        own.execute(address, f"CREATE ROLE {STRANGER} LOGIN")
    worker = WorkerProcess(
        address.replace("postgres@", f"{STRANGER}@"), folder, "runtime", is_forked=True
    )
    try:
        assert worker.end() == 1
    finally:
        worker.kill()
    (line,) = worker.log.read_text().splitlines()
    assert line.startswith(f"perdure: postgresql://{STRANGER}@")
    assert "permission denied" in line
    assert "grant the role perdure_app to the user" in line


@pytest.mark.all_only
async def test_worker_without_the_right_to_create_the_schema_exits_with_an_error(
    own: PostgresServer, tmp_path: Path
) -> None:
    address = own.new_database()
    async with perdure.open(address):
        own.execute(address, f"CREATE ROLE {STRANGER} LOGIN IN ROLE perdure_app")
    worker = WorkerProcess(
        address.replace("postgres@", f"{STRANGER}@"), tmp_path, "runtime", is_forked=True
    )
    try:
        assert worker.end() == 1
    finally:
        worker.kill()
    (line,) = worker.log.read_text().splitlines()
    assert line.startswith(f"perdure: postgresql://{STRANGER}@")
    assert "permission denied for database" in line


@pytest.mark.all_only
@pytest.mark.parametrize(
    ("factory", "halt"),
    [
        ("halting", "halted"),
        ("halting_in_launch", STANDS_STILL_AT[0]),
        ("halting_in_registration", STANDS_STILL_AT[1]),
    ],
)
async def test_worker_waits_if_the_server_stops_during_the_worker_start(
    own: PostgresServer, tmp_path: Path, factory: str, halt: str
) -> None:
    address = own.new_database()
    worker = WorkerProcess(address, tmp_path, factory, is_forked=True)
    try:
        await effect_of(tmp_path, halt)
        own.kill()
        (tmp_path / "go").touch()
        await printed(worker, WAITS)
        own.start()
        await printed(worker, "it takes queued turns")
        async with (
            perdure.open(address) as store,
            Runtime(store, agents=[HELPER], runner="workers") as runtime,
        ):
            assert "hello" in (await (await runtime.start(HELPER)).send("hello")).text
        worker.send(signal.SIGTERM)
        assert worker.end() == 0
    finally:
        worker.kill()


@pytest.mark.all_only
async def test_worker_whose_server_stops_during_its_start_ends_at_sigterm(
    own: PostgresServer, tmp_path: Path
) -> None:
    worker = WorkerProcess(own.new_database(), tmp_path, "halting", is_forked=True)
    try:
        await effect_of(tmp_path, "halted")
        own.kill()
        (tmp_path / "go").touch()
        await printed(worker, WAITS)
        worker.send(signal.SIGTERM)
        assert worker.end() == 0
    finally:
        worker.kill()
