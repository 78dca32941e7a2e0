"""The Flows view of the console in a real browser, on a real flow with a scripted model."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium

import perdure
from tests.fakes.console import NARROW, WIDE, Browser, browsing
from tests.fakes.served_flows import begun, flow_until, serving_flows, waits_for

pytestmark = pytest.mark.full_only


async def started(browser: Browser, folder: Path) -> None:
    """Start the workflow in the browser."""
    page = browser.page
    await browser.open("flows")
    await page.get_by_role("button", name="Start a flow").click()
    await page.get_by_label("Folder of the project").fill(str(folder))
    await page.get_by_label("Record folder").fill("record")
    await page.get_by_role("dialog").get_by_role("button", name="Start").click()
    await page.locator(".graph .node").first.wait_for()


@pytest.mark.all_only
async def test_person_runs_flow_in_browser(tmp_path: Path, chromium: Chromium) -> None:
    async with serving_flows(tmp_path) as server, browsing(chromium, server) as browser:
        page = browser.page
        await started(browser, tmp_path)
        await page.locator(".node.waiting", has_text="owner-intake").wait_for()
        await page.get_by_label("Reply to owner-intake").fill("The night train")
        await page.keyboard.press("Enter")
        await page.locator(".node.completed", has_text="owner-intake").wait_for()
        await page.locator(".node.waiting", has_text="write").wait_for()
        await page.get_by_role("button", name="approve").click()
        await page.get_by_role("button", name="none").click()
        await page.locator("header .state", has_text="completed").wait_for()
        assert await page.locator(".node.completed").count() == 3
        (state,) = await perdure.Flows(server.runtime).list()
        assert state.run.status == "completed"
        assert browser.complaints == []


@pytest.mark.all_only
async def test_running_turn_is_shown_live_and_stopped(tmp_path: Path, chromium: Chromium) -> None:
    async with serving_flows(tmp_path) as server, browsing(chromium, server) as browser:
        page = browser.page
        await started(browser, tmp_path)
        await page.get_by_label("Reply to owner-intake").fill("The slow train")
        await page.get_by_role("button", name="Send").click()
        await browser.see("I look the slow train up")
        await page.locator(".node.active", has_text="owner-intake").wait_for()
        await page.get_by_role("button", name="Stop owner-intake").click()
        await page.locator(".node.waiting", has_text="owner-intake").wait_for()
        await page.locator(".item.error").wait_for()
        await page.get_by_label("Reply to owner-intake").fill("The night train")
        await page.get_by_role("button", name="Send").click()
        await page.locator(".node.waiting", has_text="write").wait_for()
        await page.locator(".item.tool-success a.at").first.click()
        await page.locator(".message.target").wait_for()
        assert browser.complaints == []


@pytest.mark.all_only
async def test_console_user_can_answer_a_consent_question_and_configure_a_role(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with serving_flows(tmp_path) as server, browsing(chromium, server) as browser:
        page = browser.page
        flow = await begun(server, tmp_path, consent="no-access")
        await flow_until(server, flow, waits_for("prompt-human"))
        await server.http.post(f"/v1/flows/{flow}/reply", json={"text": "The night train"})
        await browser.open(f"flows/{flow}")
        await page.get_by_role("button", name="allow-flow").click()
        await page.locator(".node.waiting", has_text="write").wait_for()
        assert await page.get_by_label("Consent mode").input_value() == "partial-access"
        await page.get_by_role("button", name="owner", exact=False).first.click()
        await page.get_by_role("button", name="Configure").click()
        await page.get_by_label("Tools").fill("read_file")
        await page.get_by_role("button", name="Save").click()
        await browser.see("From the next turn on")
        state = await perdure.Flows(server.runtime).state(flow)
        assert [role.tools for role in state.roles.values()] == [("read_file",)]
        assert browser.complaints == []


@pytest.mark.all_only
async def test_handoff_card_shows_files_and_their_change(
    tmp_path: Path, chromium: Chromium
) -> None:
    async with serving_flows(tmp_path) as server, browsing(chromium, server) as browser:
        page = browser.page
        flow = await begun(server, tmp_path)
        await flow_until(server, flow, waits_for("prompt-human"))
        await server.http.post(f"/v1/flows/{flow}/reply", json={"text": "The night train"})
        await flow_until(server, flow, waits_for("handoff-approval"))
        written = tmp_path / "record" / "page.md"
        first = written.read_text()
        await browser.open("inbox")
        file = page.locator(".handed", has_text="page.md")
        await file.locator(".document", has_text=first.split()[0]).wait_for()
        assert await file.get_by_role("button", name="Change").count() == 0
        written.write_text(f"{first}\n**A night in Lyon**\n")
        await page.get_by_role("button", name="approve").click()
        await browser.see("review them")
        added = page.locator(".handed .diff .added", has_text="A night in Lyon")
        await added.wait_for()
        await file.get_by_role("button", name="Contents").click()
        await file.locator(".document strong", has_text="A night in Lyon").wait_for()
        await page.get_by_role("button", name="approve").click()
        await added.wait_for(state="detached")
        await flow_until(server, flow, lambda shown: "handoff-approval" not in str(shown["waits"]))
        assert [each for each in browser.complaints if "409" not in each] == []


LARGE = """
workflow:
  name: "<img src=x onerror=window.__hit=1>"
  nodes:
    - {id: owner-intake, role: owner, work: ["Ask"]}
