"""The context view of the console: exactly the model's input, and the entries that did not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium

import perdure
from tests.fakes.console import browsing
from tests.fakes.served import served

pytestmark = pytest.mark.full_only


@perdure.tool(effect="read")
def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order}"


@pytest.mark.all_only
async def test_context_view_shows_the_tools_and_options_sent_with_a_call(
    tmp_path: Path, chromium: Chromium
) -> None:
    agent = perdure.Agent("desk", model="scripted:desk", tools=[look_up], temperature=0.25)
    async with (
        served(tmp_path, ["one"], agents=[agent]) as server,
        browsing(chromium, server) as browser,
    ):
        session = await server.said("hello " * 50)
        await browser.open(f"sessions/{session}")
        page = browser.page
        await page.get_by_role("button", name="Context", exact=True).click()
        await page.get_by_role("spinbutton").fill("10")
        await server.http.patch(f"/v1/sessions/{session}", json={"title": "Renamed"})
        await browser.see("Renamed")  # the view was drawn again, and what was typed is there
        await page.keyboard.press("Tab")
        await browser.see("and the budget is 10")
        await browser.see("nothing else can be left out")
        await page.get_by_role("combobox").select_option(index=1)
        await page.locator("summary", has_text="tools").click()
        await browser.see("look_up: Look an order up.")
        await browser.see('"order"')
        await browser.see("temperature 0.25")
        assert browser.complaints == []
