"""The cluster in the console, only for the role admin: workers, queues, and stuck turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium

from tests.fakes.console import NARROW, WIDE, browsing
from tests.fakes.postgres import PostgresServer
from tests.integration.cluster.test_cluster_view import serving_cluster

pytestmark = [pytest.mark.all_only, pytest.mark.full_only]


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_cluster_view_shows_workers_queues_and_stuck_turns(
    tmp_path: Path, postgres: PostgresServer, chromium: Chromium, size: tuple[int, int]
) -> None:
    async with (
        serving_cluster(tmp_path, postgres) as server,
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
