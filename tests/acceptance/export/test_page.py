"""The HTML export as a reader uses it: in a browser, by mouse and keys, in both colour schemes."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.interop.exports import ExportSelection, export_session
from perdure.session.codec import new_tree
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.messages import user
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.acceptance.export.conftest import SAMPLE, page_of
from tests.fakes.browser import Page
from tests.fakes.sources import empty_store, imported

CONVERSATION = "document.getElementById('conversation').innerText"
CURRENT = "document.querySelector('.block.current')?.id"
A_WHILE_MS = 300  # in which the page may notice that it was scrolled
HITS = "document.querySelectorAll('.row.hit').length"


@pytest.fixture
async def sample(page: Page, tmp_path: Path) -> Page:
    """The page of the sample session, open in the tab."""
    page.show(await page_of(SAMPLE, tmp_path))
    return page


def test_page_shows_the_branch_and_sends_no_requests(sample: Page) -> None:
    assert sample.value("document.title") == "The tide table that lost an hour"
    assert sample.value("document.querySelector('h1').textContent") == sample.value(
        "document.title"
    )
    assert sample.value("document.querySelectorAll('.block.user').length") == 5
    assert "16 passed" not in sample.value("document.body.innerText")  # folded
    addresses = [each for each in sample.requested() if not each.startswith("about:")]
    assert len(addresses) == 1
    assert addresses[0].startswith("file:")
    assert sample.complaints() == []


def test_tool_call_unfolds_to_its_arguments_and_result(sample: Page) -> None:
    fold = "document.querySelectorAll('#e4 .fold.tool')[0]"
    assert sample.value(f"{fold}.open") is False
    sample.value(f"{fold}.querySelector('summary').click()")
    sample.until(f"{fold}.querySelectorAll('pre').length === 2")
    assert sample.value(f"{fold}.querySelectorAll('pre')[0].textContent").startswith("{")
    assert "The tide table of one day." in sample.value(f"{fold}.textContent")


def test_failed_call_is_marked_as_failed(sample: Page) -> None:
    assert "failed" in sample.value(
        "[...document.querySelectorAll('.state.bad')].map(e => e.textContent)"
    )


def test_compaction_on_the_page_links_to_the_entries_it_replaces(sample: Page) -> None:
    note = "document.querySelector('.block.compaction .hides')"
    assert "in place of 20 entries above, 10,572 tokens before it" in sample.value(
        f"{note}.textContent"
    )
    hidden = sample.value("document.querySelectorAll('.block.unseen').length")
    assert hidden == 13  # with the results of their tools, which are shown with the calls, twenty
    sample.value(f"{note}.querySelector('button').click()")
    sample.until(f"{CURRENT} === 'e1'")


def test_click_opens_another_branch_and_returns_to_the_first_branch(sample: Page) -> None:
    switch = "document.querySelector('.switch')"
    assert "2 / 2" in sample.value(f"{switch}.textContent")
    sample.value(f"{switch}.querySelectorAll('button')[0].click()")
    sample.until(f"{switch}.textContent.includes('1 / 2')")
    assert "Quick one first please" in sample.value(
        "document.getElementById('conversation').innerText"
    )
    assert "OK, thorough it is" not in sample.value(
        "document.getElementById('conversation').innerText"
    )
    sample.press("]")
    sample.until(f"{CONVERSATION}.includes('OK, thorough it is')")


def test_tree_shows_all_branches_and_click_opens_entry(sample: Page) -> None:
    assert sample.value("document.getElementById('count').textContent") == "43 entries, 2 branches"
    talk = sample.value("document.querySelectorAll('.row').length")
    sample.value("document.getElementById('every').click()")
    sample.until(f"document.querySelectorAll('.row').length > {talk}")
    sample.value(
        "[...document.querySelectorAll('.row')]"
        ".find(row => row.textContent.includes('Quick one')).click()"
    )
    sample.until(f"{CONVERSATION}.includes('Quick one first')")
    assert sample.value("document.querySelectorAll('.row.shown').length") == 1


def test_page_search_finds_text_of_other_branches_and_tool_results(sample: Page) -> None:
    sample.press("/")
    sample.write("october earns")
    sample.until("document.getElementById('count').textContent === 'Nothing found'")
    sample.press("Escape")
    sample.until(f"{HITS} === 0 && document.querySelectorAll('.row').length > 5")
    sample.press("/")
    sample.write('"timedelta adds" OR')
    sample.press("Escape")
    sample.press("/")
    sample.write("NameError utc")
    sample.until(f"{HITS} >= 1")
    assert sample.value("document.querySelector('.row.hit mark').textContent.toLowerCase()") in (
        "nameerror",
        "utc",
    )
    sample.press("Enter")
    sample.until(f"{CURRENT} !== 'e1'")


def test_page_keys_move_from_message_to_message(sample: Page) -> None:
    for key in "jjjk":
        sample.press(key)
    sample.until(f"{CURRENT} === 'e3'")
    assert sample.value("document.activeElement.id") == "e3"
    sample.press("G")
    sample.until(f"{CURRENT} === 'e46'")
    for _ in range(3):
        sample.press("k")
    sample.value(f"new Promise(done => setTimeout(done, {A_WHILE_MS}))")
    for _ in range(3):
        sample.press("j")
    sample.until(f"{CURRENT} === 'e46'")
    sample.press("g")
    sample.until("scrollY === 0")
    sample.press("e")
    sample.until("[...document.querySelectorAll('details')].every(e => e.open)")
    sample.press("e")
    sample.until("[...document.querySelectorAll('details')].every(e => !e.open)")
    sample.press("?")
    sample.until("document.getElementById('keys').open")


async def test_entry_link_opens_the_branch_of_that_entry(page: Page, tmp_path: Path) -> None:
    file = await page_of(SAMPLE, tmp_path)
    page.show(file, "#e12")
    page.until(f"{CURRENT} !== undefined")
    assert "Quick one first please" in page.value(
        "document.getElementById('conversation').innerText"
    )


NUMBERS = "[...document.querySelectorAll('#conversation [id]')].map(e => e.id)"
SHOWN = "[...document.querySelectorAll('#conversation .number')].map(e => e.textContent)"


async def tree_of(store: MemoryStore, session: StreamId, folder: Path) -> tuple[Path, list[Entry]]:
    """Export `session` as a page; return its file, and the entries of the session's branch."""
    exported = await export_session(store, session, "html", ExportSelection())
    file = folder / "session.html"
    file.write_bytes(exported.content)
    leaf = (await store.state(session)).leaf
    assert leaf is not None
    return file, list(await store.branch(session, leaf))


