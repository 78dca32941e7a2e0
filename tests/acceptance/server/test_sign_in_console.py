"""Signing in to the console: one-time addresses, and tokens of each role."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.apps.server.access.sign_in import SignIn
from perdure.apps.server.access.tokens import TokenFile
from perdure.client.clock import SystemClock
from tests.fakes.console import browsing
from tests.fakes.served import served

pytestmark = pytest.mark.full_only


async def test_used_address_says_so_and_keeps_a_signed_in_browser(
    tmp_path: Path, chromium: str
) -> None:
    codes = SignIn(TokenFile(tmp_path / "tokens.json"), SystemClock().now_ms, os.urandom)
    async with (
        served(tmp_path, signing_in=codes) as server,
        browsing(chromium, server) as browser,
    ):
        page = browser.page
        address = f"{server.url}/#code={codes.code()}"
        await page.context.clear_cookies()
        for _ in range(2):
            await page.goto("about:blank")
            await page.goto(address)
            await page.locator(".rail").wait_for()
        await page.context.clear_cookies()
        await page.goto("about:blank")
        await page.goto(address)
        await browser.see("This address signs in once, within 15 minutes")
        await page.get_by_label("Token").fill(server.token())
        await page.get_by_role("button", name="Sign in").click()
        await page.locator(".rail").wait_for()
        await page.get_by_role("button", name="Sign out").click()
        await browser.see("Open the address that")
        assert await page.get_by_role("alert").count() == 0