""" + "".join(
    f"    - {{id: step-{n}, role: {'owner' if n == 99 else 'developer'}}}\n" for n in range(1, 100)
)
EDGES = [(0, n) for n in range(1, 34)] + [(n, n + 33) for n in range(1, 66)]
ENDS = [(n, 99) for n in range(66, 99)]


@pytest.mark.all_only
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_flow_graph_of_a_hundred_nodes_is_usable_by_keyboard(
    tmp_path: Path, chromium: Chromium, size: tuple[int, int]
) -> None:
    name = {0: "owner-intake"} | {n: f"step-{n}" for n in range(1, 100)}
    edges = "".join(f"    - {{from: {name[a]}, to: {name[b]}}}\n" for a, b in EDGES + ENDS)
    async with (
        serving_flows(tmp_path, f"{LARGE}  edges:\n{edges}") as server,
        browsing(chromium, server, size) as browser,
    ):
        page = browser.page
        flow = await begun(server, tmp_path)
        await flow_until(server, flow, waits_for("prompt-human"))
        await browser.open(f"flows/{flow}")
        await page.locator(".graph .node").first.wait_for()
        assert await page.locator(".graph .node").count() == 100
        await page.locator('[data-node="owner-intake"]').focus()
        await page.keyboard.press("ArrowRight")
        focused = "document.activeElement.dataset.node"
        assert str(await page.evaluate(focused)).startswith("step-")
        inside = await page.evaluate(
            "(() => { const a = document.activeElement.getBoundingClientRect(),"
            " b = document.querySelector('.graph').getBoundingClientRect();"
            " return a.left >= b.left && a.right <= b.right && a.top >= b.top; })()"
        )
        assert inside
        await page.keyboard.press("0")
        await page.get_by_role("button", name="List").click()
        assert await page.locator(".nodes tbody tr").count() == 100
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= size[0]
        assert await page.evaluate("window.__hit") is None
        assert browser.complaints == []


@pytest.mark.all_only
async def test_flow_of_ended_server_is_resumed_in_browser(
    tmp_path: Path, chromium: Chromium
) -> None:
    address = f"sqlite:///{tmp_path}/store.db"
    async with serving_flows(tmp_path, address=address) as server:
        flow = await begun(server, tmp_path)
        await flow_until(server, flow, waits_for("prompt-human"))
        await server.http.post(f"/v1/flows/{flow}/reply", json={"text": "The slow train"})
        await flow_until(server, flow, lambda shown: shown["nodes"][0]["state"] == "active")
    async with (
        serving_flows(tmp_path, address=address) as server,
        browsing(chromium, server) as browser,
    ):
        await browser.open(f"flows/{flow}")
        await browser.see("no process runs it")
        await browser.page.get_by_role("button", name="Resume").click()
        await browser.see("I look the slow train up")
        await browser.page.locator("header .state.running").wait_for()
        assert browser.complaints == []