async def test_every_entry_of_the_branch_has_its_number_and_id(page: Page, tmp_path: Path) -> None:
    store = empty_store()
    report = await imported(store, SAMPLE)
    file, branch = await tree_of(store, report.session, tmp_path)
    page.show(file)
    page.value("dispatchEvent(new Event('beforeprint'))")
    assert sorted(page.value(NUMBERS)) == sorted(f"e{entry.seq}" for entry in branch)
    assert sorted(page.value(SHOWN), key=int) == [str(entry.seq) for entry in branch]


async def test_page_of_a_fork_marks_inherited_entries(page: Page, tmp_path: Path) -> None:
    store = empty_store()
    origin = (await imported(store, SAMPLE)).session
    state = await store.state(origin)
    header = StreamHeader(
        StreamId("fork"), 1, fork=ForkPoint(origin, state.leaf, state.head, "path")
    )
    own = (new_tree(user("only in the fork")),)
    await store.commit(Commit(writes=(Write(stream=header.id, create=header, entries=own),), at=1))
    file, branch = await tree_of(store, header.id, tmp_path)
    page.show(file)
    page.value("dispatchEvent(new Event('beforeprint'))")
    ids = [f"e{e.seq}" if e.stream == header.id else f"e{e.id}" for e in branch]
    assert sorted(page.value(NUMBERS)) == sorted(ids)
    numbers = [str(e.seq) if e.stream == header.id else f"↑{e.seq}" for e in branch]
    assert sorted(page.value(SHOWN)) == sorted(numbers)
    page.show(file, f"#{ids[2]}")
    page.until(f"{CURRENT} === {ids[2]!r}")


