"""`LiveTable` on unlogged tables.

NOTIFY wakes other handles: there is one channel for all handles, and one for each handle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import LiteralString

import msgspec

from perdure.errors import StoreError
from perdure.session.ids import StreamId
from perdure.stores.cluster.live_table import ALL, LiveRow, OnWatch, Streams
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.notifications import PAYLOAD_BYTES, Watcher

_CHANNEL = "perdure_live"

_REGISTER: LiteralString = """
INSERT INTO perdure.live_watch (namespace, stream, handle, until)
SELECT %s, w.stream, %s, clock_timestamp() + interval '30 seconds'
FROM unnest(%s::text[]) AS w (stream)
WHERE w.stream = '' OR EXISTS (
    SELECT FROM perdure.stream AS s
    WHERE s.namespace = %s AND s.id = w.stream AND s.open_turn IS NOT NULL
)
ON CONFLICT (namespace, stream, handle) DO UPDATE SET until = excluded.until
RETURNING stream
"""

_RENEW: LiteralString = """
INSERT INTO perdure.live_watch (namespace, stream, handle, until)
SELECT %s, w.stream, %s, clock_timestamp() + interval '30 seconds'
FROM unnest(%s::text[]) AS w (stream)
ON CONFLICT (namespace, stream, handle) DO UPDATE SET until = excluded.until
"""

_LEAVE: LiteralString = """
DELETE FROM perdure.live_watch
WHERE namespace = %s AND (handle = %s AND stream <> ALL(%s) OR until < clock_timestamp())
"""

# Rows of processes that died, and of calls that are longer than anybody lags behind.
SWEEP: LiteralString = """
DELETE FROM perdure.live_delta
WHERE namespace = %s AND at < clock_timestamp() - interval '60 seconds'
"""

FORGET_LIVE: LiteralString = """
DELETE FROM perdure.live_delta WHERE namespace = %s AND stream = ANY(%s)
"""

_WATCHED: LiteralString = """
SELECT DISTINCT stream FROM perdure.live_watch
WHERE namespace = %s AND handle <> %s AND until > clock_timestamp()
"""

_WATCHERS: LiteralString = """
SELECT stream, handle FROM perdure.live_watch
WHERE namespace = %s AND stream = ANY(%s) AND handle <> %s AND until > clock_timestamp()
"""

# The lock waits for an erasure of the stream, which deletes rows; commits do not wait for it long.
_WRITE: LiteralString = """
WITH open AS MATERIALIZED (
    SELECT s.id, s.epoch FROM perdure.stream AS s
    WHERE s.namespace = %s AND s.id = ANY(%s) AND s.open_turn IS NOT NULL AND NOT s.is_erased
    ORDER BY s.id FOR KEY SHARE
)
INSERT INTO perdure.live_delta (namespace, stream, call, last, epoch, content)
SELECT %s, s.id, w.call, w.last, s.epoch, w.content
FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[])
    AS w (stream, call, last, epoch, content)
JOIN open AS s ON s.id = w.stream AND s.epoch = w.epoch
ON CONFLICT (namespace, stream, call, last) DO UPDATE SET content = excluded.content
RETURNING stream, call
"""

_READ: LiteralString = """
SELECT d.stream, d.call, d.last, d.content, d.epoch
FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS w (stream, call, last)
JOIN perdure.stream AS s ON s.namespace = %s AND s.id = w.stream
JOIN perdure.live_delta AS d
    ON d.namespace = s.namespace AND d.stream = w.stream AND (d.call, d.last) > (w.call, w.last)
    AND d.epoch = s.epoch
ORDER BY d.stream, d.call, d.last
"""

_FORGET: LiteralString = """
DELETE FROM perdure.live_delta AS d USING unnest(%s::text[], %s::bigint[]) AS w (stream, call)
WHERE d.namespace = %s AND d.stream = w.stream AND d.call = w.call
"""

# What it follows is in unlogged tables, and need not wait for the disk.
_NOTIFY: LiteralString = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify(w.channel, w.payload)
FROM unnest(%s::text[], %s::text[]) AS w (channel, payload)
"""


class _Notice(msgspec.Struct, array_like=True):
    """A notification: the key of the namespace, the sender, the streams.

    For registrations, `is_new` is False if the sender only renewed an earlier registration.
    """

    of: str
    by: str
    streams: list[StreamId]
    is_new: bool = True


_notice = msgspec.json.Decoder(_Notice)


