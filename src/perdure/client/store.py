"""The handle of a store: makes, finds, lists and watches sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from perdure.client.clock import Outside, absolute
from perdure.client.session import Session
from perdure.client.watching import Watch, watch_namespace
from perdure.errors import SessionExists, SessionNotFound
from perdure.events.bus import LiveBus
from perdure.session.info import Origin, SessionInfo, StreamHeader
from perdure.stores.draft import Backing, Draft, Stored
from perdure.stores.protocol import (
    Commit,
    SessionScope,
    SessionStore,
    StoreInfo,
    Verification,
    Write,
)


class Store:
    """One namespace of a store. Made by `perdure.open`; closes with its ``async with``.

    `backend`, `outside` and `bus` are what runtimes and tools are built on; programs do not need
    them. Every session opened here shares `bus`, so live events reach every watcher of this Store.
    """

    def __init__(self, backend: SessionStore, outside: Outside, bus: LiveBus | None = None) -> None:
        self.backend = backend
        self.outside = outside
        self.bus = bus or LiveBus()

    async def create(
        self,
        *,
        title: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        lazy: bool = False,
        id: str | None = None,
        metadata: Mapping[str, object] | None = None,
        origin: Origin = "user",
    ) -> Session:
        """A new session. With `lazy` a draft: nothing is stored before its first assistant message.

        Durable: when this returns, unless `lazy`.
        Raises: SessionExists; ValueError when `id` cannot be an id.
        """
        header = StreamHeader(
            id=self.outside.stream_id(id),
            created_at=self.outside.clock.now_ms(),
            origin=origin,
            cwd=absolute(cwd),
            title=title,
            metadata=dict(metadata) if metadata else None,
        )
        if lazy:
            return await self._draft(header, is_chosen=id is not None)
        write = Write(stream=header.id, create=header)
        await self.backend.commit(Commit(writes=(write,), at=header.created_at))
        return await self._handle(header, Stored(self.backend))

    async def open(self, session: str) -> Session:
        """The session of that id, or the only one whose id begins with it.

        Raises: SessionNotFound, AmbiguousId.
        """
        found = await self.backend.find(session)
        backing = Stored(self.backend)
        return Session(backing, await backing.log.state(found), self.outside, self.bus)

    async def continue_recent(self, cwd: str | os.PathLike[str] | None = None) -> Session:
        """The session with the newest activity, of `cwd` or of all; a draft if there is none."""
        folder = absolute(cwd)
        newest = await self.backend.sessions(limit=1, cwd=folder)
        if newest:
            return await self.open(newest[0].id)
        return await self.create(cwd=folder, lazy=True)

    async def recent(
        self,
        limit: int | None = 50,
        *,
        scope: SessionScope = "listed",
        cwd: str | os.PathLike[str] | None = None,
        query: str | None = None,
    ) -> list[SessionInfo]:
        """Sessions, newest activity first; of a folder, or whose name or id contains `query`."""
        return await self.backend.sessions(limit=limit, scope=scope, cwd=absolute(cwd), query=query)

    def watch(self, after: int | None = None) -> Watch:
        """The events of every session after position `after` (default: from now on; 0: all).

        Shape: as `Session.watch`; ``Watch.cursor`` is the position to go on from.
        """
        return watch_namespace(self.backend, self.bus, after)

    async def verify(self) -> Verification:
        """Check every hash, parent and count; changes nothing."""
        return await self.backend.verify()

    async def info(self) -> StoreInfo:
        """Facts and figures."""
        return await self.backend.info()

    async def close(self) -> None:
        """Finish what is under way and let go of the store. May be called twice."""
        await self.backend.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _draft(self, header: StreamHeader, *, is_chosen: bool) -> Session:
        if is_chosen and await self._exists(header):
            raise SessionExists(header.id)
        return await self._handle(
            header, await Draft.begun(self.backend, header, self.outside.clock, self.outside.random)
        )

    async def _exists(self, header: StreamHeader) -> bool:
        try:
            await self.backend.state(header.id)
        except SessionNotFound:
            return False
        return True

    async def _handle(self, header: StreamHeader, backing: Backing) -> Session:
        return Session(backing, await backing.log.state(header.id), self.outside, self.bus)
