"""The bytes of an exported page: it contains only its own scripts, for any transcript."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.formats.html import page
from perdure.interop.formats.transcript import transcript_of
from perdure.session.codec import encode
from perdure.session.messages import Message, TextPart, user
from perdure.session.notes import SessionInfoChanged
from tests.fakes.bundles import Making

VENDOR = Path(page.__file__).parents[3] / "data" / "html" / "vendor"
MANIFEST: dict[str, dict[str, str]] = json.loads((VENDOR / "manifest.json").read_text())

_texts = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    ["</script>", "<!--", "]]>", "{{script}}{{data}}", "</title><script>", "\u2028\x00&amp;"]
)


class Elements(HTMLParser):
    """The elements of a page, with the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._open = tag
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_data(self, data: str) -> None:
        if self._open in self.texts:
            self.texts[self._open][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


def written(text: str) -> bytes:
    making = Making()
    making.note(SessionInfoChanged(title=text))
    making.say(user(text), Message("assistant", (TextPart(text),), model=text))
    return page.render_page(transcript_of(making.made()))


@given(_texts)
def test_text_of_a_session_cannot_add_elements_to_the_page(text: str) -> None:
    plain, evil = Elements(written("x").decode()), Elements(written(text).decode())
    assert [tag for tag, _ in evil.found] == [tag for tag, _ in plain.found]
    making = Making()
    making.say(user(text))
    transcript = transcript_of(making.made())
    embedded = page.embed_json(transcript)
    assert not re.search("[<>&\u2028\u2029]", embedded)
    assert json.loads(embedded) == json.loads(encode(transcript))


def test_content_security_policy_allows_only_the_script_and_style_of_the_page() -> None:
    elements = Elements(written("x").decode())
    policy = next(
        attributes["content"] or ""
        for tag, attributes in elements.found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    script, style = elements.texts["script"][-1], elements.texts["style"][0]
    for kind, text in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    for part in ("default-src 'none'", "base-uri 'none'", "form-action 'none'", "img-src data:"):
        assert part in policy
    assert "trusted-types dompurify" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_page_loads_nothing_and_never_creates_markup_from_strings() -> None:
    elements = Elements(written("x").decode())
    for tag, attributes in elements.found:
        assert "src" not in attributes, tag
        assert (attributes.get("href") or "#").startswith("#"), tag
        assert not any(name.startswith("on") or name == "style" for name in attributes), tag
    script = own_script(elements.texts["script"][-1])
    makers = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc"
    assert re.search(makers, script) is None
    assert re.search(r"fetch\(|XMLHttpRequest|WebSocket|import\(|sendBeacon", script) is None


def own_script(script: str) -> str:
    """Return `script` of a page without the vendored libraries, recognized by their hashes."""
    for name in MANIFEST:
        vendored = (VENDOR / name).read_text("utf-8").partition("//# sourceMappingURL=")[0].rstrip()
        assert script.count(vendored) == 1, name
        script = script.replace(vendored, "")
    return script


def test_vendored_scripts_are_the_published_files() -> None:
    files = {path.name for path in VENDOR.glob("*.js")}
    assert files == MANIFEST.keys()
    for name, about in MANIFEST.items():
        content = (VENDOR / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == about["sha256"], name
        assert about["version"].encode() in content or about["package"] == "markdown-it"
        assert f"{about['package']}-{about['version']}" in (VENDOR / "LICENSES.txt").read_text()


def test_script_of_the_page_cannot_close_its_script_element() -> None:
    script = Elements(written("x").decode()).texts["script"][-1]
    assert re.search(r"</?script|sourceMappingURL", script, re.IGNORECASE) is None


def test_session_exported_twice_gives_the_same_page() -> None:
    assert written("x") == written("x")
    assert Elements(written("a <b> & c").decode()).texts["title"] == ["a <b> & c"]
