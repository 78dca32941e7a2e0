"""The usage in the console: its chart over time follows the selection, and hides no day."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import expect

from perdure import assistant, user
from perdure.client.clock import SystemClock
from perdure.session.messages import Usage
from tests.fakes.clock import ManualClock
from tests.fakes.console import browsing
from tests.fakes.served import Served, served

pytestmark = pytest.mark.full_only

CENT = 1_000_000


async def spend(server: Served, subject: str, model: str, cents: int | None) -> None:
    """Add a session of `subject` with one call of `model`."""
    session = await server.store.create(subject=subject)
    cost = None if cents is None else cents * CENT
    answer = assistant("hello", usage=Usage(1_000, 500, cost_microcents=cost))
    await session.append(user("hi"), msgspec.structs.replace(answer, model=model))


@pytest.mark.all_only
async def test_usage_chart_shows_the_chosen_group_and_marks_days_without_price(
    tmp_path: Path, chromium: Chromium
) -> None:
    clock = ManualClock(SystemClock().now_ms() - 3 * 86_400_000)
    async with served(tmp_path, clock=clock) as server:
        await spend(server, "ana", "house:large", 20)
        await spend(server, "bob", "house:small", 5)
        clock.advance(86_400)
        await spend(server, "ana", "house:own", None)
        clock.advance(86_400)
        await spend(server, "ana", "house:small", 10)
        async with browsing(chromium, server) as browser:
            page = browser.page
            await browser.open("usage")
            legend, bars = page.locator(".legend li"), page.locator(".chart rect")
            await expect(legend).to_contain_text(["house:large", "house:small", "house:own"])
            await expect(page.get_by_text("1 call has no price, on 1 day")).to_be_visible()
            await expect(page.locator(".chart rect.unpriced")).to_have_count(1)
            await expect(bars).to_have_count(4)
            await page.get_by_label("Measure").select_option("tokens")
            await expect(bars).to_have_count(4)
            await expect(page.get_by_label("6,000 tokens from")).to_be_visible()
            await page.get_by_label("Group by").select_option("subject")
            await expect(legend).to_contain_text(["ana", "bob"])
            await page.get_by_label("Period").select_option("7")
            await expect(legend).to_have_count(2)
            assert browser.complaints == []
