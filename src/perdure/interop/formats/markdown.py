"""Convert a transcript to Markdown, readable as plain text and in every CommonMark renderer.

A message's text cannot change the structure: it cannot end its message, start another one, or be
read as HTML. No renderer loads an image from a text or finds an unsafe link in it, and control
characters are made visible. User text becomes a block quote. Text of the model is not quoted; its
headings are lowered. Tool input and output are foldable code blocks.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from perdure.interop.formats.transcript import (
    STATE,
    Called,
    Medium,
    Piece,
    Result,
    Said,
    Strange,
    Thought,
    Transcript,
    TranscriptLine,
    brief,
)
from perdure.session.messages import MICROCENTS_PER_DOLLAR
from perdure.session.printable import safe

FORMAT = "markdown"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES = {
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool",
    "system": "System",
    "context": "Context",
    "compaction": "Summary",
    "branch_summary": "Summary of a branch that was left",
    "message": "Message",
    "custom": "Extension",
    "custom_message": "Note",
    "opaque": "Unreadable entry",
}
_SETTINGS = {
    "model_change": "The model is now",
    "thinking_change": "The thinking level is now",
    STATE: "Not shown: the state",
}

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"( {0,3})(#{1,6})(?=\s|$)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)\s*$")
_LEADING_SPACE = re.compile(r"^[ \t]+")
_LINE_END = re.compile(r"\r\n|\r|\n")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_TICKS = re.compile(r"`+")
_LINK = re.compile(r"\](?=[(:])|!(?=\[)")
"""Matches the end of a link's text, or the start of an image."""
_DESTINATION = re.compile(r"\s*(?:<([^>]*)|([^\s]*))")
_DESTINATION_CHARS = 512
_BLANK = re.compile(r"\\(?=[!-/:-@\[-`{-~])|[\x00-\x20\x7f-\x9f]")
_SCHEME = re.compile(r"([^/?#:]*):")
_SCHEMES = frozenset({"http", "https", "mailto"})
"""Allowed link schemes, besides local files. A link with another scheme could run a program."""
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&])")
_LOWER_BY = 2
_DEEPEST_HEADING = 6


def render_markdown(transcript: Transcript, *, has_all_branches: bool = False) -> bytes:
    """Return the current branch of `transcript` as Markdown; all branches if `has_all_branches`.

    Shape: the same transcript always gives the same bytes; the text ends with one line feed.
    """
    main = transcript.branch(transcript.leaf)
    blocks = [*_heading(transcript), *_conversation(transcript, main)]
    if has_all_branches:
        blocks += _other_branches(transcript, {line.number for line in main})
    text = "\n\n".join(block.rstrip("\n") for block in blocks if block)
    return (safe(text.replace("\r\n", "\n")) + "\n").encode()


def losses_of(transcript: Transcript) -> list[str]:
    """Return descriptions of the content of `transcript` that Markdown cannot express."""
    pieces = [piece for line in transcript.lines for piece in line.pieces]
    media = sum(isinstance(piece, Medium) for piece in pieces)
    media += sum(len(piece.media) for piece in pieces if isinstance(piece, Result))
    return [f"{media} media are named, not shown"] if media else []


def _heading(transcript: Transcript) -> Iterator[str]:
    facts = transcript.facts
    yield f"# {plain(facts.title or 'Untitled session')}"
    rows = [("Begun", _day_and_time(facts.created_at)), ("Folder", facts.cwd)]
    rows.append(("Model" if len(facts.models) == 1 else "Models", ", ".join(facts.models)))
    rows += [("Size", _size(transcript)), ("Session", facts.id)]
    replaced = ", ".join(f"{kind} {count}" for kind, count in facts.redacted.items())
    rows.append(("Replaced", replaced))
    yield "\n".join(f"- **{name}:** {plain(text)}" for name, text in rows if text)
    if facts.system_prompt:
        yield fold_block("Instructions", fence(facts.system_prompt, "text"))
    yield "---"


