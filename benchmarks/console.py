"""Goals of the console, in Debian's Chromium: fast with much data, and constant memory.

The store has 3,000 imported sessions, one of them with 30,000 entries. The visible part of the page
appears within a second, and a search result appears within 150 ms of the last key. Scrolling shows
no blank frame. The memory of an open page does not grow over 60,000 live events. The raw figure is
the time of a page without content from the same server.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from typing import Any

from benchmarks.figures import Figure, Run, median, percentile
from benchmarks.histories import SESSION, chats
from benchmarks.workload import ENTRIES_A_TURN, conversation
from perdure.models.protocol import Delta, ModelInfo, ModelRequest, StreamEnd, TextDelta
from tests.fakes.chromium import sharing
from tests.fakes.console import Browser, browsing
from tests.fakes.served import DESK, Served, served

SESSIONS = 3_000
ENTRIES = 30_000
OPENINGS = 7
FIRST_PAINT_MS = 1_000.0
SEARCH_MS = 150.0
LIVE_EVENTS = 60_000
LIVE_RATE = 200.0
ANSWERS = 20
GROWN_MB = 3.0
WORDS = ("heron", "river", "budget", "anchor", "lantern", "quarry", "meadow", "violin")
FRAMES = """async (selector) => {
  const box = document.querySelector(selector);
  const seen = { frames: 0, blank: 0 };
  const area = box.getBoundingClientRect();
  for (let step = 0; step < 240; step += 1) {
    box.scrollTop += 400;
    await new Promise(requestAnimationFrame);
    const at = document.elementFromPoint(area.left + area.width / 2, area.top + area.height / 2);
    seen.frames += 1;
    if (!at || at === box || at.classList.contains("list")) seen.blank += 1;
  }
  return seen;
}"""


class Talker:
    """A model that sends a short word at a constant rate."""

    def __init__(self, count: int) -> None:
        self.count = count

    def info(self, model: str) -> ModelInfo:
        """Return a model without limits."""
        return ModelInfo(model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Send `count` words for any request."""
        began = time.monotonic()
        for number in range(self.count):
            await asyncio.sleep(max(began + number / LIVE_RATE - time.monotonic(), 0))
            yield TextDelta(f"{WORDS[number % len(WORDS)]} ")
        yield StreamEnd("stop")


async def measure(run: Run) -> list[Figure]:
    """Measure the console with much data, then over a long time."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise RuntimeError("install chromium first")
    return [*await _with_much(run, chromium), *await _for_long(run, chromium)]


async def _with_much(run: Run, chromium: str) -> list[Figure]:
    async with served(run.folder, address=f"sqlite:///{run.folder}/console.db") as server:
        long = await _fill(server, run)
        async with (
            sharing() as shared,
            browsing(await shared.running(chromium), server) as browser,
        ):
            empty = [await _shown(browser, "store", "h1") for _ in range(OPENINGS)]
            lists = [await _shown(browser, "sessions", ".list > *") for _ in range(OPENINGS)]
            frames = await browser.page.evaluate(FRAMES, ".scroll")
            talks = [await _shown(browser, f"sessions/{long}", ".message") for _ in range(OPENINGS)]
            found = [await _found(browser, word) for word in WORDS]
    claim = f"console, {run.count(SESSIONS):,} sessions, one of {run.count(ENTRIES):,} entries"
    shown = "is shown (Raw: an empty page)"
    return [
        Figure(
            claim, f"p50 until the list {shown}", median(lists), "ms", median(empty), FIRST_PAINT_MS
        ),
        Figure(
            claim,
            f"p50 until the long session {shown}",
            median(talks),
            "ms",
            median(empty),
            FIRST_PAINT_MS,
        ),
        Figure(claim, "blank frames of 240 while scrolling", frames["blank"], "", limit=0),
        Figure(
            claim,
            "p50 from the last key of a search to its hits",
            median(found),
            "ms",
            limit=SEARCH_MS,
        ),
        Figure(
            claim,
            "longest time from the last key of a search to its hits",
            percentile(found, 1.0),
            "ms",
        ),
    ]


async def _fill(server: Served, run: Run) -> str:
    folder = run.folder / "histories"
    folder.mkdir()
    recorded = (await chats(1))["claude-code"].decode()
    for number in range(run.count(SESSIONS)):
        text = recorded.replace(SESSION, f"session-{number}")
        text = text.replace("pears", f"{WORDS[number % len(WORDS)]} of session {number}")
        (folder / f"session-{number}.jsonl").write_text(text)
    imported = await server.store.import_files([folder])
    assert len({each.session for each in imported.reports}) == run.count(SESSIONS), imported.errors
    long = await server.store.create(title="The long one")
    for said in conversation(run.seed, run.count(ENTRIES) // ENTRIES_A_TURN):
        await long.append(*said)
    await server.store.search(WORDS[0])  # the index is made before, as by a server that runs
    return long.id


async def _shown(browser: Browser, place: str, what: str) -> float:
    """Return the milliseconds from opening `place` until `what` is shown."""
    await browser.page.goto("about:blank")
    began = time.perf_counter()
    await browser.page.goto(f"{browser.url}/#/{place}")
    await browser.page.locator(what).first.wait_for()
    return 1000 * (time.perf_counter() - began)


async def _found(browser: Browser, word: str) -> float:
    """Return the milliseconds from the last key of `word` until its hits are shown."""
    await browser.open("sessions")
    field = browser.page.get_by_label("Search everything said")
    await field.press_sequentially(word[:-1], delay=60)
    await browser.page.wait_for_timeout(400)
    began = time.perf_counter()
    await field.press(word[-1])
    await browser.page.locator("mark", has_text=word).first.wait_for()
    return 1000 * (time.perf_counter() - began)


async def _for_long(run: Run, chromium: str) -> list[Figure]:
    count = run.count(LIVE_EVENTS)
    models = Talker(count // ANSWERS)
    async with (
        served(run.folder, agents=(DESK,), models=models) as server,
        sharing() as shared,
        browsing(await shared.running(chromium), server) as browser,
    ):
        session, sizes = None, list[float]()
        for _ in range(ANSWERS):
            new = {"text": "go on", "sessionId": session}
            sent = (await server.http.post("/v1/messages", json=new)).raise_for_status()
            if session is None:
                session = str(sent.json()["sessionId"])
                await browser.open(f"sessions/{session}")
            await server.until(session, "idle")
            sizes.append(await _heap_mb(browser.page))
        said = len((await (await server.store.open(session or "")).messages())[-1].text.split())
        assert said == count // ANSWERS
    claim = f"console, a page that receives {count:,} live events"
    return [
        Figure(claim, "heap of the page after the first tenth of the events", sizes[1], "MB"),
        Figure(
            claim,
            "growth of the heap in the other nine tenths",
            sizes[-1] - sizes[1],
            "MB",
            limit=GROWN_MB,
        ),
    ]


async def _heap_mb(page: Any) -> float:
    """Return the size of the page's heap after garbage collection."""
    protocol = await page.context.new_cdp_session(page)
    await protocol.send("HeapProfiler.collectGarbage")
    await protocol.send("Performance.enable")
    metrics = (await protocol.send("Performance.getMetrics"))["metrics"]
    await protocol.detach()
    return next(each["value"] for each in metrics if each["name"] == "JSHeapUsedSize") / 1e6
