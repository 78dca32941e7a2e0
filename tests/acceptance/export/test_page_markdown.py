"""Markdown on the page: its look, the omitted parts, and the time to render it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.export.conftest import page_of
from tests.fakes.browser import Page

PROSE = "document.querySelector('.block .prose')"
MOST_S = 3.0
LENGTH = 40_000
SLOW = [
    ("# x" + " " * 2_000 + "y\n") * 5,  # the text that hung the page
    "# x" + " " * LENGTH + "y",
    "a" + " " * LENGTH + "b",
    *(
        unit * (LENGTH // len(unit))
        for unit in ("*", "**a", "_a", "`", "``a`", "[", "[a](", "![a](")
    ),
    *(
        unit * (LENGTH // len(unit))
        for unit in ("> ", "- ", "  - ", "|a", "a|b\n-|-\n", "\\", "&a;")
    ),
    *(
        unit * (LENGTH // len(unit))
        for unit in ("http://a(", "https://a.", "[a]: b\n", "***a", "<a", "<!--")
    ),
    *(
        unit * (LENGTH // len(unit))
        for unit in ("\t", "```\n", "- a\n", "a**b**", "~~a", "\n\n> ", "(((")
    ),
    ">" * LENGTH + "a",
    "[" * (LENGTH // 2) + "]" * (LENGTH // 2),
]
XSS = [
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=2>",
    "<svg><style><!--</style><img src=x onerror=window.pwned=3>-->",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.pwned=4>",
    "<noscript><p title='</noscript><img src=x onerror=window.pwned=5>'>",
    "[a](javascript:window.pwned=6)",
    "[a](JaVaScRiPt&colon;window.pwned=7)",
    "[a](&#106;avascript:window.pwned=8)",
    "[a](java\tscript:window.pwned=9)",
    "[a](data:text/html,<script>window.pwned=10</script>)",
    "[a](vbscript:window.pwned=11)",
    '[a](https://a.example/"onmouseover="window.pwned=12)',
    "[a](<https://a.example/' onclick='window.pwned=13>)",
    "![a](x\" onerror=\"window.pwned=14)",
    "![a](javascript:window.pwned=15)",
    "<https://a.example/\"onclick=window.pwned=16>",
    "<javascript:window.pwned=17>",
    "[a]: javascript:window.pwned=18\n\n[a]",
    "```\"><script>window.pwned=19</script>\nx\n```",
    "```</code></pre><img/src=x/onerror=window.pwned=20>",
    "`<img src=x onerror=window.pwned=21>`",
    "| <img src=x onerror=window.pwned=22> |\n|---|\n| <b onclick=window.pwned=23> |",
    "https://a.example/'><img/src=x/onerror=window.pwned=24>",
    "<form><button formaction=javascript:window.pwned=25>x</button></form>",
    "<a href=\"javascript:window.pwned=26\" target=_self>x</a>",
    "<style>@import 'https://evil.example';</style><base href=https://evil.example/>",
    "<iframe srcdoc='<script>parent.pwned=27</script>'></iframe>",
    "<form id=attributes><input name=attributes><img name=getElementById></form>",
    "<a id=DOMPurify></a><a id=markdownit name=createHTML></a>",
    "&lt;img src=x onerror=window.pwned=28&gt;",
]  # fmt: skip


def recording(*texts: str) -> bytes:
    """A pi session that contains each of `texts` once."""
    at = "2026-04-02T09:14:07.120Z"
    lines: list[dict[str, object]] = [
        {"type": "session", "version": 3, "id": "md", "timestamp": at, "cwd": "/srv"}
    ]
    for n, text in enumerate(texts):
        parent = f"{n - 1:08}" if n else None
        message = {
            "role": "user" if n % 2 == 0 else "assistant",
            "content": [{"type": "text", "text": text}],
        }
        lines.append(
            {
                "type": "message",
                "id": f"{n:08}",
                "parentId": parent,
                "timestamp": at,
                "message": message,
            }
        )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def test_page_shows_markdown_as_html_elements(page: Page, tmp_path: Path) -> None:
    text = (
        "# One\n\nSome **bold**, *slanted*, ~~struck~~ and `code`.\nNext line.\n\n"
        "- [ ] open\n- [x] done\n  1. inner\n\n> quoted\n\n| a | b |\n|:--|--:|\n| 1 | 2 |\n\n"
        "```python\nprint(1)\n```\n\n[named](https://a.example/x) https://b.example/y. ![pic](https://c.example/z.png)"
    )
    page.show(await page_of(recording(text), tmp_path))

    def text_of(selector: str) -> list[str]:
        return page.value(f"[...{PROSE}.querySelectorAll('{selector}')].map(e => e.textContent)")

    assert text_of("h3") == ["One"]
    assert text_of("strong") == ["bold"]
    assert text_of("em") == ["slanted"]
    assert text_of("s") == ["struck"]
    assert text_of(".box") == ["☐", "☑"]
    assert text_of("ol > li") == ["inner"]
    assert text_of("blockquote p") == ["quoted"]
    assert text_of(".table td") == ["1", "2"]
    assert text_of(".code-box .code-name") == ["python"]
    assert text_of(".code-box pre") == ["print(1)"]
    links = page.value(f"[...{PROSE}.querySelectorAll('a')].map(a => [a.href, a.rel, a.target])")
    assert [href for href, _, _ in links] == [
        "https://a.example/x", "https://b.example/y", "https://c.example/z.png",
    ]  # fmt: skip
    assert {(rel, target) for _, rel, target in links} == {("noopener noreferrer", "_blank")}
    assert page.value(f"{PROSE}.querySelectorAll('img, [style]').length") == 0
    assert page.complaints() == []


ALLOWED = (
    *("a", "blockquote", "br", "button", "code", "div", "em", "h3", "h4", "h5", "h6", "hr", "li"),
    *("ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
)
ATTRIBUTES = (
    *("class", "href", "rel", "target", "start", "tabindex", "role", "aria-label", "type", "dir"),
)
EVERY = "[...document.querySelectorAll('.prose *')]"


@pytest.mark.parametrize("first", range(0, len(XSS), 10))
async def test_markdown_never_runs_scripts(page: Page, tmp_path: Path, first: int) -> None:
    texts = XSS[first : first + 10]
    page.show(await page_of(recording(*texts), tmp_path))
    page.until(f"document.querySelectorAll('.block .prose').length === {len(texts)}")
    for name in ("error", "click", "load", "mouseover"):
        page.value(
            f"{EVERY}.forEach(e => e.tagName === 'A' || e.dispatchEvent(new Event('{name}')))"
        )
    assert page.value("window.pwned === undefined")
    names = page.value(f"[...new Set({EVERY}.flatMap(e => [...e.attributes].map(a => a.name)))]")
    assert set(names) <= set(ATTRIBUTES)
    assert set(page.value(f"[...new Set({EVERY}.map(e => e.localName))]")) <= set(ALLOWED)
    links = "[...document.querySelectorAll('.prose a')]"
    assert page.value(f"{links}.every(a => /^https?:/.test(a.href))")
    assert [each for each in page.requested() if not each.startswith(("file:", "about:"))] == []
    assert page.complaints() == []


def cpu_s_of(page: Page, file: Path) -> float:
    """Return the CPU time of displaying `file`; other programs are not counted."""
    before = page.cpu_s()
    page.show(file)
    page.until("document.querySelectorAll('.block').length === 1")
    return sum(spent - before.get(process, 0) for process, spent in page.cpu_s().items())


@pytest.mark.timeout(600)  # what counts is the CPU time
@pytest.mark.all_only  # of its texts, the one that hung the page is tested below
async def test_markdown_is_rendered_within_the_time_limit(page: Page, tmp_path: Path) -> None:
    slow: list[str] = []
    for text in SLOW:
        file = await page_of(recording(text), tmp_path)
        if cpu_s_of(page, file) > MOST_S:
            slow.append(text[:20])
    assert slow == []


@pytest.mark.all_only
async def test_two_thousand_spaces_do_not_hang_the_page(page: Page, tmp_path: Path) -> None:
    file = await page_of(recording(SLOW[0]), tmp_path)
    assert cpu_s_of(page, file) < MOST_S
