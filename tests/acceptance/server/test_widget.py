"""The chat widget in a page of another origin, in a real browser against a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Route, expect

from perdure.models.protocol import Delta, ModelInfo, ModelRequest, StreamEnd, TextDelta
from perdure.server import sign_visitor
from tests.fakes.host_page import Visit, visiting
from tests.fakes.served import Served, served

pytestmark = pytest.mark.full_only

EVIL = (
    "<img src=x onerror=alert(1)><script>alert(2)</script>"
    "[x](javascript:alert(3)) \"'><svg/onload=alert(4)>"
)
KEY = "pds_pub_" + "5" * 64


@dataclass
class Paced:
    """A model that streams `before`, waits for `go`, and streams `after`."""

    before: str
    after: str
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model, None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        yield TextDelta(self.before)
        await self.go.wait()
        yield TextDelta(self.after)
        yield StreamEnd("stop")


def tag(server: Served, visit: Visit, attributes: str = "") -> str:
    """Make a publishable token for the page, and return its script."""
    token = server.token("write", id="pub", agent="desk", origins=(visit.url,), signing_key=KEY)
    known = attributes or f'data-token="{token}"'
    return f'<script src="{server.url}/widget.js" data-agent="desk" {known}></script>'


async def said(server: Served) -> list[str]:
    """Return the texts in the log of the only session."""
    (info,) = await server.store.recent()
    await server.until(info.id, "idle")
    return [each.text for each in await (await server.store.open(info.id)).messages()]


async def test_widget_visitor_can_reload_the_page_during_an_answer(
    tmp_path: Path, chromium: Chromium
) -> None:
    model = Paced("One moment, ", "it is **sent**.")
    async with served(tmp_path, models=model) as server, visiting(chromium, server) as visit:
        await visit.open(tag(server, visit))
        await visit.say("Where is my order?")
        await visit.page.locator(".live").get_by_text("One moment,").wait_for()
        await visit.page.reload()
        await visit.page.locator(".live").get_by_text("One moment,").wait_for()
        model.go.set()
        await visit.page.locator(".log strong", has_text="sent").wait_for()
        assert await visit.texts() == ["Where is my order?", "One moment, it is sent."]
        assert await said(server) == ["Where is my order?", "One moment, it is **sent**."]
        assert visit.complaints == []


@pytest.mark.all_only
async def test_no_message_is_lost_or_repeated_after_an_offline_period(
    tmp_path: Path, chromium: Chromium
) -> None:
    model = Paced("One moment, ", "it is sent.")
    async with served(tmp_path, models=model) as server, visiting(chromium, server) as visit:
        await visit.open(tag(server, visit))
        await visit.say("Where is my order?")
        await visit.page.locator(".live").get_by_text("One moment,").wait_for()
        await visit.context.set_offline(True)
        await visit.page.get_by_text("No connection").wait_for()
        await visit.say("Hello?")
        await asyncio.sleep(1)
        model.go.set()
        await asyncio.sleep(1)
        await visit.context.set_offline(False)
        await expect(visit.said).to_have_count(4)
        texts = [
            "Where is my order?",
            "One moment, it is sent.",
            "Hello?",
            "One moment, it is sent.",
        ]
        assert await visit.texts() == texts
        await asyncio.sleep(1)
        assert await said(server) == texts
        assert await visit.texts() == texts


@pytest.mark.all_only
async def test_message_with_lost_response_is_stored_once(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with served(tmp_path, ["It is sent."]) as server, visiting(chromium, server) as visit:
        lost: list[str] = []

        async def lose(route: Route) -> None:
            if lost:
                await route.continue_()
                return
            response = await route.fetch()
            lost.append(await response.text())
            await route.abort()

        await visit.page.route("**/v1/messages", lose)
        await visit.open(tag(server, visit))
        await visit.say("Where is my order?")
        await expect(visit.said).to_have_count(2)
        assert len(lost) == 1
        assert await said(server) == ["Where is my order?", "It is sent."]


@pytest.mark.all_only
async def test_hostile_texts_are_shown_as_text(tmp_path: Path, chromium: Chromium) -> None:
    async with served(tmp_path, [EVIL]) as server, visiting(chromium, server) as visit:
        await visit.open(tag(server, visit))
        await visit.say(EVIL)
        await expect(visit.said).to_have_count(2)
        await asyncio.sleep(0.3)
        assert EVIL in (await visit.texts())[0]
        assert "onerror=alert(1)" in (await visit.texts())[1]
        assert (
            await visit.page.locator(
                ".message img, .message script, .message svg, .message a"
            ).count()
            == 0
        )
        assert visit.complaints == []


@pytest.mark.all_only
async def test_visitor_keeps_its_session_when_its_token_is_renewed(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with served(tmp_path, ["one", "two"]) as server, visiting(chromium, server) as visit:
        source = 'data-token-url="/token" data-session="shop-ana"'
        script = tag(server, visit, source)
        visit.host.token = lambda: sign_visitor(
            KEY, "shop-ana", now_s=time.time(), subject="ana", valid_s=3
        )
        await visit.open(script)
        await visit.say("hi")
        await expect(visit.said).to_have_count(2)
        await asyncio.sleep(4)
        await visit.say("again")
        await expect(visit.said).to_have_count(4)
        assert len(set(visit.host.tokens)) > 1
        (info,) = await server.store.recent()
        assert (info.id, info.subject) == ("shop-ana", "ana")


@pytest.mark.all_only
async def test_widget_chat_works_by_keyboard_and_announces_new_messages(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with (
        served(tmp_path, ["Yes."]) as server,
        visiting(chromium, server, (390, 844)) as visit,
    ):
        visit.host.script = tag(server, visit)
        page = visit.page
        await page.goto(visit.url)
        await page.get_by_role("button", name="Open: Chat").wait_for()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Your message")).to_be_focused()
        await page.keyboard.type("Is it open?")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("log")).to_contain_text("Yes.")
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Open: Chat")).to_be_focused()
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width == 390


@pytest.mark.all_only
async def test_refused_message_stays_in_the_composer(tmp_path: Path, chromium: Chromium) -> None:
    async with served(tmp_path, ["It is sent."]) as server, visiting(chromium, server) as visit:
        refusals = [(408, "body_timeout"), (409, "outcome_unknown"), (409, "lease_held")]
        keys: list[str | None] = []

        async def refuse(route: Route) -> None:
            keys.append(await route.request.header_value("idempotency-key"))
            if len(keys) > len(refusals):
                await route.continue_()
                return
            status, code = refusals[len(keys) - 1]
            shared = {"Access-Control-Allow-Origin": visit.url}
            problem = {"code": code, "detail": "another process holds it"}
            await route.fulfill(status=status, json=problem, headers=shared)

        await visit.page.route("**/v1/messages", refuse)
        await visit.open(tag(server, visit))
        await visit.say("Where is my order?")
        field, status = visit.page.get_by_label("Your message"), visit.page.get_by_role("status")
        await expect(status).to_contain_text("unknown whether your message arrived")
        await expect(field).to_have_value("Where is my order?")
        await visit.page.get_by_role("button", name="Send").click()
        await expect(status).to_contain_text("was not sent: another process holds it")
        await visit.page.reload()
        await expect(field).to_have_value("Where is my order?")
        await field.press("Enter")
        await expect(visit.said).to_have_count(2)
        await expect(field).to_have_value("")
        assert await said(server) == ["Where is my order?", "It is sent."]
        assert keys[0] == keys[1]
        assert len(set(keys)) == 3


@pytest.mark.all_only
async def test_revoked_token_ends_the_chat_without_retries(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with served(tmp_path, ["It is sent."]) as server, visiting(chromium, server) as visit:
        await visit.open(tag(server, visit))
        await visit.say("Where is my order?")
        await expect(visit.said).to_have_count(2)
        asked: list[str] = []
        visit.page.on("request", lambda request: asked.append(request.method))
        server.tokens.revoke("pub", 1)
        status, field = visit.page.get_by_role("status"), visit.page.get_by_label("Your message")
        await expect(status).to_contain_text("may not use the chat any more")
        await visit.context.set_offline(True)
        await asyncio.sleep(2)
        await expect(status).to_contain_text("may not use the chat any more")
        await visit.context.set_offline(False)
        assert asked == ["GET"]
        async with visit.page.expect_request(lambda request: request.method == "POST"):
            await visit.say("Hello?")
        await expect(field).to_have_value("Hello?")
        await expect(status).to_contain_text("may not use the chat any more")
        await asyncio.sleep(2)
        assert [each for each in asked if each != "OPTIONS"] == ["GET", "POST"]
        assert await visit.texts() == ["Where is my order?", "It is sent."]
