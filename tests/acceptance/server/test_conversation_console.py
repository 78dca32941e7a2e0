"""The conversation in a real browser: compactions, compared branches, states of calls, images."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import expect

import perdure
from perdure import assistant, tool_call, tool_result, user
from perdure.session.messages import MediaPart
from tests.fakes.console import browsing
from tests.fakes.served import served

pytestmark = pytest.mark.full_only


@pytest.mark.all_only
async def test_console_shows_the_original_messages_of_a_compaction(
    tmp_path: Path, chromium: Chromium
) -> None:
    answers = [f"answer {n} " + "word " * 9_000 for n in range(4)]
    async with served(tmp_path, answers) as server:
        session = await server.said("m0")
        for n in (1, 2, 3):
            await server.said(f"m{n}", session)
        compacted = await server.http.post(f"/v1/sessions/{session}/compact", json={})
        compacted.raise_for_status()
        async with browsing(chromium, server) as browser:
            page = browser.page
            await browser.open(f"sessions/{session}")
            box = page.locator("details.compaction")
            await box.locator("summary").click()
            await box.locator(".prose", has_text="wrote this summary").first.wait_for()
            await box.locator(".message.user", has_text="m0").wait_for()
            removed = await box.locator(".message.user").count()
            found = await server.http.get(
                f"/v1/sessions/{session}/removed",
                params={"compaction": (await server.store.open(session)).leaf},
            )
            roles = [each["role"] for each in found.json()["items"]]
            assert removed == roles.count("user") > 0
            await box.get_by_role("button", name="Undo compaction").click()
            await box.get_by_text("undone").wait_for()
            assert browser.complaints == []


@pytest.mark.all_only
async def test_comparison_of_branches_shows_markdown_and_tool_calls(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with served(tmp_path) as server:
        session = await server.store.create()
        first = await session.append(user("Where?"))
        call = tool_call("c1", "look", {"place": "shed"})
        await session.append(assistant(call), tool_result("c1", "a rake"), assistant("**One** way"))
        await session.branch(first.id)
        await session.append(assistant("Another `way`"))
        async with browsing(chromium, server) as browser:
            page = browser.page
            await browser.open(f"sessions/{session.id}")
            await page.locator(".tree-row", has_text="One").click()
            await page.get_by_role("button", name="Compare").click()
            chosen = page.get_by_role("region", name="Chosen branch")
            await chosen.locator(".prose strong", has_text="One").wait_for()
            await chosen.locator("details.tool summary").click()
            await chosen.get_by_text("a rake").wait_for()
            assert await chosen.locator(".message").count() == 2
            active = page.get_by_role("region", name="Active branch")
            assert await active.locator(".prose code").inner_text() == "way"
            assert browser.complaints == []


@perdure.tool(effect="external", needs_approval=True)
def refund(number: int) -> str:
    """Give the money for an order back."""
    return f"refunded {number}"


@pytest.mark.all_only
async def test_console_shows_tool_calls_in_each_state(tmp_path: Path, chromium: Chromium) -> None:
    leave = asyncio.Event()

    @perdure.tool(effect="read")
    async def look(place: str) -> str:
        """Look somewhere."""
        await leave.wait()
        raise ValueError(f"{place} is locked")

    asks = assistant(tool_call("c1", "refund", {"number": 1}))
    looks = assistant(tool_call("c2", "look", {"place": "shed"}))
    desk = perdure.Agent("desk", model="scripted:desk", tools=[refund, look])
    async with (
        served(tmp_path, [asks, looks, "Sorry."], agents=[desk]) as server,
        browsing(chromium, server) as browser,
    ):
        page = browser.page
        sent = await server.http.post("/v1/messages", json={"text": "Refund order 1"})
        session = sent.json()["sessionId"]
        await browser.open(f"sessions/{session}")
        refunds = page.locator("details.tool", has_text="refund")
        looking = page.locator("details.tool", has_text="look")
        await refunds.locator(".state.waiting", has_text="waits for you").wait_for()
        await page.get_by_role("button", name="deny").click()
        await refunds.locator(".state.error", has_text="denied").wait_for()
        await looking.locator(".state", has_text="running").wait_for()
        leave.set()
        await looking.locator(".state.error", has_text="error").wait_for()
        assert browser.complaints == []


DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAwAAAAMCAIAAADZF8uwAAAAE0lEQVR42mNQTvAniBhGFQ1GRQBetnYh"
    "gPy5dAAAAABJRU5ErkJggg=="
)

GIVE = """([data, kind]) => {
    const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
    const given = new DataTransfer();
    given.items.add(new File([bytes], `${kind}.png`, { type: "image/png" }));
    const area = document.querySelector(".composer textarea");
    const init = { bubbles: true, cancelable: true };
    area.dispatchEvent(kind === "paste"
        ? new ClipboardEvent("paste", { ...init, clipboardData: given })
        : new DragEvent("drop", { ...init, dataTransfer: given }));
}"""


@pytest.mark.all_only
async def test_images_can_be_pasted_dropped_and_selected_in_the_console(
    tmp_path: Path, chromium: Chromium
) -> None:
    image = base64.b64decode(DOT)
    async with served(tmp_path, ["Three dots"]) as server, browsing(chromium, server) as browser:
        page = browser.page
        await page.get_by_role("button", name="New session").click()
        attached = page.locator(".attached img")
        await page.get_by_label("Images", exact=True).set_input_files(
            [
                {"name": "chosen.png", "mimeType": "image/png", "buffer": image},
                {"name": "left.png", "mimeType": "image/png", "buffer": image},
            ]
        )
        await attached.nth(1).wait_for()
        await page.get_by_role("button", name="Remove left.png").click()
        await page.evaluate(GIVE, [DOT, "paste"])
        await page.evaluate(GIVE, [DOT, "drop"])
        await attached.nth(2).wait_for()
        await page.get_by_role("button", name="Send").click()
        await browser.see("Three dots")
        shown = page.locator(".message.user img.media")
        await expect(shown).to_have_count(3)  # the answer's live text can appear before the message
        await expect(attached).to_have_count(0)
        assert await shown.first.evaluate("async (image) => (await image.decode(), image.width)")
        (info,) = await server.store.recent()
        await server.until(info.id, "idle")  # the page shows an answer before it is stored
        (asked, _) = await (await server.store.open(info.id)).messages()
        stored = [part for part in asked.parts if isinstance(part, MediaPart)]
        assert [part.name for part in stored] == ["chosen.png", "paste.png", "drop.png"]
        assert await server.store.content(stored[0]) == image
        assert browser.complaints == []


@pytest.mark.all_only
async def test_console_shows_earlier_calls_and_turns_on_request(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with served(tmp_path, ["yes"] * 22) as server:
        session = await server.said("m0")
        for n in range(21):
            await server.said(f"m{n + 1}", session)
        async with browsing(chromium, server) as browser:
            page = browser.page
            await browser.open(f"sessions/{session}?side=context")
            calls = page.get_by_label("Sent by").locator("option")
            await expect(calls).to_have_count(21)
            await page.get_by_role("button", name="Earlier calls").click()
            await expect(calls).to_have_count(23)
            await expect(page.get_by_role("button", name="Earlier calls")).to_have_count(0)
            await browser.open(f"sessions/{session}?side=turns")
            await page.get_by_role("button", name="Earlier turns").click()
            await page.get_by_role("heading", name="Turn 1", exact=True).wait_for()
            assert browser.complaints == []
