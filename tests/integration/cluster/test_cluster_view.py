"""Workers, queues and stuck turns over HTTP, for the role admin of a shared store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from perdure import Agent, Runtime
from tests.fakes.postgres import PostgresServer
from tests.fakes.served import Served, served

LONELY = Agent("lonely", model="scripted:echo")

_WORKER = """
INSERT INTO perdure.worker (id, owner, version, protocol, namespaces, agents, slots, running)
VALUES ('w-1', 'pid 7 on <i>host</i>', '0.1', 2, '{default}', '{desk}', 32, 3),
    ('w-2', 'pid 8 on host', '0.1', 2, '{rivals}', '{rival}', 32, 0),
    ('w-3', 'pid 9 on host', '0.1', 2, '{default,rivals}', '{desk,rival}', 32, 0)
"""


@asynccontextmanager
async def serving_cluster(tmp_path: Path, postgres: PostgresServer) -> AsyncGenerator[Served]:
    """Serve a store with one worker, and a turn that no worker can run."""
    address = postgres.new_database()
    async with served(tmp_path, address=address) as made:
        async with Runtime(made.store, agents=[LONELY], runner="workers") as runtime:
            turn = (await runtime.start(LONELY)).send("hello")
            await turn.stored()
            await turn.stop()
        with psycopg.connect(address, autocommit=True) as db:
            db.execute(_WORKER)
        yield made
    postgres.drop(address)


async def test_cluster_view_needs_the_admin_role_and_a_shared_store(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    async with serving_cluster(tmp_path, postgres) as server:
        shown = (await server.http.get("/v1/cluster")).json()
        worker, shared = shown["workers"]
        assert (worker["id"], worker["state"], worker["running"]) == ("w-1", "alive", 3)
        assert (worker["agents"], shared["id"], shared["agents"]) == (["desk"], "w-3", [])
        assert "rival" not in str(shown)
        (queue,) = shown["queues"]
        assert (queue["agent"], queue["waiting"], queue["servedBy"]) == (LONELY.id, 1, [])
        writer = await server.client("write")
        assert (await writer.get("/v1/cluster")).json()["code"] == "role_missing"
        ana = await server.client("admin", subject="ana")
        assert (await ana.get("/v1/cluster")).status_code == 403
        (tmp_path / "alone").mkdir()
        async with served(tmp_path / "alone") as alone:
            empty = (await alone.http.get("/v1/cluster")).json()
        assert empty == {"isShared": False, "workers": [], "queues": [], "counts": {}}
