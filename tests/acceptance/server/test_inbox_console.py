"""Approvals in the console: the change of a file, and every argument of its call in full."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Route, expect

import perdure
from perdure import assistant, tool_call
from perdure.client.conversation.workspace import Workspace
from tests.fakes.console import browsing
from tests.fakes.served import served

pytestmark = pytest.mark.full_only

WRITER = perdure.Agent("writer", model="scripted:writer", tools=("write_file",))
LINES = "".join(f"line {n}\n" for n in range(2_000))


async def test_inbox_question_about_a_write_shows_the_diff_and_all_arguments(
    tmp_path: Path, chromium: Chromium
) -> None:
    (tmp_path / "notes.txt").write_text("first\n")
    arguments: dict[str, object] = {"path": "notes.txt", "content": LINES, "append": True}
    answers = [assistant(tool_call("c1", "write_file", arguments)), "Written."]
    async with served(tmp_path, answers, agents=[WRITER]) as server:
        chat = await server.runtime.start(WRITER, workspace=Workspace(working_dir=str(tmp_path)))
        chat.send("Write the lines down.")
        await server.until(chat.session.id, "waiting")
        async with browsing(chromium, server) as browser:
            page = browser.page
            await browser.open("inbox")
            await expect(page.locator(".diff")).to_contain_text("+line 0")
            await page.get_by_text("append", exact=False).first.click()
            await expect(page.get_by_label("Arguments")).to_contain_text('"append": true')
            await expect(page.get_by_label("Arguments")).not_to_contain_text("line 1999")
            await page.get_by_role("button", name="Show in full").click()
            await expect(page.get_by_label("Arguments")).to_contain_text("line 1999")
            await expect(page.locator(".diff")).to_contain_text("+line 1999")
            await expect(page.get_by_role("button", name="Show in full")).to_have_count(0)
            assert browser.complaints == []


@pytest.mark.all_only
async def test_delayed_response_does_not_hide_a_newer_inbox_question(
    tmp_path: Path, chromium: Chromium
) -> None:
    answers = [assistant(tool_call("c1", "write_file", {"path": "a.txt", "content": "a"}))]
    async with (
        served(tmp_path, answers, agents=[WRITER]) as server,
        browsing(chromium, server) as browser,
    ):
        page = browser.page
        await browser.open("inbox")
        await browser.see("Nothing waits for you.")
        reads, most = 0, 0
        begun, asked = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            nonlocal reads, most
            reads += 1
            most = max(most, reads)
            answer = await route.fetch()
            begun.set()
            await asked.wait()
            reads -= 1
            await route.fulfill(response=answer)

        await page.route("**/v1/inbox", hold)
        chat = await server.runtime.start(WRITER, workspace=Workspace(working_dir=str(tmp_path)))
        chat.send("Write it down.")
        await begun.wait()
        await server.until(chat.session.id, "waiting")
        asked.set()
        await page.get_by_role("button", name="allow").first.wait_for()
        assert most == 1
        await page.unroute_all(behavior="wait")
        assert browser.complaints == []


@pytest.mark.all_only
async def test_delayed_response_does_not_overwrite_a_newer_session_state(
    tmp_path: Path, chromium: Chromium
) -> None:
    call = tool_call("c1", "write_file", {"path": "a.txt", "content": "a"})
    answers = [assistant(call), "Written."]
    async with (
        served(tmp_path, answers, agents=[WRITER]) as server,
        browsing(chromium, server) as browser,
    ):
        page = browser.page
        chat = await server.runtime.start(WRITER, workspace=Workspace(working_dir=str(tmp_path)))
        await browser.open(f"sessions/{chat.session.id}")
        state = page.locator("header .state").last
        await expect(state).to_have_text("idle")
        is_held, ended = False, asyncio.Event()
        begun, released = asyncio.Event(), asyncio.Event()

        async def hold_first(route: Route) -> None:
            nonlocal is_held
            is_first, is_held = not is_held, True
            answer = await route.fetch()
            if is_first:
                begun.set()
                await ended.wait()
            await route.fulfill(response=answer)
            if is_first:
                released.set()

        await page.route(f"**/v1/sessions/{chat.session.id}", hold_first)
        turn = chat.send("Write it down.")
        await begun.wait()
        await server.until(chat.session.id, "waiting")
        (asked,) = await server.store.questions()
        await server.store.answer(asked.id, "allow", by="ana")
        await turn
        await browser.see("Written.")
        await asyncio.sleep(0.3)  # for the read of the session after the turn
        await expect(state).to_have_text("idle")
        ended.set()
        await released.wait()
        await asyncio.sleep(0.3)
        await expect(state).to_have_text("idle")
        await page.unroute_all(behavior="wait")
        assert browser.complaints == []
