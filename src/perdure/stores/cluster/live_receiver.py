"""Pass live events of other processes to the bus of this process, for the streams it watches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from perdure.errors import StoreError
from perdure.events.bus import LiveBus
from perdure.events.types import LiveEvent
from perdure.session.ids import StreamId
from perdure.stores.cluster.live_sender import Batch
from perdure.stores.cluster.live_table import ALL, END, TERM_S, LiveRow, LiveTable, Streams

RENEW_S = 10.0
"""How often registrations are renewed."""

AGAIN_S = 1.0
"""Minimum time until a stream is registered again if events are missing or registering failed.

The time doubles after each failure, up to `RENEW_S`.
"""

_batch = msgspec.json.Decoder(Batch)


class LiveReceiver:
    """Registers for watched streams with an open model call of another process.

    `_known` maps a stream to its last event that was passed or skipped, as (call, number, time).
    """

    def __init__(self, bus: LiveBus, table: LiveTable) -> None:
        self._bus = bus
        self._table = table
        self._watches: Counter[StreamId] = Counter()
        self._registered: dict[StreamId, float] = {}
        self._registering: Sequence[StreamId] = ()
        self._early: list[StreamId] = []
        self._wanted: dict[StreamId, None] = {}
        self._is_changed = False
        self._awaited: dict[StreamId, int | None] = {}
        self._known: dict[StreamId, tuple[int, int, float]] = {}
        self._elsewhere: set[tuple[StreamId, int]] = set()
        self._unread: dict[StreamId, None] = {}
        self._calling = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def follow(self, stream: StreamId | None) -> None:
        """Implement `Relay.follow`."""
        self._watches[stream or ALL] += 1
        if stream is None:
            self._want(ALL)

    def unfollow(self, stream: StreamId | None) -> None:
        """Implement `Relay.unfollow`."""
        key = stream or ALL
        self._watches[key] -= 1
        if self._watches[key] <= 0:
            del self._watches[key]
            if stream is None:
                for each in self._awaited.keys() & self._watches.keys():
                    self._want(each)
            for each in tuple(self._awaited):
                if not self._is_watched(each):
                    del self._awaited[each]
            if self._registered.pop(key, None) is not None:
                self._is_changed = True
                self._start("renew", self._renew())
            for other, of in tuple(self._elsewhere):
                if not self._is_watched(other):
                    self._drop(other, of)
                    self._known[other] = (of, 0, _now())  # a later watch needs all its texts

    def call_elsewhere(self, stream: StreamId, of: int | None) -> None:
        """Implement `Relay.call_elsewhere`."""
        self._awaited[stream] = of
        if ALL not in self._watches:
            self._want(stream)

    def made_here(self, stream: StreamId, of: int) -> None:
        """Record that this process made the call `of`, so the receiver ignores its rows."""
        if self._is_watched(stream) and self._registered:
            self._known[stream] = (of, END, _now())

    async def catch_up(self, calls: Sequence[tuple[StreamId, int]], *, is_last: bool) -> None:
        """Implement `Relay.catch_up` with at most one round trip."""
        behind = {
            stream: None
            for stream, of in calls
            if self._is_registered(stream)
            and self._last(stream) < (of, END)
            and (is_last or self._is_open(stream, of))
        }
        if behind:
            await self._read(behind)

    def ended(self, stream: StreamId, of: int) -> None:
        """Implement `Relay.ended`."""
        self._awaited.pop(stream, None)
        self._drop(stream, of)
        if self._is_registered(stream) or self._registering:
            self._known[stream] = (*max(self._last(stream), (of, END)), _now())

    def erased(self, stream: StreamId, seqs: Sequence[tuple[int, int]] | None) -> None:
        """Implement `Relay.erased`."""
        calls = {of for other, of in self._elsewhere if other == stream}
        if (awaited := self._awaited.get(stream)) is not None:
            calls.add(awaited)
        for of in sorted(calls):
            if seqs is None or any(first <= of <= last for first, last in seqs):
                self.ended(stream, of)
        if seqs is None:
            self._awaited.pop(stream, None)

    def told(self, streams: Streams) -> None:
        """Process a notification that `streams` have new rows."""
        if streams is None:  # perhaps the server lost its unlogged tables
            # A new registration is answered with all texts so far, and a notification of that row.
            # A read before it would take older rows, of a call that the watch did not see begin.
            self._wanted.update(dict.fromkeys((*self._registered, *self._registering)))
            if self._wanted:
                self._start("register", self._register())
        else:
            if self._registering:  # a row can be notified before its registration returns
                self._early += [each for each in streams if not self._is_registered(each)]
            self._unread.update(dict.fromkeys(filter(self._is_registered, streams)))
        if self._unread:
            self._start("read", self._read_unread())

    async def aclose(self) -> None:
        """Stop reading, and end the registrations."""
        async with self._calling:  # no call of the table is cut
            tasks = tuple(self._tasks.values())
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if "register" in self._tasks:
            with suppress(StoreError):
                await self._table.renew(())

    # ------------------------------------------------------------ registrations

    def _is_watched(self, stream: StreamId) -> bool:
        return stream in self._watches or ALL in self._watches

    def _is_open(self, stream: StreamId, of: int) -> bool:
        return (stream, of) in self._elsewhere or self._awaited.get(stream, -1) == of

    def _is_registered(self, stream: StreamId) -> bool:
        return stream in self._registered or ALL in self._registered

    def _want(self, stream: StreamId) -> None:
        if stream not in self._registered:
            self._wanted[stream] = None
            self._table.listen()
            self._start("register", self._register())

    async def _register(self) -> None:
        pause = AGAIN_S
        while wanted := [stream for stream in self._wanted if stream in self._watches]:
            self._wanted = {}
            self._registering, self._early, found = wanted, [], None
            async with self._calling:
                with suppress(StoreError):
                    found = await self._table.register(wanted)
            self._registering = ()
            if found is None:
                self._wanted = dict.fromkeys((*wanted, *self._wanted))
                await asyncio.sleep(pause)
                pause = min(2 * pause, RENEW_S)
                continue
            pause = AGAIN_S
            for stream in wanted:
                if stream in found and stream in self._watches:
                    self._registered[stream] = _now()
                elif stream not in found:  # its turn has ended
                    self._awaited.pop(stream, None)
                    self._registered.pop(stream, None)
            self.told(self._early)
        self._wanted = {}
        if self._registered:
            self._start("keep", self._keep())

    async def _keep(self) -> None:
        while self._registered:
            await asyncio.sleep(RENEW_S)
            oldest = _now() - TERM_S
            for stream in tuple(self._registered):
                is_quiet = self._known.get(stream, (0, 0, 0.0))[2] < oldest
                if stream != ALL and stream not in self._awaited and is_quiet:
                    del self._registered[stream]
            open_here = {stream for stream, _ in self._elsewhere}
            for stream in self._known.keys() - open_here:
                if self._known[stream][2] < oldest:
                    del self._known[stream]
            self._is_changed = True
            await self._renew()

    async def _renew(self) -> None:
        while self._is_changed:
            self._is_changed = False
            async with self._calling:
                with suppress(StoreError):
                    await self._table.renew(list(self._registered))

    # ------------------------------------------------------------ rows

    async def _read_unread(self) -> None:
        while self._unread:
            unread, self._unread = self._unread, {}
            await self._read(unread)

    async def _read(self, streams: Iterable[StreamId]) -> None:
        async with self._calling:
            known = {stream: self._last(stream) for stream in streams if stream != ALL}
            with suppress(StoreError):
                rows = await self._table.read(known) if known else []
                for row in self._shown(rows):
                    self._take(row)

    def _shown(self, rows: list[LiveRow]) -> list[LiveRow]:
        """Return those of `rows` that can be passed to the bus.

        If the beginning of a call was missed, its rows are returned from the newest row with all
        texts so far. Of an ended call whose beginning was missed, only the last row is returned.
        """
        begins: dict[tuple[StreamId, int], int] = {}
        for row in rows:
            key = (row.stream, row.call)
            if self._is_open(*key):
                continue
            if row.last == END or _batch.decode(row.content).whole is not None:
                begins[key] = row.last
        return [row for row in rows if row.last >= begins.get((row.stream, row.call), 0)]

    def _last(self, stream: StreamId) -> tuple[int, int]:
        return self._known.get(stream, (-1, 0, 0.0))[:2]

    def _take(self, row: LiveRow) -> None:
        """Pass new events of `row` to the bus; if earlier events are missing, request them."""
        stream, of, last = row.stream, row.call, self._last(row.stream)
        if (of, row.last) <= last or not self._is_watched(stream):
            return
        if row.last != END:
            number = last[1] if last[0] == of else 0
            batch = _batch.decode(row.content)
            if batch.first > number + 1 and batch.whole is None:
                self._ask_again(stream)
                return
            _pass(self._bus, row, batch, number)
            self._elsewhere.add((stream, of))
        self._known[stream] = (of, row.last, _now())
        for other, earlier in tuple(self._elsewhere):
            if other == stream and earlier < of:
                self._drop(other, earlier)

    def _ask_again(self, stream: StreamId) -> None:
        key = stream if stream in self._registered else ALL
        if _now() - self._registered.get(key, 0.0) > AGAIN_S:
            self._registered[key] = _now()
            self._wanted[key] = None
            self._start("register", self._register())

    def _drop(self, stream: StreamId, of: int) -> None:
        if (stream, of) in self._elsewhere:
            self._elsewhere.discard((stream, of))
            self._bus.drop_call(stream, of)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a task, or leave `work` to the running task of this `name`."""
        running = self._tasks.get(name)
        if running is not None and not running.done():
            work.close()
        else:
            self._tasks[name] = asyncio.ensure_future(work)


def _pass(bus: LiveBus, row: LiveRow, batch: Batch, number: int) -> None:
    """Pass the events of `row` after event `number` to the bus."""
    stream, of = row.stream, row.call
    if batch.first > number + 1 or (not number and batch.whole is not None):
        bus.receive_whole(stream, of, row.last, batch.at, batch.whole or ())
        return
    for n, (type_, at, text) in enumerate(batch.events, batch.first):
        if n > number:
            bus.receive(LiveEvent(stream, of, n, type_, at, text, batch.agent, batch.model))


def _now() -> float:
    return asyncio.get_running_loop().time()