class PostgresLive:
    """`LiveTable` of one namespace, on the connections of its store."""

    def __init__(self, database: Database, watcher: Watcher) -> None:
        self._db = database
        self._watcher = watcher
        self.handle = watcher.handle

    def attach(self, on_watch: OnWatch, on_rows: Callable[[Streams], None]) -> None:
        def watched(payload: str | None) -> None:
            notice = None if payload is None else self._notice(payload)
            if payload is None:
                on_watch(None, is_new=True)
            elif notice is not None:
                on_watch(notice.streams, is_new=notice.is_new)

        def written(payload: str | None) -> None:
            notice = None if payload is None else self._notice(payload)
            if payload is None or notice is not None:
                on_rows(None if notice is None else notice.streams)

        self._watcher.on_channel(_CHANNEL, watched)
        self._watcher.on_channel(_channel_of(self.handle), written)

    def listen(self) -> None:
        self._watcher.listen()

    async def register(self, streams: Sequence[StreamId]) -> list[StreamId]:
        namespace, names = self._db.namespace, list(streams)
        values = (namespace, self.handle, names, namespace)
        rows, _ = await self._db.ask_once(
            Statement(_REGISTER, values), self._telling({_CHANNEL: names}, is_new=True)
        )
        return [StreamId(row[0]) for row in rows]

    async def renew(self, streams: Sequence[StreamId]) -> None:
        own, names = (self._db.namespace, self.handle), list(streams)
        await self._db.ask_once(
            Statement(_RENEW, (*own, names)),
            Statement(_LEAVE, (*own, names)),
            Statement(SWEEP, (self._db.namespace,)),
            self._telling({_CHANNEL: names} if names else {}, is_new=False),
        )

    async def watched(self) -> list[StreamId]:
        (rows,) = await self._db.ask(Statement(_WATCHED, (self._db.namespace, self.handle)))
        return [StreamId(row[0]) for row in rows]

    async def watchers(self, streams: Sequence[StreamId]) -> Mapping[StreamId, frozenset[str]]:
        values = (self._db.namespace, [*streams, ALL], self.handle)
        (rows,) = await self._db.ask(Statement(_WATCHERS, values))
        of_all = {handle for stream, handle in rows if stream == ALL}
        found = {stream: set(of_all) for stream in streams}
        for stream, handle in rows:
            if stream != ALL:
                found[stream].add(handle)
        return {stream: frozenset(handles) for stream, handles in found.items()}

    async def write(
        self, rows: Sequence[LiveRow], readers: Mapping[str, Sequence[StreamId]]
    ) -> frozenset[tuple[StreamId, int]]:
        namespace, streams = self._db.namespace, [row.stream for row in rows]
        columns = (
            streams,
            [row.call for row in rows],
            [row.last for row in rows],
            [row.epoch for row in rows],
            [row.content for row in rows],
        )
        told = {_channel_of(reader): streams for reader, streams in readers.items()}
        found, _ = await self._db.ask_once(
            Statement(_WRITE, (namespace, streams, namespace, *columns)),
            self._telling(told, is_new=True),
        )
        return frozenset((StreamId(stream), call) for stream, call in found)

    async def read(self, known: Mapping[StreamId, tuple[int, int]]) -> list[LiveRow]:
        calls, numbers = zip(*known.values(), strict=True)
        values = (list(known), list(calls), list(numbers), self._db.namespace)
        (rows,) = await self._db.ask(Statement(_READ, values))
        return [
            LiveRow(StreamId(stream), call, last, bytes(content), epoch)
            for stream, call, last, content, epoch in rows
        ]

    async def forget(self, calls: Sequence[tuple[StreamId, int]]) -> None:
        streams, seqs = [stream for stream, _ in calls], [seq for _, seq in calls]
        await self._db.ask(Statement(_FORGET, (streams, seqs, self._db.namespace)))

    def _telling(self, told: Mapping[str, Sequence[StreamId]], *, is_new: bool) -> Statement:
        """Return the statement that notifies the channels; long lists of streams are split."""
        channels: list[str] = []
        payloads: list[str] = []
        for channel, streams in told.items():
            for part in _parts(streams):
                channels.append(channel)
                notice = _Notice(self._watcher.key, self.handle, part, is_new)
                payloads.append(msgspec.json.encode(notice).decode())
        return Statement(_NOTIFY, (channels, payloads))

    def _notice(self, payload: str) -> _Notice | None:
        """Return a notification from another handle of this namespace; None for any other text."""
        try:
            notice = _notice.decode(payload)
        except msgspec.MsgspecError:
            return None
        is_ours = notice.of == self._watcher.key and notice.by != self.handle
        return notice if is_ours else None


async def sweep(database: Database) -> None:
    """Delete the namespace's live events that are older than a minute; ignore store errors."""
    with suppress(StoreError):
        await database.ask_once(Statement(SWEEP, (database.namespace,)))


def _channel_of(handle: str) -> str:
    return f"{_CHANNEL}_{handle}"


def _parts(streams: Sequence[StreamId]) -> Iterator[list[StreamId]]:
    """Yield `streams` in groups that each fit into a notification."""
    part: list[StreamId] = []
    size = 0
    for stream in streams:
        added = len(msgspec.json.encode(stream)) + 1
        if part and size + added > PAYLOAD_BYTES - 100:
            yield part
            part, size = [], 0
        part.append(stream)
        size += added
    if part:
        yield part
