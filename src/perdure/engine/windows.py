"""The window a context is built from, with what is pinned on its branch."""

from __future__ import annotations

from perdure.context.pinning import pins_of, with_pins
from perdure.session.fold import ContextWindow
from perdure.session.ids import EntryId, StreamId
from perdure.session.notes import Pin
from perdure.stores.protocol import LogReading


async def pinned_window(log: LogReading, stream: StreamId, leaf: EntryId | None) -> ContextWindow:
    """The window of the branch of `stream` that ends at `leaf`.

    The whole branch is read only where something that a compaction hides is pinned.
    Raises: SessionNotFound, EntryNotFound.
    """
    window = await log.context_window(stream, leaf)
    pins = pins_of(await log.notes(stream, (Pin.kind,)))
    if not pins:
        return window
    path = window.entries
    if window.hidden and not pins <= {entry.id for entry in path}:
        path = tuple(await log.branch(stream, leaf))
    return with_pins(window, path, pins)
