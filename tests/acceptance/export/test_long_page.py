"""Ten thousand entries in one page: quick to open, search and scroll; only a few are drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.export.conftest import page_of
from tests.fakes.browser import Page

COUNT = 10_000
NODES = "document.querySelectorAll('*').length"


def recording() -> bytes:
    """A pi session of `COUNT` messages on one branch, and one message on another branch."""
    at = "2026-04-02T09:14:07.120Z"
    lines: list[dict[str, object]] = [
        {"type": "session", "version": 3, "id": "long", "timestamp": at, "cwd": "/srv"}
    ]
    for n in range(COUNT):
        parent = None if n == 0 else f"{n - 1:08}"
        text = f"Message number {n}. " + "Some words that fill a line or two. " * (n % 7)
        message = {
            "role": "user" if n % 2 == 0 else "assistant",
            "content": [{"type": "text", "text": text}],
        }
        place = {"id": f"{n:08}", "parentId": parent, "timestamp": at}
        lines.append({"type": "message", **place, "message": message})
    side = {"id": "side0000", "parentId": "00000010", "timestamp": at}
    aside = {"role": "assistant", "content": [{"type": "text", "text": "At the side."}]}
    lines.insert(13, {"type": "message", **side, "message": aside})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path for the page of the long session."""
    return tmp_path_factory.mktemp("long")


@pytest.mark.all_only
async def test_page_of_a_long_session_draws_only_visible_entries(page: Page, file: Path) -> None:
    page.show(await page_of(recording(), file))
    assert page.value(NODES) < 4_000
    assert page.value("document.querySelectorAll('.row').length") < 60
    page.press("G")
    page.until("document.querySelector('.block.current')?.textContent.includes('number 9999')")
    assert page.value(
        "Math.abs(innerHeight + scrollY - document.documentElement.scrollHeight) < 2000"
    )
    assert page.value(NODES) < 6_000
    page.press("/")
    page.write("number 5123")
    page.until("document.getElementById('count').textContent === '1 hit'")
    page.press("Enter")
    page.until("document.querySelector('.block.current')?.textContent.includes('number 5123')")
    page.until(
        "Math.abs(document.querySelector('.block.current').getBoundingClientRect().top - 60) < 40"
    )
    page.press("Escape")
    page.value("document.getElementById('rows').scrollTop = 1e9")
    page.until(
        "[...document.querySelectorAll('.row')].some(r => r.textContent.includes('number 9999'))"
    )
    assert page.complaints() == []
