"""Exported pages in a real browser."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from perdure.interop.exports import ExportSelection, export_session
from tests.fakes.browser import Page, browsing
from tests.fakes.sources import empty_store, imported

SAMPLE = Path(__file__).resolve().parents[3] / "src" / "perdure" / "data" / "sample.jsonl"


async def page_of(
    source: bytes | Path, folder: Path, selection: ExportSelection | None = None
) -> Path:
    """The HTML export of a recorded session, as a file in `folder`."""
    store = empty_store()
    report = await imported(store, source)
    exported = await export_session(store, report.session, "html", selection or ExportSelection())
    file = folder / "session.html"
    file.write_bytes(exported.content)
    return file


@pytest.fixture(scope="package")
def tab(chromium: str) -> Generator[Page]:
    """A tab that the tests of this folder use one after the other."""
    with browsing(chromium) as page:
        yield page


@pytest.fixture
def page(tab: Page) -> Page:
    """The tab with a wide window, the light colour scheme and no recorded events."""
    tab.events.clear()
    tab.sized(1280, 900)
    return tab
