"""Write the live events of this process to the table, but only while other processes watch."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from perdure.errors import StoreError
from perdure.events.bus import LiveBus, Piece
from perdure.events.types import LiveEvent, LiveType
from perdure.secrets.mask import log_failure
from perdure.session.ids import StreamId
from perdure.stores.cluster.live_table import (
    ALL,
    END,
    LINGER_S,
    TERM_S,
    LiveRow,
    LiveTable,
    Streams,
)

FLUSH_S = 0.05
"""Minimum time between two writes of this process, whatever the number of its turns."""

SETTLE_S = 1.0
"""Longest time that the outcome of a call waits until the call's last events are written."""

LOOK_S = 10.0
"""How long the known watchers of a call are used before they are read again."""

Call = tuple[StreamId, int]

_log = logging.getLogger(__name__)


class Batch(msgspec.Struct, array_like=True, frozen=True):
    """The content of a row: the events from number `first` on, and, if needed, all texts so far.

    Each event consists of its type, its time and its text. `whole` contains all texts so far, for
    readers that lack earlier events. `at` is the time of the newest event in `whole`. Units: Unix
    milliseconds.
    """

    first: int
    agent: str | None
    model: str | None
    events: list[tuple[LiveType, int, str]]
    at: int = 0
    whole: list[Piece] | None = None


class _OpenCall:
    """An open call of this process that other processes watch or might watch.

    If `readers` is None, the readers are unknown and must be read from the table. `written` is the
    number of the last written event. `epoch` is the epoch of the lease under which the call is
    made.
    """

    def __init__(self, epoch: int) -> None:
        self.readers: frozenset[str] | None = None
        self.looked_at = 0.0
        self.pending: list[LiveEvent] = []
        self.written = 0
        self.epoch = epoch
        self.lacks_whole = False
        self.is_settled = False
        self.is_refused = False

    def found(self, readers: frozenset[str], now: float) -> None:
        if self.readers is not None and readers - self.readers:
            self.lacks_whole = True
        self.readers, self.looked_at = readers, now

    def is_complete(self) -> bool:
        """Return True if the pending events are the only events that readers lack."""
        if not self.pending:
            return not self.lacks_whole
        begins = self.pending[0].n
        return begins == 1 or (begins == self.written + 1 and not self.lacks_whole)


class NamedStreams:
    """The streams of recent notifications; each stream is remembered for `TERM_S`.

    Units of `now`: seconds.
    """

    def __init__(self) -> None:
        self._until: dict[StreamId, float] = {}
        self._cleaned_at = 0.0

    def __len__(self) -> int:
        return len(self._until)

    def add(self, streams: Sequence[StreamId], now: float) -> None:
        """Record that a notification named `streams`."""
        if now - self._cleaned_at > TERM_S:
            self._cleaned_at = now
            self._until = {each: until for each, until in self._until.items() if until > now}
        self._until.update(dict.fromkeys(streams, now + TERM_S))

    def has(self, stream: StreamId, now: float) -> bool:
        """Return True if a recent notification named `stream`, or all streams."""
        return any(self._until.get(each, 0.0) > now for each in (stream, ALL))


