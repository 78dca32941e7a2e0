"""The Chromium that the tests of consoles share."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Error

pytestmark = pytest.mark.full_only


@pytest.mark.parametrize("turn", ["first", "second"])
async def test_test_after_a_crash_of_chromium_gets_a_new_chromium(
    chromium: Chromium, turn: str
) -> None:
    async with await chromium.new_context() as context:
        page = await context.new_page()
        assert await page.evaluate("turn => turn", turn) == turn
    session: Any = await chromium.new_browser_cdp_session()
    with suppress(Error):  # the connection ends before the answer
        await session.send("Browser.crash")
