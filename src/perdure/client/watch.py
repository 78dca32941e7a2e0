"""Watch a log: durable events without gap or repetition, merged with live events.

Durable events are read from the log by seq or position; a wake-up from the store does no more than
start the next read. Live events come from the `LiveBus` of this process, which also gets the events
of other processes if the store forwards them. Live events of a call come after the entry that opens
the call, and before the entry that closes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Self
from weakref import WeakKeyDictionary

from perdure.engine.turns.lease import leads_here
from perdure.errors import WrongArgument
from perdure.events.bus import Live, LiveBus, Relay, Subscription
from perdure.events.cursor import Cursor
from perdure.events.projection import events_of
from perdure.events.types import AnyEvent, Event
from perdure.session.entries import Entry, Positioned
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.info import erasure_in
from perdure.session.ledger import (
    Interrupted,
    ModelCalled,
    ModelFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from perdure.stores.lazy_session import SessionStorage
from perdure.stores.protocol import EMPTY, NamespaceReader

_PAGE = 500
"""The number of entries that are read at a time."""

_log = logging.getLogger(__name__)

_OPENS = frozenset((ModelCalled.kind, ToolStarted.kind))
_CLOSES = frozenset((ModelFinished.kind, ToolFinished.kind, Interrupted.kind))

_MODEL_CALLS = frozenset((ModelCalled.kind,))
_MODEL_ENDS = frozenset((ModelFinished.kind, Interrupted.kind))

_FOLLOWING: set[asyncio.Task[None]] = set()
"""The tasks that wait for changes; the event loop keeps only weak references to tasks."""

_Page = Sequence[tuple[Positioned, tuple[Event, ...]]]
"""A page of entries, each with its events."""

Read = Callable[[int], Awaitable[_Page]]
"""A function that returns at most `_PAGE` entries after a seq or position."""

_Feed = Callable[["Watch", "list[_Wakes]"], AsyncGenerator[AnyEvent]]
"""A function that yields the events of a watch, and adds its `_Wakes` to the given list."""


class Watch:
    """An endless iterator over events. A later watch can continue from the position `cursor`."""

    def __init__(self, feed: _Feed, after: int) -> None:
        self.cursor = Cursor(after)
        self._wakes: list[_Wakes] = []
        self._events = feed(self, self._wakes)

    def __repr__(self) -> str:
        return f"<Watch after={self.cursor.after}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyEvent:
        return await anext(self._events)

    async def aclose(self) -> None:
        """Stop watching.

        If another task waits for the next event, the iteration of that task ends.
        """
        try:
            await self._events.aclose()
        except RuntimeError:  # another task waits in it
            if not self._wakes:
                raise
            self._wakes[0].stop()


def watch_session(
    backing: SessionStorage, bus: LiveBus, stream: StreamId, after: int, head: int = EMPTY
) -> Watch:
    """Watch the session or flow `stream` after seq `after`; `head` is the seq of its newest entry.

    Raises: WrongArgument at the first step, if the stream has no entry with seq `after` yet,
    because the cursor then belongs to another log.
    """
    is_there = after <= head

    async def page(place: int) -> _Page:
        entries = await backing.log.entries(stream, place, _PAGE)
        return [(Positioned(entry.seq, entry), events_of(entry)) for entry in entries]

    async def read(place: int) -> _Page:
        nonlocal is_there
        found = await _together(backing.log, stream, place, page)
        if not (found or is_there):
            newest = (await backing.log.state(stream)).head
            if newest < after:
                raise WrongArgument(_past(stream, after, newest), argument="after")
        is_there = True
        return found

    # Register now, not at the first step, so that no change is missed.
    changes, live = backing.changes(stream), bus.subscribe(stream)
    elsewhere = _Elsewhere(bus.relay, backing.store, stream)
    return Watch(
        lambda watch, waits: _feed(watch, read, changes, live, elsewhere, waits=waits), after
    )


def watch_namespace(store: NamespaceReader, bus: LiveBus, after: int | None) -> Watch:
    """Watch the events of all streams after position `after`; None: events after this call.

    If `after` is greater than the newest position, a warning is logged, and the watch waits for
    newer entries. A position after the newest position is not an error, because the entry at
    `after` could have been removed.
    """

    async def page(place: int) -> _Page:
        return [(each, events_of(each.entry)) for each in await store.feed(place, _PAGE)]

    async def read(place: int) -> _Page:
        return await _together(store, None, place, page)

    async def feed(watch: Watch, waits: list[_Wakes]) -> AsyncGenerator[AnyEvent]:
        newest = await store.position() if after is None or after > 0 else 0
        if after is None:
            watch.cursor = Cursor(newest)
        elif after > newest:
            _log.warning(_PAST_POSITION, after, newest)
        found = _feed(watch, read, changes, live, elsewhere, waits=waits)
        async with aclosing(found) as events:
            async for event in events:
                yield event

    changes, live = store.changes(), bus.subscribe()
    elsewhere = _Elsewhere(bus.relay, store, None)
    return Watch(feed, 0 if after is None else after)


def _past(stream: StreamId, after: int, newest: int) -> str:
    return (
        f"after is {after}, and the newest entry of {stream!r} is {newest}: give that to watch "
        f"from now on, or {EMPTY} to begin with the first"
    )


_PAST_POSITION = (
    "a store is watched after position %d, and its newest is %d: no events follow until "
    "then; unless sessions were removed, the position is of another store, or a later state of it"
)

_Asked = dict[tuple[StreamId | None, int], "asyncio.Future[_Page]"]

_ASKED: WeakKeyDictionary[object, _Asked] = WeakKeyDictionary()
"""For each log, the pages that watches have requested and whose read has not started."""


async def _together(log: object, stream: StreamId | None, place: int, page: Read) -> _Page:
    """Return the page after `place`; watches that request the same page together share one read."""
    asked, key = _ASKED.setdefault(log, {}), (stream, place)

    async def read() -> _Page:
        await asyncio.sleep(0)
        # Wakes after this point can refer to commits that this read misses.
        del asked[key]
        return await page(place)

    if key not in asked:
        asked[key] = asyncio.ensure_future(read())
    return await asyncio.shield(asked[key])


async def _feed(
    watch: Watch,
    read: Read,
    changes: AsyncIterator[None],
    live: Subscription,
    elsewhere: _Elsewhere,
    *,
    waits: list[_Wakes],
) -> AsyncGenerator[AnyEvent]:
    wakes = _Wakes(changes, live)
    waits.append(wakes)
    elsewhere.begin()
    await asyncio.sleep(0)  # they are waited for before the first read
    order = _Order(watch)
    is_behind = True
    try:
        while True:
            order.take(live.take())
            if wakes.have_ended():
                return
            is_behind = wakes.take() or is_behind
            page: _Page = ()
            if is_behind or order.is_uncertain:
                page = await read(watch.cursor.after)
                is_behind = len(page) == _PAGE
                await elsewhere.catch_up(page, is_last=not is_behind)
                order.take_late(live.take())
            for event in order.merge_page(page, is_last=not is_behind):
                yield event
            elsewhere.take(page, is_last=not is_behind)
            if not (is_behind or order.is_uncertain or wakes.have_come):
                await live.wait()
    finally:
        wakes.stop()
        elsewhere.end()


class _Elsewhere:
    """Requests, for one watch, the live events of model calls that other processes run.

    A watch requests the events of a call after it has read the entry that opens the call. The watch
    of a session also requests the events of a call that was open before the watch began. The events
    of this process's own calls reach the watch without a request.
    """

    def __init__(self, relay: Relay | None, store: object, stream: StreamId | None) -> None:
        self._relay = relay
        self._store = store
        self._stream = stream
        self._has_read_all = False

    def begin(self) -> None:
        """Start to receive live events of other processes."""
        if self._relay is not None:
            self._relay.follow(self._stream)

    def end(self) -> None:
        """Stop receiving live events of other processes."""
        if self._relay is not None:
            self._relay.unfollow(self._stream)

    async def catch_up(self, page: _Page, *, is_last: bool) -> None:
        """Wait until the bus has all events of those model calls whose end is in `page`."""
        if self._relay is not None:
            await self._relay.catch_up(_calls_in(page, _MODEL_ENDS), is_last=is_last)

    def take(self, page: _Page, *, is_last: bool) -> None:
        """Report the calls that ended, and the erasures, in `page` to the relay.

        If `is_last`, also request the live events of the open calls that other processes run. Call
        this method after the events of `page` were emitted.
        """
        relay = self._relay
        if relay is None:
            return
        for stream, of in _calls_in(page, _CLOSES):
            relay.ended(stream, of)
        for positioned, _ in page:
            erased = erasure_in(positioned.entry)
            if erased is not None:
                seqs = None if erased.is_whole else erased.ranges
                relay.erased(positioned.entry.stream, seqs)
        if not is_last:
            return
        opened: dict[StreamId, int | None] = {}
        if self._stream is not None and not self._has_read_all:
            opened[self._stream] = None
        self._has_read_all = True
        opened.update(_calls_in(page, _MODEL_CALLS))
        for stream, call in opened.items():
            if not leads_here(self._store, stream):
                relay.call_elsewhere(stream, call)


def _calls_in(page: _Page, kinds: frozenset[str]) -> list[tuple[StreamId, int]]:
    """Return the calls that the entries of `kinds` in `page` open or close."""
    found: list[tuple[StreamId, int]] = []
    for positioned, _ in page:
        entry = positioned.entry
        if entry.kind not in kinds:
            continue
        if entry.kind in _OPENS:
            found.append((entry.stream, entry.seq))
        elif entry.about is not None:
            number = entry.about.rpartition("/")[2]
            found += [(entry.stream, int(number))] if number.isdecimal() else []
    return found


class _Wakes:
    """Waits for wake-ups of the store and for live events, on behalf of one watch.

    One task serves the whole watch, because a task for each wake-up would cost more than the event
    itself.
    """

    def __init__(self, changes: AsyncIterator[None], live: Subscription) -> None:
        self._is_due = False
        self._task = asyncio.ensure_future(self._follow(changes, live))
        _FOLLOWING.add(self._task)
        self._task.add_done_callback(_FOLLOWING.discard)

    async def _follow(self, changes: AsyncIterator[None], live: Subscription) -> None:
        try:
            async for _ in changes:
                self._is_due = True
                live.wake()
        finally:
            live.wake()

    @property
    def have_come(self) -> bool:
        """Whether `take` would report a change, or `have_ended` would report an end."""
        return self._is_due or self._task.done()

    def take(self) -> bool:
        """Return whether there was a change since the last call."""
        is_due, self._is_due = self._is_due, False
        return is_due

    def have_ended(self) -> bool:
        """Return whether the store or the watch was closed. Raises: the error of the store."""
        if not self._task.done():
            return False
        if not self._task.cancelled():
            self._task.result()
        return True

    def stop(self) -> None:
        """Stop waiting for changes."""
        self._task.cancel()


class _Order:
    """Buffers live events until they can be merged with the durable events.

    The entry that opens a call is committed before the first live event of the call is published.
    The entry that closes the call is committed after the last live event was published. Live events
    that were buffered before a read of the log are in `_ready`; the read contains the entries that
    open their calls. Live events that arrived during the read are in `_late`; the read does not
    always contain the entries that open their calls. If the read contains the entry that closes a
    call, the events of this call in `_late` still belong before this entry.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._ready: list[Live] = []
        self._late: list[Live] = []
        self._opened: set[EntryId] = set()
        self._closed: set[EntryId] = set()

    @property
    def is_uncertain(self) -> bool:
        """Whether some buffered events can only be emitted after the log is read."""
        taken = (*self._ready, *self._late)
        return any(_call_of(event) not in self._opened for event in taken)

    def take(self, events: Sequence[Live]) -> None:
        """Buffer `events` that arrived before the log is read."""
        self._ready += [event for event in (*self._late, *events) if self._is_open(event)]
        self._late = []

    def take_late(self, events: Sequence[Live]) -> None:
        """Buffer `events` that arrived during the read."""
        self._late = [event for event in events if self._is_open(event)]

    def merge_page(self, page: _Page, *, is_last: bool) -> Iterator[AnyEvent]:
        """Merge the events of `page` with live events; move the cursor with each entry."""
        for positioned, (*firsts, last) in page:
            entry = positioned.entry
            if entry.kind in _CLOSES and entry.about is not None:
                yield from self._closing(entry.about)
            self._note(entry)
            yield from firsts
            self._watch.cursor = Cursor(positioned.position)
            yield last
        if is_last:
            yield from self._ready
            self._opened.update(map(_call_of, self._ready))
            self._ready = []
            yield from self._picked(lambda call: call in self._opened)

    def _note(self, entry: Entry) -> None:
        if entry.kind in _OPENS:
            self._opened.add(entry.id)
        elif entry.kind == TurnFinished.kind:
            ended = f"{entry.stream}/"
            self._opened = {call for call in self._opened if not call.startswith(ended)}
            self._closed = {call for call in self._closed if not call.startswith(ended)}

    def _closing(self, call: EntryId) -> list[Live]:
        self._closed.add(call)
        return self._picked(lambda other: other == call)

    def _picked(self, is_meant: Callable[[EntryId], bool]) -> list[Live]:
        """Remove and return the buffered events of the calls for which `is_meant` is true."""
        taken = (*self._ready, *self._late)
        self._ready = [event for event in self._ready if not is_meant(_call_of(event))]
        self._late = [event for event in self._late if not is_meant(_call_of(event))]
        return [event for event in taken if is_meant(_call_of(event))]

    def _is_open(self, event: Live) -> bool:
        return _call_of(event) not in self._closed


def _call_of(event: Live) -> EntryId:
    return entry_id(event.stream, event.of)
