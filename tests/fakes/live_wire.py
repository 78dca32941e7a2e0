"""A `LiveTable` in memory, for the relays of several processes in one test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from perdure.session.ids import StreamId
from perdure.stores.cluster.live_table import ALL, LiveRow, OnWatch, Streams


class LiveWire:
    """The state that the tables of all processes share. Streams in `open` have an open turn."""

    def __init__(self, *open: StreamId) -> None:
        self.open = set(open)
        self.epochs: dict[StreamId, int] = dict.fromkeys(open, 1)
        self.rows: dict[tuple[StreamId, int, int], LiveRow] = {}
        self.watching: dict[tuple[StreamId, str], None] = {}
        self.tables: dict[str, WiredTable] = {}


class WiredTable:
    """The table as the process `handle` uses it; `calls` counts its round trips."""

    def __init__(self, wire: LiveWire, handle: str) -> None:
        self.handle = handle
        self.calls: Counter[str] = Counter()
        self.is_listening = False
        self._wire = wire
        wire.tables[handle] = self

    def attach(self, on_watch: OnWatch, on_rows: Callable[[Streams], None]) -> None:
        self.on_watch, self.on_rows = on_watch, on_rows

    def listen(self) -> None:
        if not self.is_listening:
            self.is_listening = True
            self.on_watch(None, is_new=True)
            self.on_rows(None)

    async def register(self, streams: Sequence[StreamId]) -> list[StreamId]:
        self.calls["register"] += 1
        found = [each for each in streams if each == ALL or each in self._wire.open]
        self._wire.watching.update({(each, self.handle): None for each in found})
        self._tell(found, is_new=True)
        return found

    async def renew(self, streams: Sequence[StreamId]) -> None:
        self.calls["renew"] += 1
        kept = {key: None for key in self._wire.watching if key[1] != self.handle}
        self._wire.watching = {**kept, **{(each, self.handle): None for each in streams}}
        self._tell(streams, is_new=False)

    async def watched(self) -> list[StreamId]:
        self.calls["watched"] += 1
        return [stream for stream, handle in self._wire.watching if handle != self.handle]

    async def watchers(self, streams: Sequence[StreamId]) -> Mapping[StreamId, frozenset[str]]:
        self.calls["watchers"] += 1
        watching = self._wire.watching
        return {
            each: frozenset(
                handle
                for stream, handle in watching
                if stream in (each, ALL) and handle != self.handle
            )
            for each in streams
        }

    async def write(
        self, rows: Sequence[LiveRow], readers: Mapping[str, Sequence[StreamId]]
    ) -> frozenset[tuple[StreamId, int]]:
        self.calls["write"] += 1
        wire, written = self._wire, set[tuple[StreamId, int]]()
        for row in rows:
            if row.stream in wire.open and row.epoch == wire.epochs[row.stream]:
                wire.rows[row.stream, row.call, row.last] = row
                written.add((row.stream, row.call))
        for reader, streams in readers.items():
            wire.tables[reader].on_rows(streams)
        return frozenset(written)

    async def read(self, known: Mapping[StreamId, tuple[int, int]]) -> list[LiveRow]:
        self.calls["read"] += 1
        return [
            row
            for key, row in sorted(self._wire.rows.items())
            if key[0] in known
            and key[1:] > known[key[0]]
            and row.epoch == self._wire.epochs[key[0]]
        ]

    async def forget(self, calls: Sequence[tuple[StreamId, int]]) -> None:
        self.calls["forget"] += 1
        rows = self._wire.rows
        self._wire.rows = {key: row for key, row in rows.items() if key[:2] not in calls}

    def _tell(self, streams: Sequence[StreamId], *, is_new: bool) -> None:
        for table in self._wire.tables.values():
            if table is not self and table.is_listening:
                table.on_watch(streams, is_new=is_new)
