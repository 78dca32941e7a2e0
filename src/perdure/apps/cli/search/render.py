"""Hits as JSON data and as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from perdure.apps.terminal.output import local_time
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import clip, safe
from perdure.session.clock import timestamp
from perdure.session.search.values import Hit

_INDENT = 2


def hit_data(hit: Hit) -> dict[str, object]:
    """`hit` as JSON data. `entry_id` is null for the title a session was created with."""
    return {
        "session": hit.stream,
        "entry_id": hit.entry,
        "role": hit.role,
        "snippet": hit.snippet,
        "score": hit.score,
        "on_branch": hit.is_on_branch,
        "at": timestamp(hit.at),
        "about": hit.about,
        "marks": hit.marks,
    }


def hit_lines(hits: Sequence[Hit], width: int, style: Style) -> Iterator[str]:
    """Two lines for each of `hits`: what it is, and its snippet with the places that fit."""
    for hit in hits:
        yield _heading(hit, style)
        yield from (" " * _INDENT + line for line in _snippet_lines(hit, width - _INDENT, style))


def _heading(hit: Hit, style: Style) -> str:
    place = style.paint(clip(safe(hit.entry or hit.stream), 200), "strong")
    facts = [hit.role, local_time(hit.at)]
    if not hit.is_on_branch:
        facts.append("another branch")
    return f"{place}  {style.paint('  '.join(facts), 'faint')}"


def _snippet_lines(hit: Hit, width: int, style: Style) -> Iterator[str]:
    """The snippet, wrapped at spaces; marked by colour, or by brackets where there is none."""
    line, used = "", 0
    for text, is_mark in _pieces(hit):
        shown = style.paint(text, "label") if is_mark else text
        if is_mark and not style.is_coloured:
            shown = f"[{text}]"
        size = cell_len(text) + 2 * (is_mark and not style.is_coloured)
        if line and used + size > width:
            yield line.rstrip()
            line, used = "", 0
        if line or not text.isspace():
            line, used = line + shown, used + size
    if line:
        yield line.rstrip()


def _pieces(hit: Hit) -> Iterator[tuple[str, bool]]:
    """The snippet in words, spaces and marked places."""
    text, at = safe(hit.snippet), 0
    for first, last in (*hit.marks, (len(text), len(text))):
        for number, word in enumerate(text[at:first].split(" ")):
            if number:
                yield " ", False
            if word:
                yield word, False
        if last > first:
            yield text[first:last], True
        at = last
