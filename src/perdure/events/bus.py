"""Deliver live events from the call that produces them to its observers in this process.

The bus stores no live event after the end of its call. Publishing never waits and never fails. Each
subscriber has a bounded buffer; a subscriber that falls behind receives a `Snapshot` of every open
call instead of the missed events. Every new subscriber starts with a `Snapshot` of every open call.
The bus does not carry durable events of a stream; observers read durable events from the log.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

from perdure.events.envelope import EventDraft
from perdure.events.types import LiveEvent, LiveType, Snapshot
from perdure.secrets.mask import log_failure
from perdure.session.ids import StreamId
from perdure.session.messages import Message, TextPart, ThinkingPart

CAPACITY = 1024
"""Maximum live events in a subscriber's buffer before snapshots replace them."""

PROGRESS_CHARACTERS = 64 * 1024
"""A snapshot contains at least this many of the last characters that an open tool call printed.

Answers are complete in a snapshot.
"""

Live = LiveEvent | Snapshot
LiveObserver = Callable[[LiveEvent], object]

Piece = tuple[LiveType, str]
"""An event type, and the joined text of a call's consecutive events of this type."""

_log = logging.getLogger(__name__)


class Relay(Protocol):
    """Passes live events from this process to others, and from other processes to the bus."""

    def shown(self, event: LiveEvent, epoch: int) -> None:
        """Pass an event of this process to other processes; never wait or raise.

        `epoch` is the number of the lease under which the event was published.
        """
        ...

    async def settle(self, stream: StreamId, of: int) -> None:
        """Wait until other processes can read all events of a finished call of this process.

        This method never raises, and waits only briefly.
        """
        ...

    def closed(self, stream: StreamId, of: int) -> None:
        """Handle the end of a call of this process, with or without an outcome in the log."""
        ...

    def follow(self, stream: StreamId | None) -> None:
        """Register a new watch of `stream`, or of all streams if `stream` is None."""
        ...

    def unfollow(self, stream: StreamId | None) -> None:
        """Unregister a watch for which `follow` was called."""
        ...

    def call_elsewhere(self, stream: StreamId, of: int | None) -> None:
        """Fetch the events of another process's call `of`.

        If `of` is None, fetch the events of all open calls in `stream`.
        """
        ...

    async def catch_up(self, calls: Sequence[tuple[StreamId, int]], *, is_last: bool) -> None:
        """Give the bus the events of other processes' `calls`.

        According to the log, the `calls` have ended. `is_last` is False if the log has newer
        entries. If `is_last` is False, the bus receives only the events of calls that the bus knows
        as open.
        """
        ...

    def ended(self, stream: StreamId, of: int) -> None:
        """Handle the end of a call of another process, as recorded in the log."""
        ...

    def erased(self, stream: StreamId, seqs: Sequence[tuple[int, int]] | None) -> None:
        """Handle the erasure of the entries `seqs` (first, last) of `stream`; None means all."""
        ...


@runtime_checkable
class SharesLiveEvents(Protocol):
    """A store that passes live events between the processes that have it open."""

    def share(self, bus: LiveBus) -> None:
        """Connect `bus` with the buses of other processes until the store is closed."""
        ...


