"""Transcripts can contain any text: none of it becomes markup of the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.export.conftest import page_of
from tests.fakes.browser import Page
from tests.fakes.samples import sampled

EVIL = [
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "<!--<script>",
    "]]></style><svg onload=window.pwned=3>",
    "{{data}}{{script}}",
    '[x](javascript:window.pwned=4) [y](https://a" onmouseover="window.pwned=5)',
    "javascript:window.pwned=6 https://x.example/<b>",
    "</textarea></title></noscript><iframe src=https://evil.example></iframe>",
    "\u202e\u2028\u2029\u0000\ufeff&lt;b&gt; ${window.pwned=7} `${1}`",
    "```</pre><script>window.pwned=8</script>",
    "| a | <b onclick=x> |\n|---|---|\n| <img src=x onerror=window.pwned=9> | c |",
    "- <script>window.pwned=10</script>\n  1. [a](data:text/html,<script>alert(1)</script>)",
]


def recording(texts: list[str]) -> bytes:
    """A pi session with each of `texts` in every place that can contain text."""
    at = "2026-04-02T09:14:07.120Z"
    lines: list[dict[str, object]] = [
        {"type": "session", "version": 3, "id": "evil", "timestamp": at, "cwd": texts[0]}
    ]
    parent = None
    for n, text in enumerate(texts):
        call = {"type": "toolCall", "id": f"c{n}", "name": text, "arguments": {text: text}}
        answer = [{"type": "thinking", "thinking": text}, {"type": "text", "text": text}, call]
        image = {"type": "image", "data": "PHN2Zz4=", "mimeType": text}
        result = [{"type": "text", "text": text}, image]
        answered = {"provider": text, "model": text, "errorMessage": text}
        called = {"toolCallId": f"c{n}", "toolName": text, "isError": True}
        messages: list[dict[str, object]] = [
            {"role": "user", "content": text},
            {"role": "assistant", "content": answer, **answered},
            {"role": "toolResult", "content": result, **called},
        ]
        for m, message in enumerate(messages):
            own = f"{n:04}{m:04}"
            place = {"id": own, "parentId": parent, "timestamp": at}
            lines.append({"type": "message", **place, "message": message})
            parent = own
        place = {"parentId": parent, "timestamp": at}
        lines.append(
            {"type": "label", "id": f"{n:04}000a", **place, "targetId": parent, "label": text}
        )
        lines.append({"type": "session_info", "id": f"{n:04}000b", **place, "name": text})
        lines.append({"type": text, "id": f"{n:04}000c", **place, "x": text})
        parent = f"{n:04}000c"
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@sampled("first", range(len(EVIL)), kind=type, each=1)
async def test_transcript_text_never_becomes_markup_or_script_on_the_page(
    page: Page, tmp_path: Path, first: int
) -> None:
    page.show(await page_of(recording([EVIL[first], *EVIL]), tmp_path))
    page.press("e")  # unfold everything
    page.press("/")
    page.write("window.pwned")
    page.until("document.querySelectorAll('.row.hit').length > 3")
    assert page.value("window.pwned === undefined")
    strange = (
        "document.querySelectorAll('script:not([type]), iframe, svg, style, b[onclick]').length"
    )
    assert page.value(strange) == 2  # the page's own script and style
    assert page.value("[...document.images].every(i => i.src.startsWith('data:image/'))")
    links = page.value("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert all(link.startswith(("#", "https://", "http://")) for link in links)
    assert [
        each for each in page.requested() if not each.startswith(("file:", "about:", "data:"))
    ] == []
    assert page.complaints() == []
    assert EVIL[first].split()[0][:5] in page.value("document.body.innerText")


async def test_page_security_policy_blocks_an_injected_script(page: Page, tmp_path: Path) -> None:
    page.show(await page_of(recording(EVIL[:1]), tmp_path))
    with pytest.raises(AssertionError, match="TrustedHTML"):
        page.value("document.body.innerHTML = '<img src=x onerror=alert(1)>'")
    page.value(
        "document.body.append(Object.assign(document.createElement('img'), {src: 'https://evil.example/x'}))"
    )
    page.value("fetch('https://evil.example/').catch(() => 0)")
    assert page.value("window.pwned === undefined")
    page.until("true")
    assert any("Content Security Policy" in text for text in page.complaints())