def _size(transcript: Transcript) -> str:
    facts = transcript.facts
    parts = [f"{facts.messages:,} message{'' if facts.messages == 1 else 's'}"]
    if facts.tokens:
        parts.append(f"{facts.tokens:,} tokens")
    if facts.cost_microcents:
        parts.append(f"${facts.cost_microcents / MICROCENTS_PER_DOLLAR:.4f}")
    return ", ".join(parts)


def _other_branches(transcript: Transcript, shown: set[int]) -> Iterator[str]:
    for leaf in transcript.leaves():
        lines = [line for line in transcript.branch(leaf) if line.number not in shown]
        if not lines:
            continue
        above = lines[0].parent
        where = "from the beginning"
        if above is not None:
            where = f"after entry {_number(transcript, transcript.lines[above])}"
        yield "---"
        yield f"# Another branch, {where}"
        yield from _conversation(transcript, lines)
        shown.update(line.number for line in lines)


def _conversation(transcript: Transcript, lines: Sequence[TranscriptLine]) -> Iterator[str]:
    answers = _answers(transcript, lines)
    used = {id(answer.result) for answer in answers.values()}
    for line in lines:
        if line.role == "tool" and line.pieces and all(id(p) in used for p in line.pieces):
            continue
        yield from _entry(transcript, line, answers, used)


class _Answer(msgspec.Struct, frozen=True):
    """The result of a tool call, and the number of the entry that contains the result."""

    result: Result
    number: str


def _answers(transcript: Transcript, lines: Iterable[TranscriptLine]) -> dict[int, _Answer]:
    """Map the ``id()`` of each call to its result: the first later result with the same call id."""
    waiting: dict[str, Called] = {}
    found: dict[int, _Answer] = {}
    for line in lines:
        for piece in line.pieces:
            if isinstance(piece, Called):
                waiting[piece.id] = piece
            elif isinstance(piece, Result) and piece.call_id in waiting:
                number = _number(transcript, line)
                found[id(waiting.pop(piece.call_id))] = _Answer(piece, number)
    return found


def _entry(
    transcript: Transcript, line: TranscriptLine, answers: dict[int, _Answer], used: set[int]
) -> Iterator[str]:
    if line.role in _SETTINGS:
        number = _number(transcript, line)
        yield f"*{number} · {_SETTINGS[line.role]} {plain(line.name or '')}.*"
        return
    name = _NAMES.get(line.role, line.role)
    label = f" · {plain(line.label)}" if line.label else ""
    yield f"## {_number(transcript, line)} · {plain(name)} · {_time(line.at)}{label}"
    note = _note(transcript, line)
    if note:
        yield f"*{note}*"
    pieces = [piece for piece in line.pieces if id(piece) not in used]
    for piece in pieces:
        yield _piece(line, piece, answers)
    if line.error:
        yield f"**Error:** {plain(line.error)}"
    if not pieces and not line.error:
        yield "*(nothing said)*"


def _number(transcript: Transcript, line: TranscriptLine) -> str:
    """Return the number of the line's entry in the form that commands accept.

    The number has a ``↑`` if a fork shares the entry with its origin.
    """
    session, _, number = line.id.rpartition("/")
    return number if session == transcript.facts.id else f"↑{number}"


def _note(transcript: Transcript, line: TranscriptLine) -> str:
    if line.role == "compaction":
        if line.is_undone:
            return "Undone: it hides nothing."
        kept = line.first_kept
        if kept is None or not transcript.lines[kept].number < line.number:
            return "For the model it replaces everything before it."
        number = _number(transcript, transcript.lines[kept])
        return f"For the model it replaces everything before entry {number}."
    if line.role in ("custom", "custom_message") and line.name:
        return plain(line.name) + (", never sent to a model" if line.is_outside else "")
    return ""


def _piece(line: TranscriptLine, piece: Piece, answers: dict[int, _Answer]) -> str:
    match piece:
        case Said(text=text):
            return quote(text) if line.role in ("user", "custom_message") else inert(text)
        case Thought(text=text, is_redacted=is_redacted):
            said = "(withheld by the provider)" if is_redacted else quote(text)
            return fold_block("Thinking", said)
        case Called():
            return _call(piece, answers.get(id(piece)))
        case Result():
            return fold_block(f"Result of {piece.name or 'a call'}", _result(piece))
        case Medium():
            return _medium(piece)
        case Strange(text=text):
            return fold_block("Data", fence(text, "json"))


