"""Read the entries from which a context is built (the window), with the pinned entries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from perdure.context.incremental.conversation import Conversation, conversation_of
from perdure.context.pins import has_partners, pins_of, results_without_call, with_pins
from perdure.session.entries import Entry
from perdure.session.fold import BranchState, ContextWindow, Placed
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import MESSAGE, Custom, CustomMessage
from perdure.session.ledger import History
from perdure.session.notes import CompactionUndone, ContentErased, LeafMoved, Pin
from perdure.stores.access.collector import collector_paused
from perdure.stores.protocol import LogReader

_LENGTHENING = frozenset({MESSAGE, Custom.kind, CustomMessage.kind})
"""Tree entries that only extend the window."""

_TURNING = frozenset({CompactionUndone.kind, ContentErased.kind, LeafMoved.kind, Pin.kind})
"""Side entries that may change the window."""

_FIRST_REACH, _MOST_REACH = 4, 256
"""How many entries around a pin are read to find its calls and results: at first, and at most."""


LONG = 2**20
"""If entries are larger than this in total, they are decoded in a thread. Units: bytes."""


async def pinned_window(
    log: LogReader, stream: StreamId, leaf: EntryId | None, notes: Sequence[Entry] | None = None
) -> ContextWindow:
    """Return the window of the branch of `stream` that ends at `leaf`.

    The window includes pinned entries that a compaction hides, and the entries that belong to these
    pinned entries. `notes` are the stream's side entries of kind ``pin``, if they were already
    read.

    Raises: SessionNotFound; EntryNotFound if `leaf` does not exist.
    """
    window = await log.context_window(stream, leaf)
    pins = pins_of(await log.notes(stream, (Pin.kind,)) if notes is None else notes)
    if not pins:
        return window
    near = await near_pins(log, stream, window, pins) if window.hidden else ()
    if near is None:
        return with_pins(window, await log.branch(stream, leaf), pins)
    return with_pins(window, [*(each.entry for each in near), *window.entries], pins)


async def near_pins(
    log: LogReader, stream: StreamId, window: ContextWindow, pins: frozenset[EntryId]
) -> tuple[Placed, ...] | None:
    """Return the entries before `window` that the context contains because of `pins`.

    The result contains the pinned entries, and the tool calls and results that belong to pinned
    entries.
    Shape: the entries are in order; other entries can be between them. The result is None if the
    whole branch must be read to find all pinned entries.
    """
    outside = sorted(pins.difference(entry.id for entry in window.entries))
    outside += results_without_call(window.entries, pins)
    if not outside or window.leaf is None:
        return ()
    first, reach = window.hidden + window.earlier, _FIRST_REACH
    while reach <= _MOST_REACH:
        near = await log.around(stream, window.leaf, outside, reach)
        if has_partners(near, pins, first):
            return tuple(each for each in near if each.depth < first)
        reach *= 4
    return None


def are_long(entries: Iterable[Entry]) -> bool:
    """Return whether decoding the bodies of `entries` would block the event loop."""
    return sum(len(entry.body) for entry in entries) > LONG


def _conversation_of(window: ContextWindow, history: History) -> Conversation:
    with collector_paused():
        return conversation_of(window, history)


class FollowedWindow:
    """The window of a stream's branch as a conversation: read once, then extended by new entries.

    The owner of the window passes every later entry to `follow`, in order. If an entry can change
    more than the end of the window, the window is read again.
    """

    def __init__(self, log: LogReader, stream: StreamId, history: History = "full") -> None:
        self._log = log
        self._stream = stream
        self._history: History = history
        self._conversation: Conversation | None = None
        self._leaf: EntryId | None = None
        self._added: list[Entry] = []

    @property
    def leaf(self) -> EntryId | None:
        """The last entry of the branch, including all followed entries.

        The value is None if the branch is empty or has to be read first.
        """
        return None if self._conversation is None else self._leaf

    async def settings(self) -> BranchState:
        """Return the settings at the end of the branch; new messages never change them.

        Raises: SessionNotFound if the stream does not exist.
        """
        return (self._conversation or await self.now()).state

    async def settings_at(
        self, leaf: EntryId | None, pins: Sequence[Entry] | None = None
    ) -> BranchState:
        """Return the `settings` of the branch that ends at `leaf`.

        `pins` are the stream's side entries of kind ``pin``, if they were already read.
        Raises: SessionNotFound if the stream does not exist.
        """
        if self._conversation is None:
            self._begin(await self._read(leaf, pins))
        return await self.settings()

    async def now(self) -> Conversation:
        """Return the conversation, including all entries that were given to `follow`.

        Raises: SessionNotFound if the stream does not exist.
        """
        conversation = self._conversation
        if conversation is not None and are_long(self._added):
            return await self._extend(conversation, tuple(self._added))
        if conversation is not None and self._added:
            conversation = conversation.extend(self._added)
        if conversation is None:
            conversation = await self._read((await self._log.state(self._stream)).leaf)
        self._begin(conversation)
        return conversation

    def _begin(self, conversation: Conversation) -> None:
        self._conversation, self._leaf, self._added = conversation, conversation.leaf, []

    async def _extend(self, known: Conversation, added: Sequence[Entry]) -> Conversation:
        """Extend `known` by `added` in a thread, without blocking the event loop."""
        conversation = await asyncio.to_thread(known.extend, added)
        if self._conversation is not known:  # another entry changed the branch meanwhile
            return await self.now()
        self._conversation, self._added = conversation, self._added[len(added) :]
        return conversation if conversation is not None else await self.now()

    async def _read(
        self, leaf: EntryId | None, pins: Sequence[Entry] | None = None
    ) -> Conversation:
        window = await pinned_window(self._log, self._stream, leaf, pins)
        if are_long(window.entries):
            return await asyncio.to_thread(_conversation_of, window, self._history)
        return _conversation_of(window, self._history)

    def follow(self, entries: Iterable[Entry]) -> None:
        """Add the stream's next `entries`; after some entries, the window must be read again."""
        for entry in entries:
            if self._conversation is None:
                return
            if entry.lane == "tree":
                is_next = entry.parent_id == self._leaf and entry.kind in _LENGTHENING
                if is_next:
                    self._added.append(entry)
                    self._leaf = entry.id
            else:
                is_next = entry.kind not in _TURNING
            if not is_next:
                self._conversation, self._added = None, []
