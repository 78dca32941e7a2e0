"""The accessibility of every view of the console, in both colour schemes and both widths."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser as Chromium

from tests.fakes.console import NARROW, WIDE, Browser, browsing
from tests.fakes.console_store import ANSWERS, DESK, furnished, places
from tests.fakes.served import served
from tests.fakes.served_flows import begun, flow_until, serving_flows, waits_for

pytestmark = pytest.mark.all_only

SERIOUS = ("serious", "critical")
LOOKS = [
    pytest.param(WIDE, "light", id="wide-light"),
    pytest.param(WIDE, "dark", id="wide-dark"),
    pytest.param(NARROW, "light", id="narrow-light"),
    pytest.param(NARROW, "dark", id="narrow-dark"),
]


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
async def test_console_views_have_no_serious_accessibility_fault(
    tmp_path: Path, chromium: Chromium, axe: str, size: tuple[int, int], scheme: str
) -> None:
    async with served(tmp_path, ANSWERS, agents=[DESK]) as server:
        session = await furnished(server)
        async with browsing(chromium, server, size, scheme) as browser:
            faults: dict[str, list[str]] = {}
            for place in places(session):
                await browser.open(place)
                await browser.settle()
                faults[place] = await serious_faults(browser, axe)
            await browser.page.keyboard.press("Control+k")
            await browser.page.locator("dialog.palette li").first.wait_for()
            faults["palette"] = await serious_faults(browser, axe)
            found = [f"{place}: {each}" for place, every in faults.items() for each in every]
            assert not found, "\n".join(found)
            assert browser.complaints == []


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
async def test_flow_views_have_no_serious_accessibility_fault(
    tmp_path: Path, chromium: Chromium, axe: str, size: tuple[int, int], scheme: str
) -> None:
    async with (
        serving_flows(tmp_path) as server,
        browsing(chromium, server, size, scheme) as browser,
    ):
        flow = await begun(server, tmp_path)
        await flow_until(server, flow, waits_for("prompt-human"))
        faults: list[str] = []
        for place in ("flows", f"flows/{flow}", f"flows/{flow}/owner"):
            await browser.open(place)
            await browser.settle()
            faults += [f"{place}: {each}" for each in await serious_faults(browser, axe)]
        width = await browser.page.evaluate("document.documentElement.scrollWidth")
        assert width <= size[0]
        assert not faults, "\n".join(faults)
        assert browser.complaints == []


async def test_planted_accessibility_fault_is_detected(
    tmp_path: Path, chromium: Chromium, axe: str
) -> None:
    async with served(tmp_path) as server, browsing(chromium, server) as browser:
        await browser.page.evaluate(
            "document.querySelector('main').append(document.createElement('button'))"
        )
        (fault,) = await serious_faults(browser, axe)
        assert fault.startswith("button-name")


async def serious_faults(browser: Browser, axe: str) -> list[str]:
    """The faults in the page that axe-core calls serious or critical, with the element of each."""
    await browser.page.evaluate(axe)
    # Without the elements that pass every rule: axe-core would describe them all.
    async with asyncio.timeout(60):
        found: dict[str, Any] = await browser.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']})"
        )
    return [
        f"{fault['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for fault in found["violations"]
        if fault["impact"] in SERIOUS
        for node in fault["nodes"]
    ]
