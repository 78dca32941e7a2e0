"""Pinned entries: they remain in a context unchanged, even if other entries are dropped.

A pinned result includes its call, and a pinned call includes its results, because providers reject
a call without its result and a result without its call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow, Placed
from perdure.session.ids import EntryId
from perdure.session.messages import Message, ToolResultPart
from perdure.session.notes import Pin


def pins_of(notes: Iterable[Entry]) -> frozenset[EntryId]:
    """Return the entries that `notes` pin; the last note about an entry decides if it is pinned."""
    pinned: set[EntryId] = set()
    for note in notes:
        if note.kind != Pin.kind or note.about is None or note.is_erased:
            continue
        body = readable(note)
        if isinstance(body, Pin) and body.is_pinned:
            pinned.add(note.about)
        else:
            pinned.discard(note.about)
    return frozenset(pinned)


def with_pins(
    window: ContextWindow, path: Sequence[Entry], pins: frozenset[EntryId]
) -> ContextWindow:
    """Return `window` with the pinned entries of its branch `path`.

    Shape: entries of `pins` that are not on this branch are omitted.
    """
    wanted = _with_partners(path, pins)
    shown = {entry.id for entry in window.entries}
    hidden = tuple(entry for entry in path if entry.id in wanted and entry.id not in shown)
    return msgspec.structs.replace(window, pinned=hidden, pins=wanted)


def _with_partners(path: Sequence[Entry], pins: frozenset[EntryId]) -> frozenset[EntryId]:
    """Return the entries of `pins` that are on `path`, with their calls and results."""
    if not pins:
        return frozenset()
    asked: dict[str, EntryId] = {}
    groups: dict[EntryId, set[EntryId]] = {}
    for entry in path:
        message = readable(entry)
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


def results_without_call(entries: Sequence[Entry], pins: frozenset[EntryId]) -> list[EntryId]:
    """Return those pinned `entries` that have a tool result whose call precedes all `entries`."""
    found: list[EntryId] = []
    for place, entry in enumerate(entries):
        called = _results_in(readable(entry)) if entry.id in pins else frozenset[str]()
        before = place
        while called and before > 0:
            before -= 1
            called -= calls_of(readable(entries[before]))
        if called:
            found.append(entry.id)
    return found


def has_partners(near: Sequence[Placed], pins: frozenset[EntryId], end: int) -> bool:
    """Return True if `near` contains all calls and results that belong to the entries `pins`.

    `near` contains entries of a branch that come before the depth `end`. The caller knows all
    entries from `end` on. All results of a call come before the next answer. So `near` lacks no
    result if every call in `near` has a result, or if the next answer follows.
    """
    pieces: list[list[Placed]] = []
    for each in near:
        if not pieces or pieces[-1][-1].depth + 1 < each.depth:
            pieces.append([])
        pieces[-1].append(each)
    return all(_is_decided(piece, pins, end) for piece in pieces)


def _is_decided(piece: Sequence[Placed], pins: frozenset[EntryId], end: int) -> bool:
    said = [readable(each.entry) for each in piece]
    asking: set[int] = set()
    for place, each in enumerate(piece):
        if each.entry.id not in pins:
            continue
        if calls_of(said[place]):
            asking.add(place)
        for called in _results_in(said[place]):
            before = range(place - 1, -1, -1)
            found = next((n for n in before if called in calls_of(said[n])), None)
            if found is not None:
                asking.add(found)
            elif piece[0].depth > 0:
                return False
    is_joined = piece[-1].depth + 1 >= end
    return is_joined or all(_is_answered(calls_of(said[n]), said[n + 1 :]) for n in asking)


def _is_answered(calls: frozenset[str], after: Sequence[object]) -> bool:
    for body in after:
        if isinstance(body, Message) and body.role == "assistant":
            return True
        calls -= _results_in(body)
        if not calls:
            return True
    return False


def calls_of(body: object) -> frozenset[str]:
    """Return the ids of the tool calls that `body` requests, if it is an assistant message."""
    if not isinstance(body, Message) or body.role != "assistant":
        return frozenset()
    return frozenset(call.id for call in body.tool_calls)


def _results_in(body: object) -> frozenset[str]:
    if not isinstance(body, Message):
        return frozenset()
    return frozenset(part.call_id for part in body.parts if isinstance(part, ToolResultPart))
