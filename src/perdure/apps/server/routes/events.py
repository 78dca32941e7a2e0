"""Live events as server-sent events: of one session, or of the whole namespace.

A slow client gets a snapshot of each open call in place of the live events that it missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from litestar import Request, get
from litestar.datastructures import State
from litestar.params import FromQuery
from litestar.response import Stream

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.access.rates import Rates, address_of
from perdure.apps.server.access.visitors import visible
from perdure.apps.server.problems import Problem
from perdure.apps.server.routes.parameters import SessionId, TheCaller, TheRates
from perdure.client.watch import Watch
from perdure.errors import WrongArgument
from perdure.events.types import AnyEvent, Event, LiveEvent
from perdure.events.wire import wire
from perdure.session.ids import StreamId

HEARTBEAT_S = 15.0
CHECK_S = 1.0
"""How often a stream checks that the token of its caller is still valid."""

_RETRY = b"retry: 1000\n\n"
_HEARTBEAT = b": nothing new\n\n"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

AnyRequest = Request[Any, Any, State]


@get("/sessions/{session_id:str}/events", media_type="text/event-stream", is_for_visitors=True)
async def watch_session(
    request: AnyRequest,
    caller: TheCaller,
    rates: TheRates,
    session_id: SessionId,
    after: FromQuery[int] = -1,
) -> Stream:
    """Stream the events of a session after a seq: those stored so far, then new ones.

    Each event that a client can continue after has the seq as its id. `caught-up` follows the last
    stored event. A client that connects again sends ``Last-Event-ID``, which replaces `after`.
    """
    session = await caller.session(session_id)
    start = _cursor(request, after)
    if start > session.head:
        detail = f"after is {start}, and the newest entry is {session.head}"
        raise Problem(422, WrongArgument.code, detail, newest=session.head)
    rates.require_stream(caller.principal, address_of(request))
    watch = session.watch(start)
    return _stream(request, rates, caller, blocks(watch, start, session.head, caller))


@get("/events", media_type="text/event-stream")
async def watch_all(
    request: AnyRequest, caller: TheCaller, rates: TheRates, after: FromQuery[int | None] = None
) -> Stream:
    """Stream the events of all sessions and flows after a position; without one, new events only.

    The id of an event is its position. A position past the newest event, which an erasure or an
    older backup leaves behind, stands for the newest. A token of one person or agent gets the
    events of its sessions.
    """
    head = await caller.store.backend.position()
    start = _cursor(request, after)
    start = None if start is None else min(start, head)
    rates.require_stream(caller.principal, address_of(request))
    watch = caller.store.watch(start)
    content = blocks(watch, head if start is None else start, head, caller)
    return _stream(request, rates, caller, content)


def _cursor(request: AnyRequest, after: Any) -> Any:
    last = request.headers.get("last-event-id")
    if last is None:
        return after
    try:
        return int(last)
    except ValueError:
        detail = f"Last-Event-ID is {last!r}, which is no number of an event"
        raise Problem(400, "invalid_request", detail) from None


def _stream(
    request: AnyRequest, rates: Rates, caller: Caller, content: AsyncGenerator[bytes]
) -> Stream:
    async def counted() -> AsyncGenerator[bytes]:
        with rates.stream(caller.principal, address_of(request)):
            async with aclosing(content):
                async for block in content:
                    yield block

    return Stream(counted(), media_type="text/event-stream", headers=_HEADERS)


async def blocks(watch: Watch, start: int, head: int, caller: Caller) -> AsyncGenerator[bytes]:
    """Yield `watch`, which begins after `start`, as an event stream.

    `caught-up` follows the event at `head`; a comment is sent where nothing happens for long.
    Events that the caller may not see are left out. The stream ends when its token is not valid
    any more.
    """
    view = _View(caller)
    shape = visible if caller.principal.is_visitor else _whole
    yield _RETRY
    is_caught_up = start >= head
    if is_caught_up:
        yield _caught_up(head)
    async with aclosing(_beating(watch, caller.is_valid)) as events:
        async for event in events:
            if event is None:
                yield _HEARTBEAT
                continue
            is_last = isinstance(event, Event) and not event.has_more
            shown = shape(event) if await view.shows(event) else None
            if shown is not None:
                yield block(event, watch.cursor.after if is_last else None, shown)
            if not is_caught_up and is_last and watch.cursor.after >= head:
                is_caught_up = True
                yield _caught_up(head)


class _View:
    """Which events of a stream its caller sees.

    The person of a session never changes, its agent may: then each stored event is checked.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._visible: dict[StreamId, bool] = {}

    async def shows(self, event: AnyEvent) -> bool:
        """Whether the caller sees `event`."""
        if self._caller.sees_all:
            return True
        is_fixed = self._caller.principal.agent is None or not isinstance(event, Event)
        if not (is_fixed and event.stream in self._visible):
            self._visible[event.stream] = await self._caller.sees(event.stream)
        return self._visible[event.stream]


async def _beating(watch: Watch, is_valid: Callable[[], bool]) -> AsyncGenerator[AnyEvent | None]:
    """Yield the events of `watch`, and None after each `HEARTBEAT_S` without one.

    Ends within about `CHECK_S` when `is_valid` says no.
    """
    following: asyncio.Task[AnyEvent] | None = None
    now = asyncio.get_running_loop().time
    checked = spoken = now()
    try:
        while True:
            following = following or asyncio.ensure_future(anext(watch))
            await asyncio.wait((following,), timeout=min(CHECK_S, HEARTBEAT_S))
            if now() - checked >= CHECK_S:
                if not is_valid():
                    return
                checked = now()
            if not following.done():
                if now() - spoken >= HEARTBEAT_S:
                    spoken = now()
                    yield None
                continue
            spoken = now()
            done, following = following, None
            try:
                yield done.result()
            except StopAsyncIteration:  # the store was closed
                return
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait((following,))
        await watch.aclose()


def _whole(event: AnyEvent) -> Mapping[str, object]:
    return wire(event, "flow" if event.type.startswith("flow:") else "session")


def block(event: AnyEvent, id: int | None, shown: Mapping[str, object] | None = None) -> bytes:
    """Return `event` as a block of an event stream, with `id` if a client can continue after it.

    `shown` are its data, all of it by default.
    """
    data = msgspec.json.encode(_whole(event) if shown is None else shown)
    number = b"" if id is None else b"id: %d\n" % id
    return b"event: %s\n%sdata: %s\n\n" % (_name_of(event), number, data)


def _name_of(event: AnyEvent) -> bytes:
    if isinstance(event, Event):
        return b"durable"
    return b"live" if isinstance(event, LiveEvent) else b"snapshot"


def _caught_up(head: int) -> bytes:
    return b'event: caught-up\ndata: {"head":%d}\n\n' % head


ROUTES = (watch_session, watch_all)
