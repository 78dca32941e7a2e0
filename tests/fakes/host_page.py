"""A page of another origin with the chat widget, under its own strict content policy."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Browser as Chromium
from playwright.async_api import BrowserContext, Locator, Page, ViewportSize, expect

from tests.fakes.served import Served, serving_app

PATIENCE_S = 60

expect.set_options(timeout=PATIENCE_S * 1_000)


@dataclass
class Host:
    """A server for one page.

    `script` is the tag of the widget. `token` creates the token that `/token` returns. `tokens`
    contains the tokens that `/token` returned.
    """

    policy: str = ""
    script: str = ""
    token: Callable[[], str] = str
    tokens: list[str] = field(default_factory=list[str])

    async def __call__(self, scope: Any, _: Any, send: Any) -> None:
        """Serve one request (ASGI)."""
        if scope["type"] != "http":
            return
        text, kind = self._page(), b"text/html; charset=utf-8"
        if scope["path"] == "/token":
            text, kind = self.token(), b"text/plain"
            self.tokens.append(text)
        headers = [
            (b"content-type", kind),
            (b"content-security-policy", self.policy.encode()),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    def _page(self) -> str:
        return (
            "<!doctype html><html lang=en><meta charset=utf-8><title>Shop</title>"
            '<meta name=viewport content="width=device-width, initial-scale=1">'
            f"<main><h1>The shop</h1><p>Chairs and tables.</p></main>{self.script}</html>"
        )


@dataclass
class Visit:
    """A visitor's browser on the page."""

    page: Page
    context: BrowserContext
    host: Host
    url: str
    complaints: list[str] = field(default_factory=list[str])

    async def open(self, tag: str) -> None:
        """Load the page with the script `tag`, and open the chat."""
        self.host.script = tag
        await self.page.goto(self.url)
        await self.page.get_by_role("button", name="Open: Chat").click()

    async def say(self, text: str) -> None:
        """Send `text` with the keyboard."""
        await self.page.get_by_label("Your message").fill(text)
        await self.page.keyboard.press("Enter")

    @property
    def said(self) -> Locator:
        """The messages that the chat shows."""
        return self.page.locator(".log .message")

    async def texts(self) -> list[str]:
        """Return the texts of the messages without the names of their authors."""
        return [text.split(":\n", 1)[-1].strip() for text in await self.said.all_inner_texts()]


@asynccontextmanager
async def visiting(
    chromium: Chromium, server: Served, size: tuple[int, int] = (1280, 800), scheme: Any = "light"
) -> AsyncGenerator[Visit]:
    """Serve a page of another origin and open it in Chromium."""
    host = Host(f"default-src 'none'; script-src {server.url}; connect-src 'self' {server.url}")
    window: ViewportSize = {"width": size[0], "height": size[1]}
    async with (
        serving_app(host) as url,
        await chromium.new_context(viewport=window, color_scheme=scheme) as context,
    ):
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_S * 1_000)
        found = Visit(page, context, host, url)
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("dialog", lambda each: found.complaints.append(f"dialog {each.message}"))
        yield found
