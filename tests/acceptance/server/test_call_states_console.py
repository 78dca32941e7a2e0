"""The states of a tool call in the open console: intent, outcome, and unknown after a kill -9."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page

from tests.acceptance.server.test_killed_console import ask, console, port
from tests.acceptance.server.test_serve import serving

__all__ = ["port"]

pytestmark = pytest.mark.all_only

PROGRAM = '''
import asyncio, pathlib, perdure
from perdure.testing import ScriptedModel

HERE = pathlib.Path(__file__).parent

@perdure.tool(effect="external", on_unknown="POLICY")
async def pay(number: int) -> str:
    """Pay an invoice."""
    with (HERE / "paid").open("a") as book:
        book.write(f"{number}\\n")
    while (HERE / "slow").exists():
        await asyncio.sleep(0.01)
    return f"paid {number}"

def desk(store):
    calls = [perdure.tool_call(f"c{n}", "pay", {"number": n}) for n in (1, 2)]
    model = ScriptedModel([perdure.assistant(*calls), "Both are paid"])
    allowed = perdure.Permissions(approval="auto")
    agent = perdure.Agent("desk", model="scripted:desk", tools=[pay], permissions=allowed)
    return perdure.Runtime(store, [agent], models=model)
'''


async def state(page: Page, number: int, word: str) -> None:
    """Wait until the call that pays the invoice `number` shows the state `word`."""
    call = page.locator("details.tool", has_text=f'"number":{number}')
    await call.locator(".state", has_text=word).wait_for()


async def until_paid(folder: Path, number: int) -> None:
    """Wait until the effect of a call has happened."""
    async with asyncio.timeout(60):
        while str(number) not in _read(folder / "paid"):  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.01)


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize("policy", ["ask", "never"])
async def test_console_shows_each_state_of_a_call_before_and_after_a_kill(
    tmp_path: Path, chromium: Chromium, port: str, policy: str
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM.replace("POLICY", policy))
    (tmp_path / "slow").touch()
    async with (
        serving(tmp_path, "--port", port) as (process, address),
        console(chromium, address) as page,
    ):
        await ask(page, "Pay both invoices")
        await until_paid(tmp_path, 1)
        await state(page, 1, "running")
        await state(page, 2, "intent recorded")
        process.send_signal(signal.SIGKILL)
        await process.wait()
        async with serving(tmp_path, "--port", port) as (again, _):
            await state(page, 1, "outcome unknown")
            if policy == "ask":
                await state(page, 2, "intent recorded")
                await page.get_by_text("it may have taken effect").first.wait_for()
            (tmp_path / "slow").unlink()
            if policy == "ask":
                await page.get_by_role("button", name="Retry").first.click()
                await state(page, 1, "done")
            await state(page, 2, "done")
            await page.get_by_text("Both are paid").first.wait_for()
            assert again.returncode is None
    assert _read(tmp_path / "paid").split() == (["1", "1", "2"] if policy == "ask" else ["1", "2"])
