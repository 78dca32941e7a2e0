"""The filters of the list of sessions in the console."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Route, expect

from perdure import user
from tests.fakes.console import browsing
from tests.fakes.served import served

pytestmark = pytest.mark.full_only


@pytest.mark.all_only
async def test_delayed_result_of_an_earlier_filter_is_ignored(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with served(tmp_path) as server:
        for name in ("ana", "bob"):
            await server.store.create(title=f"Session of {name}", subject=name)
        released = asyncio.Event()

        async def delay(route: Route) -> None:
            response = await route.fetch()
            await released.wait()
            await route.fulfill(response=response)

        async with browsing(chromium, server) as browser:
            page = browser.page
            await expect(page.locator(".session-row")).to_have_count(2)
            await page.route("**/v1/sessions?*subject=ana*", delay)
            person = page.get_by_label("Person")
            async with page.expect_request("**/v1/sessions?*subject=ana*"):
                await person.fill("ana")
            await person.fill("bob")
            await expect(page.locator(".session-row")).to_contain_text(["Session of bob"])
            released.set()
            await browser.settle()
            await asyncio.sleep(0.3)
            await expect(page.locator(".session-row")).to_contain_text(["Session of bob"])
            await expect(page.locator(".session-row")).to_have_count(1)
            assert browser.complaints == []


@pytest.mark.all_only
async def test_console_filter_matches_part_of_a_value_and_suggests_values(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with served(tmp_path) as server:
        for name in ("Ana Lee", "ana", "bob"):
            made = await server.store.create(title=f"Session of {name}", subject=name)
            await made.append(user(f"The heron of {name}"))
        async with browsing(chromium, server) as browser:
            page = browser.page
            await expect(page.locator(".session-row")).to_have_count(3)
            person = page.get_by_label("Person")
            await person.fill("AN")
            await expect(page.locator(".session-row")).to_have_count(2)
            values = page.locator("#values-subject option")
            await expect(values).to_have_count(3)
            assert await values.nth(0).get_attribute("value") == "Ana Lee"
            await page.get_by_label("Search everything said").fill("heron")
            await expect(page.locator(".hit-row")).to_have_count(2)
            await person.fill("bob")
            await expect(page.locator(".hit-row")).to_contain_text(["The heron of bob"])
            await expect(page.locator(".hit-row")).to_have_count(1)
            await person.fill("nobody")
            await browser.see("in the sessions of these filters")
            await page.get_by_label("Search everything said").fill("")
            await browser.see("No session matches these filters.")
            assert browser.complaints == []