def _call(call: Called, answer: _Answer | None) -> str:
    result = None if answer is None else answer.result
    state = " · no result" if result is None else " · failed" if result.is_error else ""
    if answer is not None:
        state += f" · result: entry {answer.number}"
    title = f"{call.name} {brief(call.brief, 80)}".strip() + state
    inside = [fence(call.args, "json")] if call.args != "{}" else []
    if result is not None:
        inside.append(_result(result))
    return fold_block(title, "\n\n".join(inside) or "(no arguments)")


def _result(result: Result) -> str:
    shown = [fence(result.text, "text")] if result.text.strip() else ["(no output)"]
    return "\n\n".join((*shown, *(_medium(medium) for medium in result.media)))


def _medium(medium: Medium) -> str:
    name = medium.name or medium.mime_type
    return f"*[{plain(name)}, {medium.byte_length:,} bytes, not in this file]*"


# -- containment of text


def plain(text: str) -> str:
    """Return `text` on one line with all Markdown escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def fence(text: str, language: str) -> str:
    """Return `text` as a code block whose fence is longer than any fence in `text`."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def fold_block(title: str, inside: str) -> str:
    """Return `inside` as a block with a `title`, foldable if the renderer supports it."""
    shown = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return (
        f"<details>\n<summary>{' '.join(shown.split())}</summary>\n\n{inside.strip()}\n\n</details>"
    )


def quote(text: str) -> str:
    """Apply `inert` to `text`, and return it as a block quote that no content of `text` can end.

    Tabs at the start of a line become spaces, because a tab after ``>`` would be narrower.
    """
    lines = (
        _LEADING_SPACE.sub(lambda found: found[0].expandtabs(4), line)
        for line in _LINE_END.split(text)
    )
    return "\n".join(f"> {line}".rstrip() for line in inert("\n".join(lines)).split("\n"))


def inert(text: str) -> str:
    """Return `text` as Markdown that ends every construct it opens, without HTML.

    Headings of `text` are lowered below the levels that perdure uses. Code in `text` stays code
    only if every renderer reads it as code, which is certain for a block whose fence starts a line,
    and for a span that ends on the line where it began.
    """
    lines = _LINE_END.split(text)
    out: list[str] = []
    stretch: list[str] = []  # lines without a blank one between them, outside code
    at = 0
    while at < len(lines):
        line = lines[at]
        length = _code_length(lines, at)
        if length or not line.strip():
            out += _inert_stretch(stretch)
            stretch = []
        if length:
            out += _close_fence(lines[at : at + length])
        elif line.strip():
            stretch.append(line)
        else:
            out.append("")
        at += length or 1
    out += _inert_stretch(stretch)
    return "\n".join(out).strip("\n")


def _code_length(lines: Sequence[str], at: int) -> int:
    """Return the number of lines of the fenced code that begins at line `at`; 0 if none begins.

    Code whose fence is not indented extends to its closing fence, or to the end of the text. An
    indented fence might belong to a list item; in a list item, the code can also end where the item
    ends. Code with an indented fence counts only if it ends at the same line in both cases: with
    and without a list item.
    """
    opened = _FENCE.match(lines[at])
    if opened is None or "`" in lines[at][opened.end() :]:
        return 0
    for n, line in enumerate((lines[index] for index in range(at + 1, len(lines))), 2):
        closed = _FENCE.match(line)
        if closed and closed[1].startswith(opened[1]) and not line[closed.end() :].strip():
            return n if not opened[0][0].isspace() or closed[0] == opened[0] else 0
        is_inside = line.startswith(opened[0][: opened.start(1) - opened.start()])
        if opened[0][0].isspace() and (
            (line.strip() and not is_inside) or "```" in line or "~~~" in line
        ):
            return 0
    return 0 if opened[0][0].isspace() else len(lines) - at


