"""The commonest tasks in the console, by keyboard alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page

import perdure
from tests.fakes.console import Browser, browsing
from tests.fakes.console_store import ANSWERS, DESK, furnished
from tests.fakes.served import served

pytestmark = pytest.mark.all_only


@pytest.fixture
def _no_mouse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every use of the mouse fail."""

    async def refuse(*_: object, **__: object) -> None:
        raise AssertionError("this is to be done by keyboard")

    for name in ("click", "dblclick", "tap"):
        monkeypatch.setattr(f"playwright.async_api.Locator.{name}", refuse)
        monkeypatch.setattr(f"playwright.async_api.Page.{name}", refuse)


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


@pytest.mark.usefixtures("_no_mouse")
async def test_ten_most_frequent_console_tasks_need_no_mouse(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with served(
        tmp_path, [*ANSWERS, "Both are refunded.", "The second answer."], agents=[DESK]
    ) as server:
        session = await furnished(server)
        async with browsing(chromium, server) as browser:
            page = browser.page
            await approve_in_the_inbox(browser, page)
            await open_from_the_list(browser, page)
            await search_and_open_a_hit(browser, page)
            await go_with_the_palette(browser, page, session)
            await send_a_message(browser, page)
            await compare_branch_and_fork(server.store, browser, page, session)
            await begin_a_session(browser, page)
            await look_up_the_keys(page)
            assert browser.complaints == []


async def approve_in_the_inbox(browser: Browser, page: Page) -> None:
    await press(page, "g", "i")
    await page.locator(".question:focus").wait_for()
    await press(page, "1")
    await browser.see("Nothing waits for you")


async def open_from_the_list(browser: Browser, page: Page) -> None:
    await press(page, "g", "s")
    await browser.see("Question 3 about delivery")
    await press(page, "l", "j", "j", "k", "ArrowDown", "Enter")
    await page.locator(".message").first.wait_for()


async def search_and_open_a_hit(browser: Browser, page: Page) -> None:
    await press(page, "g", "s")
    await page.get_by_label("Search everything said").wait_for()
    await press(page, "/")
    await page.keyboard.type("bulbs")
    await page.locator("mark", has_text="bulbs").wait_for()
    await press(page, "Escape", "l", "j", "Escape")
    await browser.see("Question 3 about delivery")
    assert await page.get_by_label("Search everything said").input_value() == ""
    await press(page, "/")
    await page.keyboard.type("bulbs")
    await page.locator("mark", has_text="bulbs").wait_for()
    await press(page, "Escape", "l", "j", "Enter")
    await page.locator(".message.target", has_text="bulbs").wait_for()


async def go_with_the_palette(browser: Browser, page: Page, session: str) -> None:
    await press(page, "Control+k")
    await page.keyboard.type("My order")
    await page.locator("dialog.palette li", has_text="My order 1041").wait_for()
    await press(page, "Enter")
    await browser.reach(lambda url: session in url)
    await browser.see("Both are refunded.")


async def send_a_message(browser: Browser, page: Page) -> None:
    await press(page, "c")
    await page.keyboard.type("Thank you")
    await press(page, "Enter")
    await page.locator(".message .prose", has_text="The second answer.").wait_for()
    await press(page, "Escape")


async def compare_branch_and_fork(
    store: perdure.Store, browser: Browser, page: Page, session: str
) -> None:
    await press(page, "l", "Home")
    for _ in range(40):
        if await page.locator(".tree-row.off[aria-selected=true]").count():
            break
        await press(page, "j")
    await press(page, "d")
    dialog = page.get_by_role("dialog", name="Two branches")
    await dialog.get_by_role("region", name="Active branch").wait_for()
    await dialog.get_by_role("region", name="Chosen branch").wait_for()
    await press(page, "Escape")
    before = (await store.open(session)).leaf
    await press(page, "b")
    async with asyncio.timeout(60):
        while (await store.open(session)).leaf == before:
            await page.wait_for_timeout(20)
    await page.locator(".tree-row.leaf[aria-selected=true]").wait_for()
    await press(page, "f")
    await browser.reach(lambda url: session not in url)


async def begin_a_session(browser: Browser, page: Page) -> None:
    await press(page, "g", "s")
    await page.locator("button:enabled", has_text="New session").wait_for()
    await press(page, "n")
    await browser.reach(lambda url: "#/sessions/" in url)
    await page.get_by_label("Message", exact=True).wait_for()


async def look_up_the_keys(page: Page) -> None:
    await press(page, "?")
    await page.get_by_role("dialog", name="Keys").wait_for()
    await press(page, "Escape")
    await page.get_by_role("dialog", name="Keys").wait_for(state="detached")