class LiveSender:
    """Writes the events of calls that this process makes, at most every `FLUSH_S`.

    The sender remembers the streams that notifications named, and reads the table only for these
    streams.
    """

    def __init__(self, bus: LiveBus, table: LiveTable) -> None:
        self._bus = bus
        self._table = table
        self._named = NamedStreams()
        self._calls: dict[Call, _OpenCall] = {}
        self._own: dict[Call, int] = {}
        self._dirty: dict[Call, None] = {}
        self._ended: deque[tuple[float, Call]] = deque()
        self._calling = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushing: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None

    def shown(self, event: LiveEvent, epoch: int) -> None:
        """Implement `Relay.shown`."""
        key = (event.stream, event.of)
        if event.n == 1:
            self._own[key] = epoch
            self._table.listen()
        call = self._calls.get(key)
        if call is None:
            if not self._named.has(event.stream, _now()):
                return
            call = self._calls[key] = _OpenCall(epoch)
        if call.readers is None or call.readers:
            call.pending.append(event)
            self._flush_soon(key)

    async def settle(self, stream: StreamId, of: int) -> None:
        """Implement `Relay.settle`."""
        key = (stream, of)
        call = self._calls.get(key)
        if call is not None and (call.readers is None or call.readers):
            call.is_settled = True
            self._dirty[key] = None
            await asyncio.wait((self._start(self._flush()),), timeout=SETTLE_S)

    def closed(self, stream: StreamId, of: int) -> None:
        """Implement `Relay.closed`."""
        key = (stream, of)
        self._own.pop(key, None)
        self._dirty.pop(key, None)
        call = self._calls.pop(key, None)
        if call is not None and call.written:
            self._ended.append((_now() + LINGER_S, key))
            if self._cleaning is None or self._cleaning.done():
                self._cleaning = self._start(self._clean())

    def told(self, streams: Streams, *, is_new: bool) -> None:
        """Handle a notification of new (`is_new`) or renewed registrations for `streams`."""
        if streams is None:
            self._start(self._load())
            return
        self._named.add(streams, _now())
        if not is_new:
            return
        named = set(streams)
        for key, epoch in self._own.items():
            if key[0] in named or ALL in named:
                call = self._calls.setdefault(key, _OpenCall(epoch))
                call.readers, call.lacks_whole = None, True
                self._flush_soon(key)

    async def aclose(self) -> None:
        """Stop writing, and delete the written rows."""
        async with self._calling:  # no call of the table is cut
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        left = [key for _, key in self._ended]
        left += [key for key, call in self._calls.items() if call.written]
        if left:
            with suppress(StoreError):
                await self._table.forget(left)

    # ------------------------------------------------------------ inside

    async def _load(self) -> None:
        """Read all registrations, because earlier notifications may have been lost."""
        with suppress(StoreError):
            async with self._calling:
                watched = await self._table.watched()
            self.told(watched, is_new=True)

    def _flush_soon(self, key: Call) -> None:
        self._dirty[key] = None
        if self._flushing is None or self._flushing.done():
            self._flushing = self._start(self._flush_repeatedly())

    async def _flush_repeatedly(self) -> None:
        while self._dirty:
            await self._flush()
            await asyncio.sleep(FLUSH_S)

    async def _flush(self) -> None:
        async with self._calling:
            try:
                await self._look()
                await self._write()
            except StoreError:
                pass
            except Exception as error:  # noqa: BLE001 - the turn goes on, whatever it shows
                log_failure(_log, error, "live events could not be written")

    async def _look(self) -> None:
        """Read the watchers of each call whose watchers are unknown or were not read lately."""
        now = _now()
        unknown: dict[StreamId, None] = {
            key[0]: None
            for key in self._dirty
            if (call := self._calls.get(key)) is not None
            and (call.readers is None or now - call.looked_at > LOOK_S)
        }
        if not unknown:
            return
        found = await self._table.watchers(list(unknown))
        for key, call in self._calls.items():
            if key[0] in unknown:
                call.found(found.get(key[0], frozenset()), now)

    async def _write(self) -> None:
        dirty, self._dirty = self._dirty, {}
        rows: list[LiveRow] = []
        readers: dict[str, dict[StreamId, None]] = {}
        for key in dirty:
            call = self._calls.get(key)
            if call is None:
                continue
            if call.readers is None:  # it came after the look
                self._dirty[key] = None
                continue
            made = self._rows(key, call)
            rows += made
            for reader in call.readers if made else ():
                readers.setdefault(reader, {})[key[0]] = None
        if not rows:
            return
        told = {reader: list(streams) for reader, streams in readers.items()}
        written = await self._table.write(rows, told)
        for row in rows:
            key = (row.stream, row.call)
            call = self._calls.get(key)
            if call is not None:
                call.is_refused = key not in written

    def _rows(self, key: Call, call: _OpenCall) -> list[LiveRow]:
        """Return rows with the events that readers lack, and mark these events as written."""
        if not call.readers or call.is_refused:
            call.pending = []
            return []
        rows: list[LiveRow] = []
        batch, last = self._batch(key, call)
        call.pending, call.lacks_whole = [], False
        if batch is not None:
            call.written = last
            rows.append(LiveRow(*key, last, msgspec.json.encode(batch), call.epoch))
        if call.is_settled:
            rows.append(LiveRow(*key, END, b"", call.epoch))
        return rows

    def _batch(self, key: Call, call: _OpenCall) -> tuple[Batch | None, int]:
        """Return the events that readers lack, and the number of the last of these events."""
        pending = call.pending
        first = pending[0] if pending else None
        batch = Batch(
            call.written + 1 if first is None else first.n,
            None if first is None else first.agent,
            None if first is None else first.model,
            [(event.type, event.at, event.text) for event in pending],
        )
        if call.is_complete():
            return (batch, pending[-1].n) if pending else (None, call.written)
        shown = self._bus.shown_by(*key)
        if shown is None:
            return None, call.written
        n, at, pieces = shown
        return msgspec.structs.replace(batch, at=at, whole=pieces), n

    async def _clean(self) -> None:
        """Delete the rows of ended calls, many at a time."""
        while self._ended:
            await asyncio.sleep(max(0.0, self._ended[0][0] - _now()))
            due = [self._ended.popleft()[1]]
            while self._ended and self._ended[0][0] <= _now():
                due.append(self._ended.popleft()[1])
            async with self._calling:
                with suppress(StoreError):
                    await self._table.forget(due)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _now() -> float:
    return asyncio.get_running_loop().time()
