"""Stores behind a real PgBouncer in transaction mode, whose clients share one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

import perdure
from perdure.errors import ConfigError, StoreUnavailable
from perdure.session.ids import StreamId
from perdure.stores.postgres.address import route_of
from tests.conformance.store.building import append, create, said
from tests.fakes.pooler import Pooler, pooling
from tests.fakes.postgres import PostgresServer
from tests.integration.postgres.conftest import Open

pytestmark = pytest.mark.full_only


@pytest.fixture
def pooler(postgres: PostgresServer) -> Iterator[Pooler]:
    with pooling(postgres) as found:
        yield found


async def test_sessions_of_two_namespaces_share_a_connection_and_stay_separate(
    pooler: Pooler, address: str
) -> None:
    pooled = pooler.address_of(address)
    async with (
        await perdure.open(pooled, namespace="one") as one,
        await perdure.open(pooled, namespace="two") as two,
    ):
        ours, theirs = await one.create(id="ours"), await two.create(id="theirs")
        for turn in range(20):
            await asyncio.gather(
                ours.append(perdure.user(f"falcon {turn}")),
                theirs.append(perdure.user(f"heron {turn}")),
            )
        assert [info.id for info in await one.recent()] == ["ours"]
        assert [info.id for info in await two.recent()] == ["theirs"]
        assert (await ours.messages())[-1].text == "falcon 19"
        assert await one.search("heron") == []
        assert len(await two.search("heron")) > 0
        await two.erase("theirs")
        assert await two.recent() == []
        assert len(await (await one.open("ours")).messages()) == 20


async def test_change_wakes_a_watcher_of_another_handle(pooler: Pooler, address: str) -> None:
    pooled = pooler.address_of(address)
    async with await perdure.open(pooled) as one, await perdure.open(pooled) as two:
        session = await one.create(id="s")
        seen: list[str] = []

        async def watch() -> None:
            async for event in (await two.open("s")).watch(after=-1):
                seen.append(event.type)
                if seen.count("agent:message") == 3:
                    return

        watching = asyncio.create_task(watch())
        for text in ("a", "b", "c"):
            await session.append(perdure.user(text))
        await asyncio.wait_for(watching, 60)
        assert seen.count("agent:message") == 3


async def test_transaction_leaves_no_setting_on_the_shared_connection(
    pooler: Pooler, address: str, open_store: Open
) -> None:
    store = await open_store(pooler.address_of(address), namespace="secret")
    await create(store, "s")
    await append(store, StreamId("s"), said("hello"))
    plain = pooler.address_of(address, is_direct_named=False)
    names = ("perdure.namespace", "perdure.is_set_up", "role", "enable_seqscan", "lock_timeout")
    with psycopg.connect(plain, autocommit=True, prepare_threshold=None) as db:
        found = [
            db.execute("SELECT current_setting(%s, true)", (name,)).fetchone() for name in names
        ]
    assert [row[0] or "" for row in found if row] == ["", "", "none", "on", "0"]


async def test_pooler_without_the_address_of_its_server_is_rejected(
    pooler: Pooler, address: str
) -> None:
    with pytest.raises(StoreUnavailable, match=r"connection pooler.*\?direct=HOST:PORT"):
        await perdure.open(pooler.address_of(address, is_direct_named=False))


async def test_pooler_with_a_wrong_default_isolation_level_is_rejected(
    pooler: Pooler, address: str
) -> None:
    name = sql.Identifier(str(conninfo_to_dict(address)["dbname"]))
    setting = sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = {}")
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(setting.format(name, sql.Literal("serializable")))
        try:
            with pytest.raises(ConfigError, match="must be 'read committed', not 'serializable'"):
                await perdure.open(pooler.address_of(address))
        finally:
            db.execute(setting.format(name, sql.Literal("read committed")))


def test_split_pooler_address_keeps_all_other_parameters() -> None:
    kept = "options=-c%20statement_timeout%3D5s&application_name=my%20app"
    route = route_of(f"postgresql://u:se[cret]w@pool:6432/db?{kept}&hostaddr=10.0.0.5&direct=srv")
    pooled, direct = conninfo_to_dict(route.pooled), conninfo_to_dict(route.direct)
    assert direct.pop("host") == "srv"
    assert pooled.pop("hostaddr") == "10.0.0.5"
    assert (pooled.pop("host"), pooled.pop("port"), direct.pop("port")) == ("pool", "6432", "5432")
    assert direct == pooled
    assert (pooled["password"], pooled["application_name"]) == ("se[cret]w", "my app")
    assert pooled["options"] == "-c statement_timeout=5s"


def test_address_with_a_pooler_is_split_into_pooler_and_server_addresses() -> None:
    plain = "postgresql://me@pool:6432/db"
    assert not route_of(plain).has_pooler
    for option, place in (
        ("db.example:5433", ("db.example", "5433")),
        ("db.example", ("db.example", "5432")),
        ("[::1]:5433", ("::1", "5433")),
        ("%2Frun%2Fpg", ("/run/pg", "5432")),
    ):
        route = route_of(f"{plain}?sslmode=disable&direct={option}")
        direct = conninfo_to_dict(route.direct)
        assert (direct["host"], str(direct["port"])) == place, option
        assert direct["sslmode"] == "disable"
        pooled = conninfo_to_dict(route.pooled)
        assert (pooled["host"], str(pooled["port"])) == ("pool", "6432")
    for wrong in ("", "db:port", "::1", "a&direct=b"):
        with pytest.raises(ConfigError, match="direct=HOST:PORT"):
            route_of(f"{plain}?direct={wrong}")
