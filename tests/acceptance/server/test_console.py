"""The console in a real browser, against a real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import expect

import perdure
from perdure import assistant, thinking, tool_call
from perdure.session.messages import Usage
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.policy import Retention
from tests.fakes.console import NARROW, WIDE, browsing
from tests.fakes.served import served

pytestmark = pytest.mark.full_only

VIEWS = ("sessions", "flows", "inbox", "memory", "usage", "store", "cluster")

REFUNDS: list[int] = []


@perdure.tool(effect="external", needs_approval=True)
def refund(number: int) -> str:
    """Give the money for an order back."""
    REFUNDS.append(number)
    return f"refunded {number}"


DESK = perdure.Agent("desk", model="scripted:desk", tools=[refund])
ANSWERS = [
    assistant(thinking("The order is broken."), tool_call("c1", "refund", {"number": 1041})),
    "It is **refunded**.",
]


async def test_console_supports_conversation_and_approval_by_keyboard(
    tmp_path: Path, chromium: Chromium
) -> None:
    REFUNDS.clear()
    async with (
        served(tmp_path, ANSWERS, agents=[DESK]) as server,
        browsing(chromium, server) as browser,
    ):
        page = browser.page
        await page.get_by_role("button", name="New session").click()
        await page.get_by_label("Message", exact=True).fill("Refund order 1041")
        await page.keyboard.press("Enter")
        await browser.see("May refund run?")
        await page.keyboard.press("Escape")
        await page.keyboard.press("g")
        await page.keyboard.press("i")
        await page.locator(".question:focus").wait_for()
        await page.keyboard.press("1")
        await browser.see("Nothing waits for you")
        await page.go_back()
        await page.locator(".prose strong", has_text="refunded").wait_for()
        assert REFUNDS == [1041]
        (info,) = await server.store.recent()
        session = await server.store.open(info.id)
        said = [message.text for message in await session.messages() if message.text]
        shown = await page.locator(".message .prose").all_inner_texts()
        assert said[0] in shown
        assert "It is refunded." in shown
        assert browser.complaints == []


@pytest.mark.all_only
async def test_message_of_another_client_appears_without_reload(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with served(tmp_path, ["First answer", "Second answer"]) as server:
        session = await server.said("hello")
        async with browsing(chromium, server) as browser:
            await browser.open(f"sessions/{session}")
            await browser.see("First answer")
            handle = await server.store.open(session)
            await handle.append(perdure.user("From elsewhere"), perdure.assistant("Noted here"))
            await browser.see("Noted here")
            assert browser.complaints == []


@pytest.mark.all_only
async def test_console_switches_and_forks_branches(tmp_path: Path, chromium: Chromium) -> None:
    async with served(tmp_path, ["Answer one"]) as server:
        session = await server.said("Question")
        handle = await server.store.open(session)
        first = (await handle.path(kind="message"))[0]
        await handle.branch(first.id)
        await handle.append(perdure.assistant("Answer two"), perdure.user("Go on"))
        async with browsing(chromium, server) as browser:
            page = browser.page
            await browser.open(f"sessions/{session}")
            await browser.see("Answer two")
            await page.get_by_label("The branch before").click()
            await page.locator(".message", has_text="Answer one").wait_for()
            assert (await server.store.open(session)).leaf != handle.leaf
            row = page.locator(".tree-row", has_text="Question")
            await row.click()
            await page.get_by_role("button", name="Fork here").click()
            await browser.reach(lambda url: session not in url)
            assert len(await server.store.recent()) == 2
            assert browser.complaints == []


@pytest.mark.all_only
async def test_search_returns_results_during_typing(tmp_path: Path, chromium: Chromium) -> None:
    async with served(tmp_path, ["The heron flew"]) as server:
        session = await server.said("What flew?")
        async with browsing(chromium, server) as browser:
            await browser.page.keyboard.press("/")
            await browser.page.keyboard.type("hero")
            await browser.page.locator("mark", has_text="heron").click()
            await browser.reach(lambda url: f"#/sessions/{session}/" in url)
            await browser.page.locator(".message.target", has_text="The heron flew").wait_for()


BEYOND_RAIL = (
    "(() => { const r = document.querySelector('.rail'); return r.scrollWidth - r.clientWidth; })()"
)


@pytest.mark.all_only
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_every_console_view_fits_its_window(
    tmp_path: Path, chromium: Chromium, size: tuple[int, int]
) -> None:
    async with served(tmp_path, ["word " * 300]) as server:
        session = await server.said("x" * 400)
        async with browsing(chromium, server, size) as browser:
            for place in (*VIEWS, f"sessions/{session}", f"sessions/{session}?side=turns"):
                await browser.open(place)
                await browser.settle()
                width = await browser.page.evaluate("document.documentElement.scrollWidth")
                assert width <= size[0], place
                assert await browser.page.evaluate(BEYOND_RAIL) <= 0, place
                assert await browser.page.locator(".fault").count() == 0
            assert browser.complaints == []


@pytest.mark.all_only
async def test_costs_are_listed_and_summed_by_person(tmp_path: Path, chromium: Chromium) -> None:
    async with served(tmp_path) as server:
        session = await server.store.create(subject="<b>ana</b>")
        spent = Usage(10, 5, cost_microcents=250_000_000)
        await session.append(perdure.user("hi"), perdure.assistant("hello", usage=spent))
        async with browsing(chromium, server) as browser:
            page = browser.page
            await page.locator(".session-row .cost", has_text="2.50").wait_for()
            await browser.open("usage")
            await page.get_by_label("Group by").select_option(label="by person")
            await page.locator("td", has_text="<b>ana</b>").wait_for()
            await expect(page.locator(".chart rect")).to_have_count(1)  # another request
            await expect(page.locator(".chart")).to_have_attribute(
                "aria-label", re.compile(r"2\.50")
            )
            assert browser.complaints == []


@pytest.mark.all_only
async def test_store_view_verifies_and_lists_backups(tmp_path: Path, chromium: Chromium) -> None:
    async with (
        served(tmp_path, ["one"], address=f"sqlite:///{tmp_path}/store.db") as server,
        browsing(chromium, server) as browser,
    ):
        await server.said("hi")
        keeping = server.store.backend.retention
        await keeping.remember_backup(Backup("/backups/<b>first</b>", 1_000))
        await keeping.set_policy(Retention(max_idle_s=30 * 86_400))
        await browser.open("store")
        await browser.page.locator("td", has_text="/backups/<b>first</b>").wait_for()
        await browser.see("at most 30 days")
        await browser.see("No session is over a limit")
        await browser.page.get_by_role("button", name="Verify").click()
        await browser.page.locator(".state.good", has_text="no fault").wait_for()
        assert browser.complaints == []