class LiveBus:
    """Distributes live events to subscribers and observers.

    A bus serves the tasks of one event loop. A `relay` connects the bus with the buses of other
    processes, if the store has a relay.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._open: dict[tuple[StreamId, int], _OpenCall] = {}
        self._subscriptions: weakref.WeakValueDictionary[StreamId | None, _Group] = (
            weakref.WeakValueDictionary()
        )
        self._observers: list[LiveObserver] = []
        self.relay: Relay | None = None

    def publish(self, event: LiveEvent, epoch: int = 0) -> None:
        """Send `event` to all subscribers of its stream. The call never waits and never raises.

        Other processes receive the event only if `epoch` matches the lease of the event's stream.
        """
        self.receive(event)
        if self.relay is not None:
            self.relay.shown(event, epoch)
        for observer in tuple(self._observers):
            try:
                observer(event)
            except Exception as error:  # noqa: BLE001 - whatever an observer does, the others go on
                log_failure(_log, error, "an observer of live events failed")

    def receive(self, event: LiveEvent) -> None:
        """Add `event` to its open call, and send it to the subscribers in this process."""
        key = (event.stream, event.of)
        call = self._open.get(key)
        if call is None:
            call = self._open[key] = _OpenCall()
        call.add(event)
        self._offer(event)

    def receive_whole(
        self, stream: StreamId, of: int, n: int, at: int, pieces: Sequence[Piece]
    ) -> None:
        """Send the subscribers all output of another process's call, up to event number `n`."""
        call = self._open[stream, of] = _OpenCall()
        for type_, text in pieces:
            call.add(LiveEvent(stream, of, n, type_, at, text))
        self._offer(call.snapshot(stream, of))

    def _offer(self, event: Live) -> None:
        for stream in (event.stream, None):
            group = self._subscriptions.get(stream)
            for subscription in () if group is None else tuple(group.members):
                subscription.offer(event)

    def tell(self, draft: EventDraft, at: int, epoch: int = 0) -> LiveEvent:
        """Give `draft` the next number in its call, and publish it under the lease `epoch`.

        Units: `at` is Unix milliseconds.
        Raises: ValueError if the draft belongs to no stream or to two streams. A rejected draft
        uses up no number.
        """
        stream, of = draft.stream, draft.of
        call = self._open.get((stream, of))
        n = 1 if call is None else call.n + 1
        event = LiveEvent(stream, of, n, draft.type, at, draft.text, draft.agent, draft.model)
        self.publish(event, epoch)
        return event

    async def settle(self, stream: StreamId, of: int) -> None:
        """Wait until other processes can read all events of the finished call `of`."""
        if self.relay is not None and (stream, of) in self._open:
            await self.relay.settle(stream, of)

    def close_call(self, stream: StreamId, of: int) -> None:
        """End the call `of` of this process, with or without an outcome; delete its live state."""
        if self._open.pop((stream, of), None) is not None and self.relay is not None:
            self.relay.closed(stream, of)

    def drop_call(self, stream: StreamId, of: int) -> None:
        """Delete the live state of a call of another process."""
        self._open.pop((stream, of), None)

    def open_calls(self, stream: StreamId) -> list[int]:
        """Return the open calls of `stream` that have already produced an event."""
        return [of for of_stream, of in self._open if of_stream == stream]

    def shown_by(self, stream: StreamId, of: int) -> tuple[int, int, list[Piece]] | None:
        """Return the number and time of the newest event of the open call `of`, and all its texts.

        Return None if the call is not open.
        """
        call = self._open.get((stream, of))
        return None if call is None else (call.n, call.at, call.pieces())

    def snapshots(self, stream: StreamId | None = None) -> list[Snapshot]:
        """Return a snapshot of each open call in one stream, or in all streams."""
        return [
            call.snapshot(key[0], key[1])
            for key, call in self._open.items()
            if stream is None or key[0] == stream
        ]

    def subscribe(self, stream: StreamId | None = None) -> Subscription:
        """Return a new subscription to one stream, or to all; garbage collection ends it.

        A subscription starts with snapshots of the open calls.
        """
        group = self._subscriptions.get(stream)
        if group is None:
            group = self._subscriptions[stream] = _Group()
        subscription = Subscription(self, stream, self._capacity, group)
        group.members.add(subscription)
        return subscription

    def observe(self, observer: LiveObserver) -> Callable[[], None]:
        """Call `observer` with every event from now on; exceptions of `observer` are logged.

        Shape: the returned function ends the observation.
        """
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)


class _Group:
    """The subscriptions to one stream, or to all; the group ends with the last subscription."""

    def __init__(self) -> None:
        self.members: weakref.WeakSet[Subscription] = weakref.WeakSet()


class Subscription:
    """One subscriber's buffer. Created by `LiveBus.subscribe`."""

    def __init__(self, bus: LiveBus, stream: StreamId | None, capacity: int, group: _Group) -> None:
        self._bus = bus
        self._stream = stream
        self._group = group
        self._capacity = capacity
        self._buffer: deque[Live] = deque()
        self._arrived = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_behind = bool(bus.snapshots(stream))
        if self._is_behind:
            self._arrived.set()

    def offer(self, event: Live) -> None:
        """Add `event`; if the buffer is full, empty it and mark the subscription as behind."""
        if len(self._buffer) < self._capacity:
            self._buffer.append(event)
        else:
            self._is_behind = True
        if self._is_behind:
            self._buffer.clear()
        self.wake()

    def wake(self) -> None:
        """Make `wait` return; `wait` can run in the event loop of another thread."""
        loop = self._loop
        if loop is None or _is_current(loop):
            self._arrived.set()
            return
        with suppress(RuntimeError):  # that loop is closed: no task waits
            loop.call_soon_threadsafe(self._arrived.set)

    def take(self) -> list[Live]:
        """Return new events in order; if the subscription fell behind, return snapshots first."""
        self._arrived.clear()
        if self._is_behind:
            self._is_behind = False
            return list(self._bus.snapshots(self._stream))
        taken: list[Live] = list(self._buffer)
        self._buffer.clear()
        return taken

    async def wait(self) -> None:
        """Wait until there are new events, or until `wake` is called."""
        self._loop = asyncio.get_running_loop()
        await self._arrived.wait()


def _is_current(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class _OpenCall:
    """The output of one open call so far; its pieces are joined only when the output is read."""

    def __init__(self) -> None:
        self._pieces: list[tuple[LiveType, list[str]]] = []
        self.n = 0
        self.at = 0
        self._progress = 0

    def add(self, event: LiveEvent) -> None:
        self.n, self.at = event.n, event.at
        if not self._pieces or self._pieces[-1][0] != event.type:
            self._pieces.append((event.type, []))
        self._pieces[-1][1].append(event.text)
        if event.type == "agent:tool_progress":
            self._progress += len(event.text)
            if self._progress > 2 * PROGRESS_CHARACTERS:
                end = "".join(self._pieces[-1][1])[-PROGRESS_CHARACTERS:]
                self._pieces[-1] = (event.type, [end])
                self._progress = len(end)

    def pieces(self) -> list[Piece]:
        return [(type_, "".join(texts)) for type_, texts in self._pieces]

    def snapshot(self, stream: StreamId, of: int) -> Snapshot:
        is_tool = any(type_ == "agent:tool_progress" for type_, _ in self._pieces)
        parts = tuple(
            ThinkingPart(text) if type_ == "agent:reasoning" else TextPart(text)
            for type_, text in self.pieces()
        )
        message = Message("tool" if is_tool else "assistant", parts)
        return Snapshot(stream, of, self.n, message, self.at)
