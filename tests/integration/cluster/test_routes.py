"""Namespaces in several databases, and one address for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import perdure
from perdure import Runtime
from perdure.apps.cli.exits import USAGE
from perdure.apps.cli.store_options import CommonOptions, nothing_found
from perdure.apps.maintenance.backup import back_up
from perdure.apps.maintenance.commands import planned_migration
from perdure.blocking import open as open_blocking
from perdure.errors import ConfigError, SessionNotFound, StoreUnavailable
from tests.acceptance.server.test_serve import PROGRAM, serving, signed_in
from tests.fakes.forked import Ended
from tests.fakes.forked_commands import run_command
from tests.fakes.postgres import PostgresServer
from tests.fakes.worker_program import HELPER
from tests.fakes.workers import workers

pytestmark = pytest.mark.full_only


@pytest.fixture(scope="module")
def second(postgres: PostgresServer) -> Iterator[str]:
    """The address of another database."""
    taken = postgres.take()
    yield taken
    postgres.give_back_of_workers(taken)


@pytest.fixture
def routes(address: str, second: str, tmp_path: Path) -> str:
    """An address with routes: namespace ``a`` is in `second`, ``c`` on an unreachable server."""
    file = tmp_path / "routes.toml"
    file.write_text(
        f"""
        default = "main"
        [databases.main]
        address = '{address}'
        [databases.big]
        address = '{second}'
        namespaces = ["a", "b"]
        [databases.away]
        address = 'postgresql://127.0.0.1:1/none'
        namespaces = ["c"]
        """
    )
    return f"routes:///{file}"


def sessions_in(address: str, namespace: str) -> set[str]:
    with psycopg.connect(address) as db:
        rows = db.execute("SELECT id FROM perdure.stream WHERE namespace = %s", (namespace,))
        return {row[0] for row in rows}


def place_in_big(routes: str, namespace: str) -> None:
    change_routes(routes, '"b"]', f'"b", "{namespace}"]')


def change_routes(routes: str, old: str, new: str) -> None:
    file = Path(routes.removeprefix("routes:///"))
    file.write_text(file.read_text().replace(old, new))


def perdure_command(*words: str) -> Ended:
    return run_command(words, {**os.environ, "LANG": "C.UTF-8"}, Path.cwd())


async def test_sessions_of_each_namespace_are_in_its_database(
    routes: str, address: str, second: str
) -> None:
    async with (
        perdure.open(routes, namespace="a") as there,
        perdure.open(routes) as here,
    ):
        await there.create(id="in-a")
        await here.create(id="in-default")
        assert [info.id for info in await there.recent()] == ["in-a"]
        assert [info.id for info in await here.recent()] == ["in-default"]
    assert sessions_in(second, "a") == {"in-a"}
    assert sessions_in(address, "default") >= {"in-default"}
    assert "in-a" not in sessions_in(address, "a")
    async with perdure.open(second, namespace="a") as directly:
        assert [info.id for info in await directly.recent()] == ["in-a"]


def test_routes_from_the_environment_variable_apply_to_programs_and_commands(
    routes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_STORE", routes)
    with open_blocking(namespace="b") as store:
        store.create(id="in-b")
    listed = perdure_command("sessions", "list", "--namespace", "b")
    assert "in-b" in listed.out.decode(), listed.err
    assert "in-b" not in perdure_command("sessions", "list").out.decode()


async def test_missing_session_is_reported_despite_an_unreachable_default_namespace(
    routes: str,
) -> None:
    for old, new in (('"main"', '"away"'), ('default = "away"', "")):  # unreachable; none
        change_routes(routes, old, new)
        options = CommonOptions(routes, "a")
        with pytest.raises(SessionNotFound) as caught:
            async with options.existing_store() as store:
                await store.find("zzyzx")
        assert type(caught.value) is SessionNotFound
        assert await nothing_found(routes, "a") == "Nothing found in the namespace a."


async def test_unreachable_database_does_not_affect_namespaces_of_other_databases(
    routes: str,
) -> None:
    with pytest.raises(StoreUnavailable):
        await perdure.open(routes, namespace="c")
    async with perdure.open(routes, namespace="a") as store:
        assert isinstance(await store.recent(), list)


async def test_worker_serves_the_namespaces_of_one_database(
    routes: str, second: str, folder: Path
) -> None:
    async with workers(1, routes, folder, "--namespace", "a", "--also", "b") as (worker,):
        for namespace in ("a", "b"):
            async with (
                perdure.open(routes, namespace=namespace) as store,
                Runtime(store, agents=[HELPER], runner="workers") as runtime,
            ):
                assert "hello" in (await (await runtime.start(HELPER)).send("hello")).text
        status = perdure_command("cluster", "status", "--store", routes, "--namespace", "a")
        assert worker.id in status.out.decode(), status.err
        other = perdure_command("cluster", "status", "--store", routes)
        assert worker.id not in other.out.decode()


def test_worker_of_namespaces_in_two_databases_is_rejected(routes: str) -> None:
    factory = "tests.fakes.worker_program:runtime"
    ended = perdure_command("worker", factory, "--store", routes, "--also", "a")
    assert ended.code == USAGE
    assert "'default' and 'a' are in different databases" in ended.err.replace("\n", " ")
    assert "start a worker for each" in ended.err.replace("\n", " ")


async def test_server_uses_the_database_to_which_its_namespace_is_routed(
    routes: str, second: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    async with (
        serving(tmp_path, "--namespace", "b", PERDURE_STORE=routes) as (_, url),
        signed_in(url) as client,
    ):
        body = {"text": "Where is it?", "sessionId": "served"}
        (await client.post("/v1/messages", json=body)).raise_for_status()
    assert "served" in sessions_in(second, "b")


async def test_namespace_is_moved_by_a_copy_and_a_changed_route(
    routes: str, address: str, second: str
) -> None:
    async with perdure.open(routes, namespace="moves") as store:
        session = await store.create(id="moved")
        await session.append(perdure.user("take me along"))
    copied = perdure_command(
        *("store", "copy", second, "--store", routes, "--namespace", "moves"),
    )
    assert copied.code == 0, copied.err
    place_in_big(routes, "moves")

    async with perdure.open(routes, namespace="moves") as store:
        session = await store.open("moved")
        assert [message.text for message in await session.messages()] == ["take me along"]
        await session.append(perdure.user("here I am"))
    async with perdure.open(address, namespace="moves") as old:
        assert len(await (await old.open("moved")).messages()) == 1


async def test_backup_copies_the_database_to_which_the_namespace_is_routed(
    routes: str, tmp_path: Path
) -> None:
    async with perdure.open(routes, namespace="a") as store:
        await store.create()
    manifest = await back_up(routes, tmp_path / "backup", namespace="a")
    assert manifest.backend in {"postgres", "postgresql"}
    assert manifest.streams > 0
    with pytest.raises(ConfigError, match="several databases: name the address of one"):
        await planned_migration(routes)
