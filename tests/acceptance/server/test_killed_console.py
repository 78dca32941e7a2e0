"""The open console while its server is killed with ``kill -9`` and started again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page

import perdure
from tests.acceptance.server.test_serve import serving
from tests.fakes.ports import reserved_port

pytestmark = pytest.mark.all_only

PROGRAM = '''
import asyncio, pathlib, perdure
from perdure.models.protocol import ModelInfo, StreamEnd, TextDelta
from perdure.testing import ScriptedModel

HERE = pathlib.Path(__file__).parent

class SlowModel:
    """Answers word by word, and stops in the middle as long as there is a file."""

    def info(self, model):
        return ModelInfo(model)

    async def stream(self, request):
        for number in range(40):
            yield TextDelta(f"word{number} ")
            while number == 20 and (HERE / "slow").exists():
                await asyncio.sleep(0.01)
        yield StreamEnd("stop")

@perdure.tool(effect="external", needs_approval=True)
def refund(number: int) -> str:
    """Give the money for an order back."""
    with (HERE / "refunds").open("a") as book:
        book.write(f"{number}\\n")
    return f"refunded {number}"

def desk(store):
    agent = perdure.Agent("desk", model="scripted:desk")
    return perdure.Runtime(store, [agent], models=SlowModel())

def till(store):
    call = perdure.assistant(perdure.tool_call("c1", "refund", {"number": 1041}))
    agent = perdure.Agent("desk", model="scripted:desk", tools=[refund])
    return perdure.Runtime(store, [agent], models=ScriptedModel([call, "It is paid"]))
'''


@pytest.fixture
def port() -> Iterator[str]:
    """A port reserved for a server that is killed and restarted."""
    with reserved_port() as reserved:
        yield str(reserved)


@asynccontextmanager
async def console(chromium: Chromium, address: str) -> AsyncGenerator[Page]:
    """The console in a browser, signed in with the one-time code of `address`."""
    async with await chromium.new_context() as context:
        page = await context.new_page()
        page.set_default_timeout(60_000)
        await page.goto(address)
        await page.wait_for_selector(".rail")
        yield page


async def ask(page: Page, text: str) -> None:
    """Begin a session with `text`."""
    await page.get_by_role("button", name="New session").click()
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def texts_on(page: Page) -> list[str]:
    """The texts of the messages that the page shows."""
    return [text.strip() for text in await page.locator(".message .prose").all_inner_texts()]


async def texts_in(folder: Path, end: str) -> list[str]:
    """The texts of the messages of the only session in the log, once the last one contains `end`.

    The page shows the text of an answer before its message is stored.
    """
    texts = [""]
    async with asyncio.timeout(60), perdure.open(f"sqlite:///{folder / 'desk.db'}") as store:
        while end not in texts[-1]:
            (info,) = await store.recent()
            messages = await (await store.open(info.id)).messages()
            texts = [message.text.strip() for message in messages if message.text]
            await asyncio.sleep(0.02)
    return texts


async def test_open_console_page_matches_the_log_after_its_server_was_killed(
    tmp_path: Path, chromium: Chromium, port: str
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    (tmp_path / "slow").touch()
    async with (
        serving(tmp_path, "--port", port) as (process, address),
        console(chromium, address) as page,
    ):
        await ask(page, "Count")
        await page.get_by_text("word20").first.wait_for()
        process.send_signal(signal.SIGKILL)
        await process.wait()
        (tmp_path / "slow").unlink()
        async with serving(tmp_path, "--port", port):
            await page.locator(".message .prose", has_text="word39").wait_for()
            said = await texts_in(tmp_path, "word39")
            assert said[0] == "Count"
            assert said[-1].count("word0 ") == 1
            async with asyncio.timeout(60):
                while await texts_on(page) != said:  # noqa: ASYNC110 - the page follows the log
                    await asyncio.sleep(0.05)


async def test_approval_resumes_the_turn_of_a_killed_server(
    tmp_path: Path, chromium: Chromium, port: str
) -> None:
    program = PROGRAM.replace("def desk", "def words").replace("def till", "def desk")
    (tmp_path / "shop.py").write_text(program)
    async with (
        serving(tmp_path, "--port", port) as (process, address),
        console(chromium, address) as page,
    ):
        await ask(page, "Refund order 1041")
        await page.get_by_text("May refund run?").first.wait_for()
        process.send_signal(signal.SIGKILL)
        await process.wait()
        async with serving(tmp_path, "--port", port):
            await page.get_by_role("button", name="Allow").first.click()
            await page.locator(".message .prose", has_text="It is paid").wait_for()
            assert (tmp_path / "refunds").read_text() == "1041\n"
            assert (await texts_in(tmp_path, "It is paid"))[-1] == "It is paid"
