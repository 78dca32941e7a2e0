"""The cluster in the console, only for the role admin: workers, queues, and stuck turns."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from playwright.async_api import Browser as Chromium

from perdure import Agent, Runtime
from tests.fakes.console import NARROW, WIDE, browsing
from tests.fakes.postgres import PostgresServer
from tests.fakes.served import Served, served

pytestmark = pytest.mark.full_only

LONELY = Agent("lonely", model="scripted:echo")

_WORKER = """
INSERT INTO perdure.worker (id, owner, version, protocol, namespaces, agents, slots, running)
VALUES ('w-1', 'pid 7 on <i>host</i>', '0.1', 2, '{default}', '{desk}', 32, 3),
    ('w-2', 'pid 8 on host', '0.1', 2, '{rivals}', '{rival}', 32, 0),
    ('w-3', 'pid 9 on host', '0.1', 2, '{default,rivals}', '{desk,rival}', 32, 0)
"""


@asynccontextmanager
async def serving(tmp_path: Path, postgres: PostgresServer) -> AsyncGenerator[Served]:
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


@pytest.mark.parametrize(
    "size", [WIDE, pytest.param(NARROW, marks=pytest.mark.all_only)], ids=["wide", "narrow"]
)
async def test_cluster_view_shows_workers_queues_and_stuck_turns(
    tmp_path: Path, postgres: PostgresServer, chromium: Chromium, size: tuple[int, int]
) -> None:
    async with (
        serving(tmp_path, postgres) as server,
        browsing(chromium, server, size) as browser,
    ):
        await browser.open("cluster")
        await browser.see("1 turn waits for a worker with the agent lonely")
        await browser.page.locator("td", has_text="none: stuck").wait_for()
        await browser.page.locator("td", has_text="pid 7 on <i>host</i>").wait_for()
        assert await browser.page.locator(".state.good", has_text="alive").count() == 2
        width = await browser.page.evaluate("document.documentElement.scrollWidth")
        assert width <= size[0]
        assert browser.complaints == []


async def test_cluster_view_needs_the_admin_role_and_a_shared_store(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    async with serving(tmp_path, postgres) as server:
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
