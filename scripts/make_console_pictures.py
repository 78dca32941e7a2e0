"""Take a picture of every view of the console: light and dark, 1280 and 390 pixels wide.

python -m scripts.make_console_pictures FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import Browser as Chromium

from tests.fakes.chromium import sharing
from tests.fakes.console import Browser, browsing
from tests.fakes.console_store import ANSWERS, DESK, furnished, places
from tests.fakes.host_page import visiting
from tests.fakes.served import Served, served
from tests.fakes.served_flows import begun, flow_until, serving_flows, waits_for

SIZES = ((1280, 800), (390, 844))
SCHEMES = ("light", "dark")
KEY = "pds_pub_" + "5" * 64
EMPTY = ("sessions", "sessions/nothing", "flows", "inbox", "memory?tab=facts", "usage")
"""Views of an empty store, and of a session that does not exist."""


class Studio:
    """The folder for the pictures, and the browser that takes them."""

    def __init__(self, folder: Path, chromium: Chromium) -> None:
        self._folder = folder
        self._chromium = chromium

    async def furnished(self, scratch: Path) -> None:
        """Take pictures of the views of a store with content in each view, and of the dialogs."""
        async with served(scratch, ANSWERS, agents=[DESK]) as server:
            session = await furnished(server)
            shown = {place: place.replace(session, "one") for place in places(session)}
            await self._take(server, shown, keys={"palette": "Control+k", "keys": "?"})

    async def empty(self, scratch: Path) -> None:
        """Take pictures of the views of an empty store, and of the sign-in."""
        async with served(scratch) as server:
            shown = {place: f"empty-{place}" for place in EMPTY}
            await self._take(server, shown, click={"sign-in": "Sign out"})

    async def flows(self, scratch: Path) -> None:
        """Take pictures of the views of a flow that waits for a person."""
        async with serving_flows(scratch) as server:
            flow = await begun(server, scratch)
            await flow_until(server, flow, waits_for("prompt-human"))
            shown = {"flows": "flows", f"flows/{flow}": "flow", f"flows/{flow}/owner": "flow-role"}
            await self._take(server, shown)
            reply = {"text": "The night train.", "to": "owner-intake"}
            (await server.http.post(f"/v1/flows/{flow}/reply", json=reply)).raise_for_status()
            await flow_until(server, flow, waits_for("handoff-approval"))
            await self._take(server, {f"flows/{flow}": "flow-handoff", "inbox": "inbox-handoff"})

    async def widget(self, scratch: Path) -> None:
        """Take pictures of the chat on a page of another origin."""
        async with served(scratch, ANSWERS[1:2] * 4, agents=[DESK]) as server:
            for size in SIZES:
                for scheme in SCHEMES:
                    async with visiting(self._chromium, server, size, scheme) as visit:
                        origins = (visit.url,)
                        token = server.token(
                            "write", agent="desk", origins=origins, signing_key=KEY
                        )
                        source = f'src="{server.url}/widget.js" data-agent="desk"'
                        await visit.open(f'<script {source} data-token="{token}"></script>')
                        await visit.say("Where is my order?")
                        await visit.page.get_by_text("You may keep the lamps.").wait_for()
                        target = self._folder / f"widget-{size[0]}-{scheme}.png"
                        await visit.page.wait_for_timeout(300)
                        await visit.page.screenshot(path=target)

    async def _take(
        self,
        server: Served,
        shown: dict[str, str],
        keys: dict[str, str] | None = None,
        click: dict[str, str] | None = None,
    ) -> None:
        for size in SIZES:
            for scheme in SCHEMES:
                look = f"{size[0]}-{scheme}"
                async with browsing(self._chromium, server, size, scheme) as browser:
                    for place, name in shown.items():
                        await browser.open(place)
                        await browser.settle()
                        await self._keep(browser, name, look)
                    for name, key in (keys or {}).items():
                        await browser.page.keyboard.press(key)
                        await self._keep(browser, name, look)
                        await browser.page.keyboard.press("Escape")
                        await browser.page.locator("dialog").wait_for(state="detached")
                    for name, button in (click or {}).items():
                        await browser.page.get_by_role("button", name=button).click()
                        await self._keep(browser, name, look)

    async def _keep(self, browser: Browser, name: str, look: str) -> None:
        await browser.page.wait_for_timeout(300)
        name = re.sub(r"\W+", "-", name)
        await browser.page.screenshot(path=self._folder / f"{name}-{look}.png")


async def pictures(folder: Path, chromium: str, sets: Iterable[str]) -> None:
    """Write the pictures of `sets` into `folder`."""
    async with sharing() as shared:
        program = await shared.running(chromium)
        studio = Studio(folder, program)
        for each in sets:
            with TemporaryDirectory() as scratch:
                await getattr(studio, each)(Path(scratch))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    all_sets = ("furnished", "empty", "flows", "widget")
    parser.add_argument("--only", choices=all_sets, nargs="+", default=all_sets)
    given = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("there is no chromium (apt-get install chromium)", file=sys.stderr)
        return 1
    given.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(pictures(given.folder, chromium, given.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
