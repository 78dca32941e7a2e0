"""Wake iterators after commits: send NOTIFY, and listen on a separate connection.

A commit wakes the iterators of its streams and those of the whole namespace. A notification names
the streams of the commits that it reports, so that it does not wake the iterators of other streams.
A commit does not include its NOTIFY, because PostgreSQL lets only one notifying transaction of the
whole server commit at a time. NOTIFY is sent after the commit, and one NOTIFY can report many
commits. If the notification is lost because the sending process died, the listener finds the commit
by querying for streams with new entries.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import LiteralString

import msgspec
import psycopg
from psycopg import sql

from perdure.errors import StoreError
from perdure.session.clock import RandomSource
from perdure.session.ids import StreamId
from perdure.stores.postgres.database import Connected, Database, Statement, run_statements
from perdure.stores.postgres.rows import Row
from perdure.stores.wakeups import Changes, Watches

POLL_S = 1.0
"""How often the listener queries the newest position."""

PAYLOAD_BYTES = 7_500
"""Maximum size of a payload; PostgreSQL accepts 8,000.

If the streams do not fit into a payload, it names none, and the listener wakes all iterators.
"""

RECONNECT_S = 0.25
PAUSE_S = 0.050
"""Minimum time between two notifications of one handle: each is a separate transaction."""

SETTLE_S = 0.050
LAST_WORD_S = 2.0

# A notification is a transaction of its own and need not wait for the disk.
_NOTIFY: LiteralString = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify('perdure', %s)
"""
_NEWEST: LiteralString = "SELECT last_value, is_called FROM perdure.position"

_SETTLE: LiteralString = "SELECT perdure.settle(0), current_setting('perdure.horizon')::bigint"

_WRITTEN: LiteralString = """
SELECT DISTINCT e.stream FROM perdure.entry AS e
WHERE e.namespace = %s AND e.n > 0 AND e.n > %s
    AND e.n <= current_setting('perdure.horizon')::bigint
UNION
SELECT b.stream FROM perdure.birth AS b
WHERE b.namespace = %s AND b.n > 0 AND b.n > %s
    AND b.n <= current_setting('perdure.horizon')::bigint
"""


class _Notice(msgspec.Struct, array_like=True):
    """A notification that streams have new entries; a `streams` of None means any stream.

    `of` is the namespace, and `by` is the handle that sent the notification.
    """

    of: str
    by: str
    streams: list[str] | None


_notice = msgspec.json.Decoder(_Notice)


