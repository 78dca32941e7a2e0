"""Approvals in the console: the change of a file, and every argument of its call in full."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import expect

import perdure
from perdure import assistant, tool_call
from perdure.client.conversation.workspace import Workspace
from tests.fakes.console import browsing
from tests.fakes.served import served

pytestmark = pytest.mark.full_only

WRITER = perdure.Agent("writer", model="scripted:writer", tools=("write_file",))
LINES = "".join(f"line {n}\n" for n in range(2_000))


async def test_inbox_question_about_a_write_shows_diff_and_all_arguments_in_full(
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
