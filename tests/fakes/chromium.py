"""A headless Chromium under Playwright, for several pages that share nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Playwright, async_playwright

from tests.fakes.browser import ONE_RENDERER

PATIENCE_S = 120

_FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", *ONE_RENDERER)


class SharedChromium:
    """The Chromium of all tests; if it has ended, for example in a crash, the next one starts."""

    def __init__(self, playwright: Playwright) -> None:
        self._playwright = playwright
        self._program: Browser | None = None

    async def running(self, chromium: str) -> Browser:
        """Return the running Chromium; start the program `chromium` if there is none."""
        if self._program is None or not self._program.is_connected():
            self._program = await self._playwright.chromium.launch(
                executable_path=chromium,
                args=[*_FLAGS],
                timeout=PATIENCE_S * 1_000,
            )
        return self._program

    async def close(self) -> None:
        """End Chromium."""
        if self._program is not None:
            await self._program.close()


@asynccontextmanager
async def sharing() -> AsyncGenerator[SharedChromium]:
    """Share a Chromium for the duration of the block."""
    async with async_playwright() as playwright:
        shared = SharedChromium(playwright)
        try:
            yield shared
        finally:
            await shared.close()
