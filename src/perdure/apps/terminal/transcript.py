"""Whole entries as text: for each entry, a heading and the complete content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from perdure.apps.terminal.approvals import past_call_lines
from perdure.apps.terminal.contexts import part_lines, tool_names
from perdure.apps.terminal.output import local_time
from perdure.apps.terminal.previews import (
    NOT_SEEN,
    entry_name,
    preview_of,
    role_meaning,
    who_of,
)
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import safe
from perdure.errors import SessionError
from perdure.session.codec import Body, body_of
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.kinds import BranchSummary, Compaction, CustomMessage
from perdure.session.ledger import ToolStarted
from perdure.session.messages import Message, Part, ToolCallPart

_ONE_LINE = 400
"""Maximum width, in cells, of an entry without text, such as a change of the model."""


def transcript_lines(
    entries: Sequence[Entry], session: StreamId, style: Style, before: Iterable[Entry] = ()
) -> Iterator[str]:
    """Return `entries` of the tree of `session` in full, separated by blank lines.

    Entries in `before` are not shown, but read for the names of tools whose results are in
    `entries`.
    """
    bodies = map(_read, chain(before, entries))
    names = tool_names(body for body in bodies if isinstance(body, Message))
    for number, entry in enumerate(entries):
        if number:
            yield ""
        yield _heading(entry, session, style)
        yield from _content(entry, style, names)


def cut_lines(cut: str | None, style: Style) -> Iterator[str]:
    """Return the lines of the partial answer `cut` after the last entry; none if `cut` is None."""
    if cut is not None:
        yield from ("", style.paint("partial answer, not in the context", "faint"), safe(cut))


def _heading(entry: Entry, session: StreamId, style: Style) -> str:
    who, meaning = who_of(entry)
    body = _read(entry)
    facts = [local_time(entry.at)]
    if isinstance(body, Message):
        facts += [each for each in (body.author, body.model) if each]
    heading = style.paint(f"{entry_name(entry.id, session)} {safe(who)}", meaning)
    return f"{heading}  {style.paint(safe('  '.join(facts)), 'faint')}"


def _content(entry: Entry, style: Style, names: Mapping[str, str]) -> Iterator[str]:
    match _read(entry):
        case Message(parts=parts, error=error):
            for part in parts:
                yield from _part(part, style, names)
            if error:
                yield style.paint(safe(error), "bad")
        case CustomMessage(parts=parts, in_context=is_seen):
            for part in parts:
                yield from _part(part, style)
            if not is_seen:
                yield style.paint(NOT_SEEN, "faint")
        case Compaction(summary=text) | BranchSummary(summary=text):
            yield style.paint(safe(text), role_meaning("system"))
        case ToolStarted(id=call, tool=name, input=args):
            yield from _part(ToolCallPart(call, name, args), style)
        case _:
            told = preview_of(entry, _ONE_LINE).what or entry.body.decode(errors="replace")
            yield style.paint(safe(told), "faint")


def _part(
    part: Part, style: Style, names: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    if isinstance(part, ToolCallPart) and (lines := list(past_call_lines(part.args))):
        yield f"→ {safe(part.name)}" + style.paint(f"  {safe(part.id)}", "faint")
        yield from lines
    else:
        yield from part_lines(part, style, names)


def _read(entry: Entry) -> Body | None:
    try:
        return body_of(entry)
    except SessionError:
        return None
