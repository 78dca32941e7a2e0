"""A headless Chromium under Playwright, for several pages that share nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, async_playwright

PATIENCE_S = 120


@asynccontextmanager
async def running(chromium: str) -> AsyncGenerator[Browser]:
    """Run the program `chromium` for the duration of the block."""
    async with async_playwright() as playwright:
        program = await playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            timeout=PATIENCE_S * 1_000,
        )
        try:
            yield program
        finally:
            await program.close()
