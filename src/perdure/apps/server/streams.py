"""Live events for one caller: those of one session, or of the whole namespace.

A slow client that missed live events of an open call gets a snapshot of the call instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import NamedTuple, TypeVar

import msgspec

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.access.visitors import visible
from perdure.client.watch import Watch
from perdure.events.types import AnyEvent, Event, LiveEvent
from perdure.events.wire import wire
from perdure.session.ids import StreamId

T = TypeVar("T")

HEARTBEAT_S = 15.0
CHECK_S = 1.0
"""How often a stream checks that the token of its caller is still valid."""


class Piece(NamedTuple):
    """One event of a stream: name, JSON, and an id if a client can continue after the event."""

    name: str
    data: bytes
    id: int | None = None


async def pieces(
    watch: Watch, start: int, head: int, caller: Caller
) -> AsyncGenerator[Piece | None]:
    """Yield the events of `watch` after `start`; yield None when no event arrives for a while.

    The event `caught-up` is sent after the event at `head`. Events that the caller may not see are
    left out. The stream ends when the caller's token becomes invalid.
    """
    view = _View(caller)
    shape = visible if caller.principal.is_visitor else _whole
    is_caught_up = start >= head
    if is_caught_up:
        yield _caught_up(head)
    async with aclosing(_beating(watch, caller.is_valid)) as events:
        async for event in events:
            if event is None:
                yield None
                continue
            is_last = isinstance(event, Event) and not event.has_more
            shown = shape(event) if await view.shows(event) else None
            if shown is not None:
                id = watch.cursor.after if is_last else None
                yield Piece(_name_of(event), msgspec.json.encode(shown), id)
            if not is_caught_up and is_last and watch.cursor.after >= head:
                is_caught_up = True
                yield _caught_up(head)


class _View:
    """The events of a stream that the caller may see.

    The person of a session never changes, so the person is checked once. The agent can change, so a
    restriction to one agent is checked for each stored event.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._visible: dict[StreamId, bool] = {}

    async def shows(self, event: AnyEvent) -> bool:
        """Return whether the caller may see `event`."""
        if self._caller.sees_all:
            return True
        is_fixed = self._caller.principal.agent is None or not isinstance(event, Event)
        if not (is_fixed and event.stream in self._visible):
            self._visible[event.stream] = await self._caller.sees(event.stream)
        return self._visible[event.stream]


async def _beating(watch: Watch, is_valid: Callable[[], bool]) -> AsyncGenerator[AnyEvent | None]:
    """Yield the events of `watch`; yield None after each `HEARTBEAT_S` seconds without an event.

    Ends at most 2 * `CHECK_S` seconds after `is_valid` begins to return False.
    """
    now = asyncio.get_running_loop().time
    checked = spoken = now()
    pausing = with_pauses(watch, lambda: min(CHECK_S, HEARTBEAT_S))
    async with aclosing(watch), aclosing(pausing) as events:
        async for event in events:
            if now() - checked >= CHECK_S:
                if not is_valid():
                    return
                checked = now()
            if event is not None or now() - spoken >= HEARTBEAT_S:
                spoken = now()
                yield event


async def with_pauses(
    items: AsyncIterator[T], pause_s: Callable[[], float | None]
) -> AsyncGenerator[T | None]:
    """Yield `items`; yield None after each `pause_s()` seconds without an item.

    While `pause_s()` is None, only items are yielded.
    """
    following: asyncio.Future[T] | None = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(items))
            await asyncio.wait((following,), timeout=pause_s())
            if not following.done():
                yield None
                continue
            done, following = following, None
            try:
                yield done.result()
            except StopAsyncIteration:  # the store was closed
                return
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait((following,))


def _whole(event: AnyEvent) -> Mapping[str, object]:
    return wire(event, "flow" if event.type.startswith("flow:") else "session")


def _name_of(event: AnyEvent) -> str:
    if isinstance(event, Event):
        return "durable"
    return "live" if isinstance(event, LiveEvent) else "snapshot"


def _caught_up(head: int) -> Piece:
    return Piece("caught-up", b'{"head":%d}' % head)
