"""Write a transcript as one HTML file that loads no other file: it embeds script, style and data.

The page contains the transcript only as data, in JSON without a single ``<``. The page shows the
data of the transcript as text nodes, or as Markdown that a sanitizer cleaned. A content security
policy in the page forbids every script, style, image, frame, form and connection that is not part
of the page. Only the sanitizer of Markdown is allowed to convert strings to markup.
"""

from __future__ import annotations

import hashlib
import html
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

import msgspec

from perdure.interop.formats.transcript import Transcript
from perdure.session.codec import encode

FORMAT = "html"

_PACKAGE = "perdure"
_FOLDER = ("data", "html")
_VENDOR = ("vendor/markdown-it.min.js", "vendor/dompurify.min.js")
_SCRIPTS = ("text.js", "session.js", "conversation.js", "sidebar.js", "page.js")
_DATA = b'<script type="application/json" id="data">'
_DATA_END = b"</script>"
_MARKER = re.compile(r"\{\{(\w+)\}\}")
_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
_UNSAFE = re.compile(f"[{''.join(_ESCAPES)}]")


def render_page(transcript: Transcript) -> bytes:
    """Return the HTML page of `transcript`; the same transcript always gives the same bytes."""
    script, style = _script(), asset("page.css")
    types = ("require-trusted-types-for 'script'", "trusted-types dompurify")
    texts = {
        "policy": html.escape(policy_of(script, style, ("img-src data:",), types)),
        "title": html.escape(transcript.facts.title or "Session"),
        "style": style,
        "script": script,
        "data": embed_json(transcript),
    }
    return fill(asset("page.html"), texts)


def transcript_in(content: bytes) -> Transcript:
    """Return the transcript that the page `content` shows."""
    data = content.partition(_DATA)[2].partition(_DATA_END)[0]  # contains no "<"
    return msgspec.json.decode(data, type=Transcript)


def fill(template: str, texts: Mapping[str, str]) -> bytes:
    """Return `template` with each marker replaced by a text; `texts` maps markers to texts."""
    return _MARKER.sub(lambda marker: texts[marker[1]], template).encode()


def embed_json(value: object) -> str:
    """Return `value` as JSON that is safe inside a ``script`` element.

    Shape: the text has no ``<``, ``>`` or ``&``; in JSON, these three characters can only be inside
    strings, and in strings they are escaped.
    """
    return _UNSAFE.sub(lambda found: _ESCAPES[found[0]], encode(value).decode())


def policy_of(script: str, style: str, media: Sequence[str] = (), types: Sequence[str] = ()) -> str:
    """Return a security policy that forbids everything but `script`, `style` and `media`.

    `types` are the directives that limit which code can convert text to markup.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            *media,
            "base-uri 'none'",
            "form-action 'none'",
            *types,
        )
    )


def _digest(text: str) -> str:
    """Return the hash of a script or style in the form in which a security policy lists it."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _script() -> str:
    """Return the page's script: the libraries, then the page's own files inside one function."""
    vendored = "".join(f"{_without_map(asset(name))};\n" for name in _VENDOR)
    parts = "\n".join(asset(name) for name in _SCRIPTS)
    return f'{vendored}(() => {{\n"use strict";\n{parts}}})();\n'


def _without_map(script: str) -> str:
    """Return `script` without its last comment, which names a source map that pages do not have."""
    return script.partition("//# sourceMappingURL=")[0].rstrip()


@cache
def asset(name: str) -> str:
    """Return the content of the file `name`, for example a script or style of the pages."""
    return resources.files(_PACKAGE).joinpath(*_FOLDER, name).read_text(encoding="utf-8")
