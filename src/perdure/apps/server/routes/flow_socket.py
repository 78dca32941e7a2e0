"""The WebSocket of flows."""

from __future__ import annotations

from typing import Any

from litestar import WebSocket, websocket
from litestar.datastructures import State
from litestar.exceptions import WebSocketDisconnect

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.flows.socket import FlowSocket
from perdure.apps.server.problems import Problem
from perdure.apps.server.routes.parameters import TheRuns

REFUSED = 4403
"""Close code for a caller that may not use the socket."""


@websocket("/flows/socket")
async def serve_flows(socket: WebSocket[Any, Any, State], runs: TheRuns) -> None:
    """Follow flows and decide about them; docs/guides/serving.md lists the messages."""
    await socket.accept()
    try:
        await FlowSocket(socket, Caller(socket.user, runs.store), runs).serve()
    except Problem as refused:
        await socket.close(REFUSED, str(refused))
    except WebSocketDisconnect:
        return


ROUTES = (serve_flows,)
