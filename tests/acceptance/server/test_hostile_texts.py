"""Texts from outside in every field that the console shows: none of them runs as script."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import expect

import perdure
from perdure import assistant, thinking, tool_call
from perdure.session.messages import Usage
from tests.fakes.console import Browser, browsing
from tests.fakes.console_store import refund
from tests.fakes.served import Served, served
from tests.fakes.served_flows import WORKFLOW, begun, flow_until, serving_flows, waits_for

pytestmark = [pytest.mark.all_only, pytest.mark.timeout(300)]

HOSTILE = (
    "<img src=x onerror=window.__hit=1>",
    "<script>window.__hit=1</script>",
    "[x](javascript:window.__hit=1)",
    "```\n</pre><svg onload=window.__hit=1>\n```",
    '"><iframe srcdoc="<script>parent.__hit=1</script>">',
    "| <b onclick=window.__hit=1>a</b> |\n|---|\n| [a](data:text/html,<script>__hit=1</script>) |",
    'https://x.example/"onmouseover="window.__hit=1',
    "\u202ereversed \x1b[31m text",
)
ALL = " ".join(HOSTILE)
IMAGE = HOSTILE[0]
SHOWN = "window.__hit=1"
"""A piece of code in the hostile texts; each view shows it as text instead of running it."""

ASKS = assistant(tool_call("c", "refund", {"number": 1, "reason": ALL}))
DESK = perdure.Agent("desk", model="scripted:desk", tools=[refund])


async def test_session_texts_never_run_as_scripts_in_the_console(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with served(tmp_path, [ASKS], agents=[DESK]) as server:
        session = await recorded(server)
        asking = (await server.http.post("/v1/messages", json={"text": ALL})).json()["sessionId"]
        await server.until(asking, "waiting")
        async with browsing(chromium, server) as browser:
            for place in (
                "sessions",
                f"sessions?q={quote('onerror')}",
                *(f"sessions/{session}?side={side}" for side in ("tree", "turns", "context")),
                f"sessions/{asking}?side=context&call=999",
                "inbox",
                f"memory?tab=recall&question={quote(IMAGE)}",
                "memory?tab=facts",
                "memory?tab=episodes",
                "usage",
            ):
                await browser.open(place)
                await open_all(browser)
                await expect(browser.page.locator("main"), place).to_contain_text(
                    SHOWN, use_inner_text=True
                )
                await has_not_run(browser)
            for by in ("by person", "by project", "by session"):
                await browser.page.get_by_label("Group by").select_option(label=by)
                await open_all(browser)
            await browser.page.keyboard.press("Control+k")
            await browser.page.keyboard.type("<img")
            await browser.page.locator("dialog li", has_text="<img").first.wait_for()
            await has_not_run(browser)


async def test_flow_texts_never_run_as_scripts_in_the_console(
    tmp_path: Path, chromium: Chromium
) -> None:
    workflow = WORKFLOW.replace("A page on trains", f"'{IMAGE}'")
    async with serving_flows(tmp_path, workflow) as server:
        flow = await begun(server, tmp_path)
        await flow_until(server, flow, waits_for("prompt-human"))
        reply = {"text": f"The night train. {ALL}", "to": "owner-intake"}
        (await server.http.post(f"/v1/flows/{flow}/reply", json=reply)).raise_for_status()
        await flow_until(server, flow, waits_for("handoff-approval"))
        async with browsing(chromium, server) as browser:
            for place in ("flows", f"flows/{flow}", f"flows/{flow}/owner", "inbox"):
                await browser.open(place)
                await open_all(browser)
                if place != "inbox":
                    await expect(browser.page.locator("main"), place).to_contain_text(
                        SHOWN, use_inner_text=True
                    )
                await has_not_run(browser)


async def recorded(server: Served) -> str:
    """Create an ended session with hostile texts in every field; return its id."""
    session = await server.store.create(title=IMAGE, cwd=f"/{IMAGE}", subject=IMAGE)
    edit = tool_call("e", "write_file", {"path": IMAGE, "content": ALL})
    call = tool_call("c", f"<b>{IMAGE}", {ALL: ALL})
    usage = Usage(input_tokens=1, output_tokens=1)
    await session.append(
        perdure.user(ALL, author=IMAGE),
        *(perdure.user(text, author=text) for text in HOSTILE),
        *(assistant(text, model=IMAGE, usage=usage) for text in HOSTILE),
        assistant(ALL, thinking(ALL), call, edit),
        perdure.tool_result("c", ALL),
        perdure.tool_result("e", ALL),
    )
    first = (await session.path())[0]
    await session.label(first.id, IMAGE)
    await session.branch(first.id)
    await session.append(assistant(ALL))
    await server.store.memory.remember(ALL)
    await session.end(ALL, summary=ALL)
    of_no_one = await server.store.create(title=IMAGE)
    await of_no_one.append(perdure.user(ALL))
    await of_no_one.end(summary=ALL)
    return session.id


async def open_all(browser: Browser) -> None:
    """Wait for the view, and open every folded element."""
    await browser.settle()
    await browser.page.wait_for_timeout(60)
    await browser.page.evaluate(
        "document.querySelectorAll('details').forEach((each) => each.open = true)"
    )
    await browser.settle()


async def has_not_run(browser: Browser) -> None:
    """Check that no script ran, no text reversed its direction, and the policy blocked nothing."""
    assert await browser.page.evaluate("window.__hit") is None
    assert "\u202e" not in await browser.page.inner_text("body")
    assert [each for each in browser.complaints if "Content Security" in each] == []