async def test_link_to_a_tool_result_unfolds_its_call(page: Page, tmp_path: Path) -> None:
    file = await page_of(SAMPLE, tmp_path)
    page.show(file, "#e6")
    page.until(f"{CURRENT} === 'e4'")
    assert page.value("document.querySelector('#e6').closest('.block').id") == "e4"
    assert page.value("document.querySelector('#e6').open")
    assert page.value("document.querySelector('#e5').open") is False
    page.value("document.querySelector('#e5 .number').click()")
    page.until("document.querySelector('#e5').open")
    assert page.value("location.hash") == "#e5"


LUMINANCE = """
(() => {
  let node = document.querySelector(SELECTOR);
  let color = getComputedStyle(node).color;
  if (IS_BEHIND) {
    do { color = getComputedStyle(node).backgroundColor; node = node.parentElement; }
    while (node && color === 'rgba(0, 0, 0, 0)');
  }
  const canvas = document.createElement('canvas').getContext('2d');
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3)
    .map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
})()
"""


def luminance(page: Page, selector: str, *, is_behind: bool) -> float:
    """Relative luminance of an element's text, or of its background."""
    script = LUMINANCE.replace("SELECTOR", repr(selector))
    return page.value(script.replace("IS_BEHIND", "true" if is_behind else "false"))


@pytest.mark.all_only
@pytest.mark.parametrize("is_dark", [False, True])
async def test_text_has_enough_contrast_in_both_themes(
    page: Page, tmp_path: Path, *, is_dark: bool
) -> None:
    page.sized(1280, 900, is_dark=is_dark)
    page.show(await page_of(SAMPLE, tmp_path))
    for selector in (
        ".user .name", ".assistant .name", ".compaction .name", ".prose p", ".time", ".glimpse",
        ".tool-name", ".fold.tool .tool-name", ".hides", ".label", ".state.bad", ".row-text",
        ".side-line", "dt", ".word", ".day", ".prose code",
    ):  # fmt: skip
        text = luminance(page, selector, is_behind=False)
        back = luminance(page, selector, is_behind=True)
        contrast = (max(text, back) + 0.05) / (min(text, back) + 0.05)
        assert contrast >= 4.5, (selector, contrast)


@pytest.mark.all_only
def test_page_uses_the_system_theme_until_a_theme_is_chosen(sample: Page) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    light = sample.value(back)
    sample.sized(1280, 900, is_dark=True)
    dark = sample.value(back)
    assert light != dark
    sample.press("t")
    assert sample.value(back) == light
    sample.press("t")
    assert sample.value(back) == dark
    sample.press("t")
    assert sample.value("document.getElementById('theme').textContent") == "Auto"


@pytest.mark.all_only
async def test_narrow_page_shows_the_tree_in_a_drawer(page: Page, tmp_path: Path) -> None:
    page.sized(360, 740)
    page.show(await page_of(SAMPLE, tmp_path))
    assert page.value("document.documentElement.scrollWidth") <= 360
    shown = "document.getElementById('side').getBoundingClientRect().right > 100"
    assert page.value(shown) is False
    page.value("document.getElementById('menu').click()")
    page.until(shown)
    page.value("document.querySelectorAll('.row')[3].click()")
    page.until(f"!({shown})")


async def test_redacted_page_lists_its_replacements(page: Page, tmp_path: Path) -> None:
    page.show(await page_of(SAMPLE, tmp_path, ExportSelection(redact=("secrets", "paths"))))
    about = page.value("document.getElementById('about').innerText")
    assert "[cwd-1]" in about
    assert "1 cwd" in about
    assert "mira" not in page.value("document.documentElement.innerHTML")


@pytest.mark.all_only
async def test_exported_page_of_a_real_recording_can_be_opened(
    page: Page, tmp_path: Path, recordings: Path
) -> None:
    page.show(await page_of(recordings / "pi" / "large-session.jsonl", tmp_path))
    page.press("G")
    page.until("scrollY > 10000")
    page.press("e")
    assert page.complaints() == []
