"""Signing in to the console: one-time addresses, and tokens of each role."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import expect

from perdure.apps.server.access.sign_in import SignIn
from perdure.apps.server.access.tokens import TokenFile
from perdure.client.clock import SystemClock
from perdure.server import Role
from tests.fakes.console import browsing
from tests.fakes.served import served

pytestmark = pytest.mark.full_only


async def test_console_explains_that_a_sign_in_address_works_once(
    tmp_path: Path, chromium: Chromium
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


@pytest.mark.all_only
@pytest.mark.parametrize("role", ["read", "write"])
async def test_console_disables_controls_that_the_role_is_not_allowed_to_use(
    tmp_path: Path, chromium: Chromium, role: Role
) -> None:
    async with served(tmp_path, ["hi"]) as server, browsing(chromium, server) as browser:
        session = await server.said("hello")
        page = browser.page
        await page.context.clear_cookies()
        await page.goto("about:blank")
        await page.goto(f"{server.url}/#/sessions")
        await page.get_by_label("Token").fill(server.token(role))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("button", name="New session")).to_be_enabled(
            enabled=role == "write"
        )
        await browser.open(f"sessions/{session}")  # a reload finds the role again
        await page.locator(".tree-row").first.click()
        names = ("Rename", "Compact", "End", "Fork here")
        for button in (page.get_by_role("button", name=name, exact=True) for name in names):
            await expect(button).to_be_enabled(enabled=role == "write")
            why = "This needs a token with the role write; yours has the role read."
            if role == "read":
                await expect(button).to_have_attribute("title", why)
        field = page.get_by_label("Message", exact=True)
        await expect(field).to_have_count(0 if role == "read" else 1)
        await browser.open("store")
        verify = page.get_by_role("button", name="Verify")
        await expect(verify).to_be_disabled()
        why = f"This needs a token with the role admin; yours has the role {role}."
        await expect(verify).to_have_attribute("title", why)
