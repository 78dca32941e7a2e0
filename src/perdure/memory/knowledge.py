"""Knowledge: Markdown and text files, cut into passages under their headings. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.kinds import CustomMessage
from perdure.session.messages import TextPart

KNOWLEDGE = "knowledge"
"""The ``custom_type`` of an entry that contains a passage."""

MARKDOWN = frozenset((".md", ".markdown"))
ENDINGS = MARKDOWN | {".txt"}
"""File name endings of the files that are indexed as knowledge."""

MOST_BYTES = 1024 * 1024
"""A file with more bytes is not read."""

_MOST_CHARACTERS = 1_200
"""A passage with more characters is cut at the end of a paragraph, or else of a line."""


class Passage(msgspec.Struct, frozen=True):
    """A part of a file; `heading` contains the headings above the part, joined by `` / ``."""

    text: str
    heading: str | None = None

    def entry_body(self, path: str) -> CustomMessage:
        """Return the entry body for this passage, which is a part of the file `path`."""
        details = {"path": path, "heading": self.heading}
        shown = (TextPart(self.text),)
        return CustomMessage(KNOWLEDGE, shown, in_context=False, details=details)


class Source(ShortRepr, frozen=True):
    """The source of a passage.

    `path` is the path of the file in its folder, and `heading` contains the headings above the
    passage.
    """

    path: str
    heading: str | None = None


def source_of(entry: Entry) -> Source | None:
    """Return the source of the passage in an entry; None for any other entry."""
    body = readable(entry) if entry.kind == CustomMessage.kind else None
    if not isinstance(body, CustomMessage) or body.custom_type != KNOWLEDGE:
        return None
    details = cast("Mapping[str, object]", body.details if isinstance(body.details, dict) else {})
    path, heading = details.get("path"), details.get("heading")
    return Source(
        path if isinstance(path, str) else "?", heading if isinstance(heading, str) else None
    )


def agent_subject(agent: str) -> str:
    """Return the subject under which knowledge of `agent` is stored.

    The subject contains a hash, so no person has the same subject.
    """
    return f"knowledge-{hashlib.blake2b(agent.encode(), digest_size=16).hexdigest()}"


def passages_of(text: str, *, is_markdown: bool) -> list[Passage]:
    """Return the passages of a file, in order; together they contain every word of the file."""
    sections = _sections_of(text) if is_markdown else [(None, text)]
    return [
        Passage(piece, heading) for heading, section in sections for piece in _pieces_of(section)
    ]


def _sections_of(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield a pair for each section: the headings above the section, and the lines of the section.

    The lines include the section's own heading.
    """
    above: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        level, title = (0, "") if fence else _heading_in(line)
        fence = _fence_after(fence, line)
        if level:
            yield _joined(above), "".join(lines)
            lines = []
            above = [(depth, name) for depth, name in above if depth < level]
            above.append((level, title))
        lines.append(line)
    yield _joined(above), "".join(lines)


def _joined(above: list[tuple[int, str]]) -> str | None:
    return " / ".join(name for _, name in above if name) or None


def _heading_in(line: str) -> tuple[int, str]:
    """Return level and text of a heading, such as ``## Hotels``; level 0 for any other line."""
    stripped = line.lstrip(" ")
    marks = len(stripped) - len(stripped.lstrip("#"))
    rest = stripped[marks:]
    if (
        not 1 <= marks <= 6
        or len(line) - len(stripped) > 3
        or rest[:1] not in ("", " ", "\t", "\n")
    ):
        return 0, ""
    return marks, " ".join(rest.rstrip().rstrip("#").split())[:200]


def _fence_after(fence: str, line: str) -> str:
    """Return the mark of the code block that is open after `line`; "" if no block is open."""
    stripped = line.strip()
    if fence:
        return "" if stripped.startswith(fence) and not stripped.strip(fence[0]) else fence
    for mark in ("`", "~"):
        count = len(stripped) - len(stripped.lstrip(mark))
        if count >= 3:
            return mark * count
    return ""


def _pieces_of(section: str) -> Iterator[str]:
    """Yield `section` in pieces of limited length, without blank pieces."""
    lines: list[str] = []
    size = 0
    for line in section.splitlines(keepends=True):
        is_paragraph = not line.strip() and size >= _MOST_CHARACTERS // 2
        if lines and (size + len(line) > _MOST_CHARACTERS or is_paragraph):
            yield from _piece(lines)
            lines, size = [], 0
        for start in range(0, len(line), _MOST_CHARACTERS):
            part = line[start : start + _MOST_CHARACTERS]
            if lines and size + len(part) > _MOST_CHARACTERS:
                yield from _piece(lines)
                lines, size = [], 0
            lines.append(part)
            size += len(part)
    yield from _piece(lines)


def _piece(lines: list[str]) -> Iterator[str]:
    text = "".join(lines).strip()
    if text:
        yield text
