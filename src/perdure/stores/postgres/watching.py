"""Who waits for commits: woken by NOTIFY after each, on a connection that only listens.

A commit does not carry its NOTIFY: PostgreSQL lets only one notifying transaction of the whole
server commit at a time. It is sent after the commit, many commits in one. Should it be lost with
the process that owed it, those who wait find the commit by asking for the newest position.
"""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from contextlib import suppress
from typing import LiteralString

import psycopg

from perdure.errors import StoreError
from perdure.stores.postgres.database import Connected, Database, Statement
from perdure.stores.postgres.rows import Row
from perdure.stores.watching import Changes

POLL_S = 1.0
"""How often somebody who waits asks for the newest position."""

RECONNECT_S = 0.25
PAUSE_S = 0.050
"""The least time between two notifications by one handle: each is a transaction of its own."""

SETTLE_S = 0.050
LAST_WORD_S = 2.0

# A notification is a transaction of the server's log. It need not wait for the disk.
_NOTIFY: LiteralString = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify('perdure', %s)
"""
_NEWEST: LiteralString = "SELECT last_value, is_called FROM perdure.position"


class Watcher:
    """Wakes the iterators of one handle, and tells other handles of its commits."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._payload = hashlib.sha256(database.namespace.encode()).hexdigest()[:32]
        self._watches: weakref.WeakSet[Changes] = weakref.WeakSet()
        self._listening: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._is_owed = False
        self._is_closing = asyncio.Event()

    def watch(self) -> Changes:
        """A new iterator, which sees every commit from now on."""
        changes = Changes(asyncio.get_running_loop())
        self._watches.add(changes)
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        else:
            changes.wake()  # better one wake-up for nothing than one too few
        return changes

    def wake_all(self) -> None:
        """There may have been a commit."""
        for changes in tuple(self._watches):
            changes.wake()

    def wake_soon(self) -> None:
        """Commits under way hid something: look again when they should be over."""
        asyncio.get_running_loop().call_later(SETTLE_S, self.wake_all)

    def tell(self) -> None:
        """There was a commit of this handle's."""
        self.wake_all()
        self._is_owed = True
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())

    async def close(self) -> None:
        """Tell what is still owed, and stop waiting."""
        self._is_closing.set()
        telling = self._telling
        if telling is not None:
            await asyncio.wait({telling}, timeout=LAST_WORD_S)
            telling.cancel()
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
        for changes in tuple(self._watches):
            changes.end()

    # -- telling

    async def _tell(self) -> None:
        while self._is_owed:
            self._is_owed = False
            # Who waits asks for the newest position too: a notification may be lost.
            with suppress(StoreError):
                await self._database.carry_out(Statement(_NOTIFY, (self._payload,)))
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S):
                    await self._is_closing.wait()
        self._telling = None

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
        await db.execute("LISTEN perdure")
        self.wake_all()  # for what happened before
        newest: Row | None = None
        was_new = False
        while True:
            async for notice in db.notifies(timeout=POLL_S):
                if notice.payload == self._payload:
                    self.wake_all()
            now = await (await db.execute(_NEWEST)).fetchone()
            # A position is drawn before its commit can be seen: look once more after a pause.
            if now != newest or was_new:
                self.wake_all()
            newest, was_new = now, now != newest