class Watcher:
    """Wakes the iterators of one handle, and notifies other handles of its commits."""

    def __init__(self, database: Database, random: RandomSource) -> None:
        self._database = database
        self._of = hashlib.sha256(database.namespace.encode()).hexdigest()[:32]
        self._by = random(8).hex()
        self._channels: dict[str, Callable[[str | None], None]] = {}
        self._watches = Watches()
        self._seen = 0  # the position up to which streams were checked
        self._is_unsettled = False  # a commit that has its position is not visible yet
        self._owed: set[StreamId] = set()
        self._listening: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._is_closing = asyncio.Event()

    @property
    def handle(self) -> str:
        """The name of this handle, unique among all handles of the database."""
        return self._by

    @property
    def key(self) -> str:
        """The key of the namespace in notifications."""
        return self._of

    def on_channel(self, name: str, take: Callable[[str | None], None]) -> None:
        """Pass the payloads of the channel `name` to `take`, as soon as this handle listens.

        A payload of None means that earlier notifications may be lost, because the connection is
        new.
        """
        self._channels[name] = take

    def listen(self) -> None:
        """Start listening, unless this handle already listens or is closing."""
        if self._listening is None and not self._is_closing.is_set():
            self._listening = asyncio.create_task(self._listen())

    def watch(self, stream: StreamId | None = None) -> Changes:
        """Return a new iterator over the commits to `stream`, or to any stream if `stream` is None.

        The iterator sees every commit after this call.
        """
        changes = self._watches.add(self._database.namespace, stream)
        if self._listening is None:
            self.listen()
        changes.wake()  # also while the server accepts no connection that listens
        return changes

    def wake(self, streams: Collection[StreamId]) -> None:
        """Wake the iterators of `streams`, and those of the namespace unless `streams` is empty."""
        self._watches.wake((self._database.namespace, stream) for stream in streams)

    def wake_soon(self) -> None:
        """Wake the namespace's iterators after a short time.

        Call this method if commits in progress hide entries from `feed`.
        """
        asyncio.get_running_loop().call_later(
            SETTLE_S, self._watches.wake_namespace, self._database.namespace
        )

    def tell(self, streams: Collection[StreamId]) -> None:
        """Wake iterators in this process and in others after this handle committed to `streams`."""
        self.wake(streams)
        self._owed.update(streams)
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())

    async def close(self) -> None:
        """Send pending notifications, and stop listening."""
        self._is_closing.set()
        telling, listening = self._telling, self._listening
        try:
            if telling is not None:
                await asyncio.wait((telling,), timeout=LAST_WORD_S)
        finally:
            for task in (telling, listening):
                if task is not None:
                    task.cancel()
            self._watches.end()
        if listening is not None:
            await asyncio.wait((listening,))
            if not listening.cancelled():
                listening.result()

    # -- notifying

    async def _tell(self) -> None:
        try:
            while self._owed:
                payload = self._payload()
                # The listener asks for the newest position too: a notification may be lost.
                with suppress(StoreError):
                    await self._database.carry_out(Statement(_NOTIFY, (payload,)))
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_S):
                        await self._is_closing.wait()
        finally:  # after an unexpected error, which asyncio reports, the next commit starts again
            self._telling = None

    def _payload(self) -> str:
        """Return the pending notification, and clear it."""
        owed, self._owed = self._owed, set()
        payload = msgspec.json.encode(_Notice(self._of, self._by, [str(each) for each in owed]))
        if len(payload) > PAYLOAD_BYTES:
            payload = msgspec.json.encode(_Notice(self._of, self._by, None))
        return payload.decode()

    # -- listening

    async def _listen(self) -> None:
        while True:
            with suppress(psycopg.Error, OSError):
                db = await self._database.connect_apart()
                try:
                    await self._listen_with(db)
                finally:
                    await db.close()
            await asyncio.sleep(RECONNECT_S)

    async def _listen_with(self, db: Connected) -> None:
        for channel in ("perdure", *self._channels):
            await db.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        self._seen = 0
        await self._changed_streams(db)
        self._watches.wake_all()  # for commits before this point
        for take in self._channels.values():
            take(None)
        newest: Row | None = None
        while True:
            async for notice in db.notifies(timeout=POLL_S):
                self._channels.get(notice.channel, self._on_notification)(notice.payload)
            now = await (await db.execute(_NEWEST)).fetchone()
            if now != newest or self._is_unsettled:
                self.wake(await self._changed_streams(db))
            newest = now

    def _on_notification(self, payload: str | None) -> None:
        """Wake iterators after a notification, unless this handle sent it."""
        try:
            notice = _notice.decode(payload or "")
        except msgspec.MsgspecError:  # any client that can connect can notify
            return
        if notice.of != self._of or notice.by == self._by:
            return
        if notice.streams is None:
            self._watches.wake_all()
        else:
            self.wake([StreamId(stream) for stream in notice.streams])

    async def _changed_streams(self, db: Connected) -> list[StreamId]:
        """Return the streams created or extended since the last call; none at the first call."""
        name, seen = self._database.namespace, self._seen
        query = Statement(_WRITTEN, (name, seen, name, seen))
        settle = Statement(_SETTLE, ())
        statements = (settle, query) if seen else (settle,)
        settled, *rows = await run_statements(db, name, statements)
        self._is_unsettled = bool(settled[0][0])
        self._seen = max(seen, int(settled[0][1]), 1)
        return [StreamId(row[0]) for found in rows for row in found]
