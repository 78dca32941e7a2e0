"""A connection's streams with a notification at the end of input."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self


class WatchedTransport:
    """A transport of the library; sets `over` when the other side has closed."""

    def __init__(self, transport: Any, over: asyncio.Event) -> None:
        self._transport = transport
        self._over = over
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> tuple[Any, Any]:
        reading, writing = await self._stack.enter_async_context(self._transport)
        return _Reading(reading, self._over), writing

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


class _Reading:
    """Incoming messages, one after the other."""

    def __init__(self, stream: Any, over: asyncio.Event) -> None:
        self._stream = stream
        self._over = over

    @property
    def last_context(self) -> Any:
        """Return the context of the last message, which the library reads if it exists."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except BaseException:
            self._over.set()
            raise

    async def aclose(self) -> None:
        self._over.set()
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._over.set()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self._over.set()
        return await self._stream.__aexit__(kind, error, trace)
