"""The Flows view of the console in a real browser, on a real flow with a scripted model."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from tests.fakes.console import Browser, browsing
from tests.fakes.served_flows import serving_flows

pytestmark = pytest.mark.full_only


async def started(browser: Browser, folder: Path) -> None:
    """Start the workflow in the browser."""
    page = browser.page
    await browser.open("flows")
    await page.get_by_role("button", name="Start a flow").click()
    await page.get_by_label("Folder of the project").fill(str(folder))
    await page.get_by_label("Record folder").fill("record")
    await page.get_by_role("dialog").get_by_role("button", name="Start").click()
    await page.locator(".graph .node").first.wait_for()


async def test_person_runs_flow_in_browser(tmp_path: Path, chromium: str) -> None:
    async with serving_flows(tmp_path) as server, browsing(chromium, server) as browser:
        page = browser.page
        await started(browser, tmp_path)
        await page.locator(".node.waiting", has_text="owner-intake").wait_for()
        await page.get_by_label("Reply to owner-intake").fill("The night train")
        await page.keyboard.press("Enter")
        await page.locator(".node.completed", has_text="owner-intake").wait_for()
        await page.locator(".node.waiting", has_text="write").wait_for()
        await page.get_by_role("button", name="approve").click()
        await page.get_by_role("button", name="none").click()
        await browser.see("completed")
        assert await page.locator(".node.completed").count() == 3
        (state,) = await perdure.Flows(server.runtime).list()
        assert state.run.status == "completed"
        assert browser.complaints == []
