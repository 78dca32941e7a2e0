"""The WebSocket of flows."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import WebSocket, websocket
from litestar.datastructures import State
from litestar.exceptions import WebSocketDisconnect

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.access.rates import address_of
from perdure.apps.server.flows.runs import FlowRuns
from perdure.apps.server.flows.socket import MAX_MESSAGE_BYTES, FlowSocket, MessageTooLong
from perdure.apps.server.problems import Problem
from perdure.apps.server.routes.events import CLOSED, REVOKED
from perdure.apps.server.routes.parameters import TheRates, TheRuns
from perdure.apps.server.streams import CHECK_S

REFUSED = CLOSED + 403
"""Close code for a caller that is not allowed to use the socket."""

TOO_LONG = 1009
"""Close code of the protocol for a message that is too long."""

LIMITED = CLOSED + 429
"""Close code for a caller that has too many open streams."""


@websocket("/flows/socket")
async def serve_flows(socket: WebSocket[Any, Any, State], runs: TheRuns, rates: TheRates) -> None:
    """Follow flows and decide about them; docs/guides/serving.md lists the messages."""
    await socket.accept()
    try:
        rates.require_stream(socket.user, address_of(socket))
    except Problem as refused:
        await socket.close(LIMITED, str(refused))
        return
    with rates.stream(socket.user, address_of(socket)):
        await _serve(socket, runs)


async def _serve(socket: WebSocket[Any, Any, State], runs: FlowRuns) -> None:
    serving = asyncio.create_task(FlowSocket(socket, Caller(socket.user, runs.store), runs).serve())
    try:
        while not serving.done():
            await asyncio.wait((serving,), timeout=CHECK_S)
            if not serving.done() and not socket.auth():
                await socket.close(REVOKED, "the token is not valid any more")
                return
        await serving
    except Problem as refused:
        await socket.close(REFUSED, str(refused))
    except MessageTooLong:
        await socket.close(TOO_LONG, f"a message has at most {MAX_MESSAGE_BYTES} bytes")
    except WebSocketDisconnect:
        return
    finally:
        serving.cancel()
        await asyncio.wait((serving,))
