"""Pinned entries: they stay in a context as they were said, whatever else is left out of it.

A pinned result brings its call along, and a pinned call its results: alone they say nothing that a
provider would take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perdure.context.emission import readable_body
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow
from perdure.session.ids import EntryId
from perdure.session.messages import Message, ToolResultPart
from perdure.session.notes import Pin


def pins_of(notes: Iterable[Entry]) -> frozenset[EntryId]:
    """The entries that are pinned after `notes` (in log order); the last note about one counts."""
    pinned: set[EntryId] = set()
    for note in notes:
        if note.kind != Pin.kind or note.about is None or note.is_erased:
            continue
        body = readable_body(note)
        if isinstance(body, Pin) and body.is_pinned:
            pinned.add(note.about)
        else:
            pinned.discard(note.about)
    return frozenset(pinned)


def with_pins(
    window: ContextWindow, path: Sequence[Entry], pins: frozenset[EntryId]
) -> ContextWindow:
    """`window` with what of `path`, the branch it is the end of, is pinned.

    Shape: of `pins` those that are on no other branch only.
    """
    wanted = _with_partners(path, pins)
    shown = {entry.id for entry in window.entries}
    hidden = tuple(entry for entry in path if entry.id in wanted and entry.id not in shown)
    return msgspec.structs.replace(window, pinned=hidden, pins=wanted)


def _with_partners(path: Sequence[Entry], pins: frozenset[EntryId]) -> frozenset[EntryId]:
    """Those of `pins` on `path`, with the calls and results that belong to them."""
    if not pins:
        return frozenset()
    asked: dict[str, EntryId] = {}
    groups: dict[EntryId, set[EntryId]] = {}
    for entry in path:
        message = readable_body(entry)
        if not isinstance(message, Message):
            continue
        if message.role == "assistant" and message.tool_calls:
            groups[entry.id] = {entry.id}
            asked.update((call.id, entry.id) for call in message.tool_calls)
        for part in message.parts:
            if isinstance(part, ToolResultPart) and part.call_id in asked:
                groups[asked[part.call_id]].add(entry.id)
    found = {entry.id for entry in path if entry.id in pins}
    for group in groups.values():
        if group & found:
            found |= group
    return frozenset(found)
