"""The index of an archive: one page that lists and searches the pages of many sessions.

Like the pages of the sessions, the index loads no other file: its rows are JSON in the page. A
script shows the rows as text nodes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

import msgspec

from perdure.interop.formats.html.page import asset, embed_json, fill, policy_of
from perdure.interop.formats.transcript import (
    Called,
    Medium,
    Piece,
    Result,
    Said,
    Strange,
    Thought,
    Transcript,
)
from perdure.session.ids import StreamId, blob_hash

INDEX = "index.html"

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_HASHED = len("sha256-") + 16


class ArchiveRow(msgspec.Struct, frozen=True):
    """One session in the index. A search covers `text`. `facts` are shown below the title."""

    file: str
    title: str
    facts: str
    text: str


def render_index(rows: Sequence[ArchiveRow]) -> bytes:
    """Return the index page that lists `rows`; the same rows always give the same bytes."""
    script = f'(() => {{\n"use strict";\n{asset("archive.js")}}})();\n'
    style = asset("archive.css")
    texts = {
        "policy": html.escape(policy_of(script, style)),
        "style": style,
        "script": script,
        "data": embed_json(list(rows)),
    }
    return fill(asset("archive.html"), texts)


def searched_text(transcript: Transcript) -> str:
    """Return the text that the index searches: all branches, as plain text and not as Markdown.

    The text begins with the title and the instructions of the session.
    """
    facts = transcript.facts
    found = [facts.title, facts.system_prompt]
    for line in transcript.lines:
        found += [line.label, line.name]
        found += [text for piece in line.pieces for text in _texts_of(piece)]
        found.append(line.error)
    return "\n".join(filter(None, found))


def _texts_of(piece: Piece) -> Iterator[str | None]:
    match piece:
        case Said(text=text) | Strange(text=text) | Thought(text=text, is_redacted=False):
            yield text
        case Called(name=name, args=args):
            yield from (name, args)
        case Result(text=text, media=media):
            yield text
            yield from (medium.name for medium in media)
        case Medium(name=name):
            yield name
        case Thought():
            return


def page_name(session: StreamId) -> str:
    """Return the file name of a session's page; a hash replaces ids that cannot be file names."""
    if _PLAIN.fullmatch(session) and session != INDEX.removesuffix(".html"):
        return f"{session}.html"
    return f"{blob_hash(session.encode())[:_HASHED]}.html"
