"""Live events of one session or of all sessions: as server-sent events, and over a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any

from litestar import Request, WebSocket, get, websocket
from litestar.datastructures import State
from litestar.exceptions import WebSocketDisconnect
from litestar.params import FromQuery
from litestar.response import Stream

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.access.rates import Rates, address_of
from perdure.apps.server.problems import Problem, known
from perdure.apps.server.routes.parameters import SessionId, TheCaller, TheConversations, TheRates
from perdure.apps.server.streams import Piece, pieces
from perdure.errors import WrongArgument
from perdure.secrets.mask import mask_secrets

CLOSED = 4_000
"""The close code of a rejected WebSocket is this number plus the HTTP status of the error."""

REVOKED = CLOSED + 401
"""Close code when the token of the caller was revoked, or has expired."""

_MOST_REASON = 123
"""Maximum size, in bytes, of the reason in a close frame of the WebSocket protocol."""

_GONE = (WebSocketDisconnect, OSError)
"""The errors that sending raises if the client has disconnected."""

_RETRY = b"retry: 1000\n\n"
_HEARTBEAT = b": nothing new\n\n"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

AnyRequest = Request[Any, Any, State]
AnySocket = WebSocket[Any, Any, State]


@get("/sessions/{session_id:str}/events", media_type="text/event-stream", is_for_visitors=True)
async def watch_session(
    request: AnyRequest,
    caller: TheCaller,
    rates: TheRates,
    session_id: SessionId,
    after: FromQuery[int] = -1,
) -> Stream:
    """Stream the events of a session after a seq: first the stored events, then new events.

    If a client can continue after an event, the id of this event is its seq; otherwise, the event
    has no id. `caught-up` follows the last stored event. A client that connects again sends
    ``Last-Event-ID``, which replaces `after`.
    """
    content = await _of_session(caller, session_id, _cursor(request, after))
    return _stream(request, rates, caller, content)


@get("/events", media_type="text/event-stream")
async def watch_all(
    request: AnyRequest, caller: TheCaller, rates: TheRates, after: FromQuery[int | None] = None
) -> Stream:
    """Stream the events of all sessions and flows after a position, by default new events only.

    The id of an event is its position. A position after the newest event (for example, after an
    erasure, or because a backup was restored) means the position of the newest event. With a token
    of one person or agent, the stream contains only the events of sessions of this person or agent.
    """
    return _stream(request, rates, caller, await _of_all(caller, _cursor(request, after)))


@websocket("/sessions/{session_id:str}/socket")
async def follow_session(
    socket: AnySocket,
    conversations: TheConversations,
    rates: TheRates,
    session_id: SessionId,
    after: FromQuery[int] = -1,
) -> None:
    """Send the stream of `watch_session` as JSON objects with `event`, `data`, optionally `id`."""
    caller = Caller(socket.user, conversations.runtime.host.store, is_valid=socket.auth)
    await _send_all(socket, rates, caller, _of_session(caller, session_id, after))


@websocket("/socket")
async def follow_all(
    socket: AnySocket,
    conversations: TheConversations,
    rates: TheRates,
    after: FromQuery[int | None] = None,
) -> None:
    """Send the stream of `watch_all` as JSON objects with `event`, `data` and optionally `id`."""
    caller = Caller(socket.user, conversations.runtime.host.store, is_valid=socket.auth)
    await _send_all(socket, rates, caller, _of_all(caller, after))


async def _of_session(caller: Caller, id: str, start: int) -> AsyncGenerator[Piece | None]:
    """Return the stream of a session's events after the seq `start`.

    Raises: SessionNotFound if the session does not exist, or if the caller may not see it.
    Raises: Problem 422 if `start` is after the newest entry.
    """
    session = await caller.session(id)
    if start > session.head:
        detail = f"after is {start}, and the newest entry is {session.head}"
        raise Problem(422, WrongArgument.code, detail, newest=session.head)
    return pieces(session.watch(start), start, session.head, caller)


async def _of_all(caller: Caller, start: int | None) -> AsyncGenerator[Piece | None]:
    head = await caller.store.backend.position()
    start = head if start is None else min(start, head)
    return pieces(caller.store.watch(start), start, head, caller)


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
    request: AnyRequest, rates: Rates, caller: Caller, content: AsyncGenerator[Piece | None]
) -> Stream:
    rates.require_stream(caller.principal, address_of(request))

    async def counted() -> AsyncGenerator[bytes]:
        with rates.stream(caller.principal, address_of(request)):
            yield _RETRY
            async with aclosing(content):
                async for piece in content:
                    yield _HEARTBEAT if piece is None else _block(piece)

    return Stream(counted(), media_type="text/event-stream", headers=_HEADERS)


def _block(piece: Piece) -> bytes:
    """Return `piece` in the format of a server-sent event."""
    number = b"" if piece.id is None else b"id: %d\n" % piece.id
    return b"event: %s\n%sdata: %s\n\n" % (piece.name.encode(), number, piece.data)


async def _send_all(
    socket: AnySocket,
    rates: Rates,
    caller: Caller,
    opening: Coroutine[Any, Any, AsyncGenerator[Piece | None]],
) -> None:
    """Send a stream over `socket` until the client or the server ends it.

    `opening` is awaited to get the stream.
    """
    await socket.accept()
    try:
        rates.require_stream(caller.principal, address_of(socket))
        content = await opening
    except Exception as error:  # noqa: BLE001 - any error closes the socket, and the close names it
        opening.close()
        await _close(socket, error)
        return
    with rates.stream(caller.principal, address_of(socket)):
        sending = asyncio.create_task(_send(socket, content))
        leaving = asyncio.create_task(_left(socket))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            failure = sending.exception() if sending.done() else None
            if failure is None and sending.done():
                await socket.close(REVOKED, "the token is not valid any more")
            elif isinstance(failure, Exception) and not isinstance(failure, _GONE):
                await _close(socket, failure)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.wait((sending, leaving))


async def _send(socket: AnySocket, content: AsyncGenerator[Piece | None]) -> None:
    async with aclosing(content):
        async for piece in content:
            if piece is not None:  # the protocol has heartbeats of its own
                number = b"" if piece.id is None else b',"id":%d' % piece.id
                text = b'{"event":"%s"%s,"data":%s}' % (piece.name.encode(), number, piece.data)
                await socket.send_text(text.decode())


async def _left(socket: AnySocket) -> None:
    """Wait until the client disconnects. Messages from the client are ignored."""
    try:
        while True:
            await socket.receive_data("text")
    except WebSocketDisconnect:
        return


async def _close(socket: AnySocket, error: Exception) -> None:
    """Close `socket` with the status and the text of `error`."""
    found = known(error)
    reason = mask_secrets(f"{found.code}: {found}").encode()[:_MOST_REASON]
    await socket.close(CLOSED + found.status, reason.decode(errors="ignore"))