def _close_fence(code: Sequence[str]) -> list[str]:
    """Return fenced `code` with a closing fence, even if the text lacks one."""
    opened = _FENCE.match(code[0])
    assert opened is not None
    closed = _FENCE.match(code[-1]) if len(code) > 1 else None
    is_closed = closed is not None and closed[1].startswith(opened[1])
    is_closed = is_closed and closed is not None and not code[-1][closed.end() :].strip()
    return [*code] if is_closed else [*code, opened[1]]


def _inert_stretch(lines: Sequence[str]) -> list[str]:
    has_spans = not any(_is_ambiguous(line) for line in lines)
    return [_inert_line(line, has_spans=has_spans) for line in lines]


def _is_ambiguous(line: str) -> bool:
    """Return whether a renderer could read a code span from `line` to a later line."""
    if "\\`" in line or "|" in line:
        return True
    ends = [0, *(end for _, end in _code_spans(line))]
    begins = [*(begin for begin, _ in _code_spans(line)), len(line)]
    return any("`" in line[end:begin] for end, begin in zip(ends, begins, strict=True))


def _code_spans(line: str) -> list[tuple[int, int]]:
    """Return the start and end of each code span.

    The same number of backticks opens and closes a span.
    """
    runs = [found.span() for found in _TICKS.finditer(line)]
    later: dict[int, list[int]] = {}  # length -> runs of that length, the last one first
    for number in range(len(runs) - 1, -1, -1):
        begin, end = runs[number]
        later.setdefault(end - begin, []).append(number)
    spans: list[tuple[int, int]] = []
    taken = -1
    for number, (begin, end) in enumerate(runs):
        same = later[end - begin]
        same.pop()  # this one
        if number > taken and same:
            taken = same[-1]
            spans.append((begin, runs[taken][1]))
    return spans


def _inert_line(line: str, *, has_spans: bool) -> str:
    heading = _HEADING.match(line)
    if heading:
        marks = "#" * min(_DEEPEST_HEADING, len(heading[2]) + _LOWER_BY)
        line = heading[1] + marks + line[heading.end() :]
    elif _UNDERLINE.match(line) or _FENCE.match(line):
        line = "\\" + line.lstrip()
    pieces: list[str] = []
    at = 0
    for begin, end in _code_spans(line) if has_spans else ():
        ahead = line[begin : begin + _DESTINATION_CHARS]
        pieces += (_inert_text(line[at:begin], ahead), line[begin:end])
        at = end
    return "".join((*pieces, _inert_text(line[at:])))


def _inert_text(text: str, rest: str = "") -> str:
    """Return `text` without tags, images and unsafe links; `rest` follows `text` on the line.

    Characters of tags, images and unsafe links become character references, which no renderer reads
    as markup.
    """

    def _mark(found: re.Match[str]) -> str:
        if found[0] == "!":
            return "&#33;"
        at = found.end() + 1
        ahead = (text[at : at + _DESTINATION_CHARS] + rest)[:_DESTINATION_CHARS]
        return found[0] if _is_safe_destination(ahead) else "&#93;"

    return _TAG.sub("&lt;", _LINK.sub(_mark, text))


def _is_safe_destination(text: str) -> bool:
    """Return whether the link destination at the start of `text` is a web page or a local file."""
    found = _DESTINATION.match(text)
    written = (found[1] or found[2] or "") if found is not None else ""
    leads_to = _BLANK.sub("", html.unescape(written))
    scheme = _SCHEME.match(leads_to)
    if scheme is not None:
        return scheme[1].lower() in _SCHEMES
    is_whole = len(text) < _DESTINATION_CHARS or any(mark in leads_to for mark in "/?#")
    return bool(leads_to) and is_whole


def _moment(at: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=at)
    except OverflowError:
        return None


def _day_and_time(at: int) -> str:
    moment = _moment(at)
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M UTC")


def _time(at: int) -> str:
    moment = _moment(at)
    return "" if moment is None else moment.strftime("%H:%M:%S")
