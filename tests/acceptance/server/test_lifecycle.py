"""The life of sessions over three simulated days, as described in the guide.

The tests use real HTTP, and one store file that the server of each day opens again. A program
passes its own session ids, or none."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import expect

import perdure
from perdure import MemoryConfig
from perdure.server import sign_visitor
from perdure.session.messages import assistant, tool_call
from perdure.testing import ScriptedModel
from tests.fakes.clock import ManualClock
from tests.fakes.host_page import visiting
from tests.fakes.served import Served, served

DAY_S = 86_400.0
IDLE_S = 30 * 60.0
KEY, KEY2 = "pds_pub_" + "5" * 64, "pds_pub2_" + "6" * 64
HELPER = perdure.Agent(
    "helper",
    model="scripted:any",
    tools=["end_session"],
    memory=MemoryConfig(max_working_tokens=4_000),
)

pytestmark = pytest.mark.full_only


class Days:
    """A clock and the folder of a store, which the servers of several days use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()

    @asynccontextmanager
    async def serving(self, *answers: Any) -> AsyncGenerator[tuple[Served, ScriptedModel]]:
        """Start a server of the store, whose model gives `answers` in each session."""
        model = ScriptedModel(answers)
        async with served(
            self.folder,
            agents=(HELPER,),
            models=model,
            address=f"sqlite:///{self.folder}/days.db",
            clock=self.clock,
            idle_timeout_s=IDLE_S,
        ) as server:
            yield server, model


async def episodes(server: Served, subject: str) -> list[dict[str, Any]]:
    """The episodes of a person, newest first."""
    answer = await server.http.get("/v1/memory/episodes", params={"subject": subject})
    answer.raise_for_status()
    return answer.json()["items"]


async def told(server: Served, subject: str, text: str, session: str | None = None) -> str:
    """Send `text` as `subject`, with the id of a session or none, and return the id."""
    caller = await server.client("write", subject=subject)
    sent = await caller.post("/v1/messages", json={"text": text, "sessionId": session})
    sent.raise_for_status()
    return str(sent.json()["sessionId"])


async def test_ended_session_is_recalled_on_a_later_day(tmp_path: Path) -> None:
    days = Days(tmp_path)

    async with days.serving("The Aurora, near the river.") as (server, _):
        trip = await told(server, "ana", "Which hotel do we take in Lisbon?")
        await server.until(trip, "idle")
        days.clock.advance(IDLE_S - 1)
        assert await server.runtime.end_idle() == []

    days.clock.advance(2)  # the server is down when the time is over
    ends = assistant(tool_call("c1", "end_session", {"reason": "the hotel is booked"}))
    async with days.serving("", ends, "Goodbye.") as (server, _):
        await server.until(trip, "ended")
        (first,) = await episodes(server, "ana")
        assert (first["session"], first["by"]) == (trip, "idle")

        days.clock.advance(DAY_S)
        assert await told(server, "ana", "Book it.", trip) == trip  # it is opened again
        await server.until(trip, "ended")
        second, same = await episodes(server, "ana")
        assert (same, second["by"]) == (first, "agent")
        assert second["first"] > first["last"]

        of_shop = await told(server, "ben", "Which hotel did Ana take?", "ben-of-the-shop")
        ben = await server.client("write", subject="ben")
        assert of_shop == "ben-of-the-shop"
        await server.until(of_shop, "idle")
        assert (await ben.get(f"/v1/sessions/{trip}")).status_code == 404

    days.clock.advance(DAY_S)
    async with days.serving("The Aurora.") as (server, model):
        for subject in ("ana", "ben"):
            asked = await told(server, subject, "In which hotel do we have breakfast?")
            await server.until(asked, "idle")
        of_ana, of_ben = (request.messages[0].text for request in model.requests)
        assert "The Aurora, near the river." in of_ana
        assert "Aurora" not in of_ben
        await server.until("ben-of-the-shop", "ended")
        days.clock.advance(60)
        closed = await server.http.post(f"/v1/sessions/{asked}/end", json={})
        assert closed.json()["state"] == "ended"
        assert [each["by"] for each in await episodes(server, "ben")] == ["user", "idle"]


@pytest.mark.all_only
async def test_visitor_continues_the_session_on_another_device_a_day_later(
    tmp_path: Path, chromium: Chromium
) -> None:
    days = Days(tmp_path)

    def signed() -> str:
        return sign_visitor(KEY, "shop-ana", subject="ana", now_s=days.clock.now_ms() / 1000)

    async with (
        days.serving("The Aurora, near the river.", "Booked.") as (server, _),
        visiting(chromium, server) as page,
        visiting(chromium, server) as shop,
    ):
        token = server.token(
            "write", id="pub", agent="helper", origins=(page.url, shop.url), signing_key=KEY
        )
        await page.open(f'<script src="{server.url}/widget.js" data-token="{token}"></script>')
        await page.say("Good morning.")
        await expect(page.said).to_have_count(2)
        shop.host.token = signed
        by_host = 'data-token-url="/token" data-session="shop-ana"'
        await shop.open(f'<script src="{server.url}/widget.js" {by_host}></script>')
        await shop.say("Which hotel do we take in Lisbon?")
        await expect(shop.said).to_have_count(2)
        await server.until("shop-ana", "idle")
        days.clock.advance(IDLE_S + 1)
        assert len(await server.runtime.end_idle()) in (0, 1, 2)  # or its background was first
        await server.until("shop-ana", "ended")
        (of_ana,) = await episodes(server, "ana")
        assert (of_ana["session"], of_ana["by"]) == ("shop-ana", "idle")

    days.clock.advance(DAY_S)
    async with (
        days.serving("", "Booked.") as (server, _),
        visiting(chromium, server) as phone,  # another device: nothing is stored in it
    ):
        server.tokens.revoke("pub", days.clock.now_ms())
        server.token("write", id="pub2", agent="helper", origins=(phone.url,), signing_key=KEY2)
        phone.host.token = lambda: sign_visitor(
            KEY2, "shop-ana", subject="ana", now_s=days.clock.now_ms() / 1000
        )
        await phone.open(f'<script src="{server.url}/widget.js" {by_host}></script>')
        await expect(phone.said).to_have_count(2)  # what was said on the first day
        await phone.say("Book it.")
        await expect(phone.said).to_have_count(4)
        assert phone.complaints == []

    days.clock.advance(DAY_S)
    async with days.serving("The Aurora.") as (server, model):
        asked = await told(server, "ana", "In which hotel do we have breakfast?")
        await server.until(asked, "idle")
        assert "The Aurora, near the river." in model.requests[0].messages[0].text
