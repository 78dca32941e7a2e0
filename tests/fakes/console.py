"""A browser that is signed in to the console of a server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from perdure.apps.server.access.sign_in import SignIn
from perdure.client.clock import SystemClock
from tests.fakes.served import Served

WIDE = (1440, 900)
NARROW = (390, 844)
PATIENCE_S = 60

expect.set_options(timeout=PATIENCE_S * 1_000)


@dataclass
class Browser:
    """A page and the errors of its scripts."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list[str])

    async def see(self, text: str) -> None:
        """Wait until the page shows `text`."""
        await self.page.get_by_text(text).first.wait_for()

    async def open(self, place: str) -> None:
        """Open a view of the console, such as ``sessions``."""
        await self.page.goto("about:blank")
        await self.page.goto(f"{self.url}/#/{place}")
        await self.page.wait_for_selector(".rail")

    async def reach(self, there: Callable[[str], bool]) -> None:
        """Wait until the page's address satisfies `there`.

        The wait runs no script in the page, because the console forbids foreign scripts.
        """
        await self.page.wait_for_url(there, wait_until="commit")

    async def settle(self) -> None:
        """Wait until the view has loaded its data."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.page.locator("p.waiting").count():  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)


@asynccontextmanager
async def browsing(
    chromium: Chromium,
    server: Served,
    size: tuple[int, int] = WIDE,
    scheme: Any = "light",
) -> AsyncGenerator[Browser]:
    """Open the console of `server` in a new context of Chromium, signed in."""
    codes = SignIn(server.tokens, SystemClock().now_ms, os.urandom)
    token = codes.by_code(codes.code())
    async with await chromium.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
    ) as context:
        await context.add_cookies([{"name": "perdure_session", "value": token, "url": server.url}])
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_S * 1_000)
        found = Browser(page, server.url)
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on(
            "console",
            lambda said: found.complaints.append(said.text) if said.type == "error" else None,
        )
        await page.goto(f"{server.url}/")
        await page.wait_for_selector(".rail")
        try:
            yield found
        except Exception as error:
            shown = await page.locator("body").inner_text()
            error.add_note(f"{page.url} showed:\n{shown}\nerrors: {found.complaints}")
            raise
