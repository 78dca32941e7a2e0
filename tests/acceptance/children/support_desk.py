"""A support desk as a web service: an agent with two providers, a session for each ticket.

Called as ``support_desk.py STORE FOLDER``; prints its port. The program uses only features that the
guides describe."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import perdure

FOLDER = Path(sys.argv[2])
PRICE = perdure.Price(perdure.dollars("1.25"), perdure.dollars(10))


@perdure.tool(effect="read")
async def find_order(number: int) -> dict[str, object]:
    """Look an order up."""
    return {"number": number, "status": "sent"}


@perdure.tool(effect="external", on_unknown="ask", timeout_s=60)
def refund(number: int, *, call: perdure.ToolCall) -> str:
    """Give the money for an order back."""
    with (FOLDER / "refunds.txt").open("a", encoding="utf-8") as book:
        book.write(f"{number} {call.idempotency_key}\n")
    while (FOLDER / "bank-is-slow").exists():
        time.sleep(0.01)
    return "refunded"


AGENT = perdure.Agent(
    "desk",
    model="openai:desk-1",
    fallbacks=["anthropic:claude-haiku-4-5"],
    instructions="You answer the customers of {{ctx.shop}}.",
    tools=[find_order, refund, "write_file"],
    max_cost_microcents=perdure.dollars(1),
)


@contextlib.asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[dict[str, Any]]:
    prices = {"openai:*": PRICE, "anthropic:*": PRICE}
    async with (
        perdure.open(sys.argv[1]) as store,
        perdure.Runtime(store, [AGENT], prices=prices) as runtime,
    ):
        # What was open when the last process ended goes on.
        chats = {info.id: await runtime.resume(info.id) for info in await store.recent()}
        yield {"store": store, "runtime": runtime, "chats": chats}


async def say(request: Request) -> Response:
    """Begin a turn, in a new session if the ticket is new; respond once the message is stored."""
    chats: dict[str, perdure.Chat] = request.state.chats
    ticket = request.path_params["ticket"]
    if ticket not in chats:
        place = perdure.Workspace(working_dir=str(FOLDER), variables={"shop": "Kettle & Co"})
        chats[ticket] = await request.state.runtime.start("desk", id=ticket, workspace=place)
    turn = chats[ticket].send((await request.body()).decode())
    await turn.started()  # the message is stored: what follows survives the process
    return Response(status_code=202)


async def show(request: Request) -> Response:
    """Return the newest answer of a ticket, and the model that gave it."""
    session = await request.state.store.open(request.path_params["ticket"])
    messages = await session.messages()
    newest = messages[-1]
    return JSONResponse({"role": newest.role, "text": newest.text, "model": newest.model})


async def events(request: Request) -> Response:
    """The events of a ticket as SSE, after the seq `after`."""
    session = await request.state.store.open(request.path_params["ticket"])
    after = int(request.query_params.get("after", -1))

    async def lines() -> AsyncIterator[str]:
        async for event in session.watch(after=after):
            number = ""
            if isinstance(event, perdure.Event) and not event.has_more:
                number = f"id: {event.seq}\n"
            yield f"{number}data: {json.dumps(perdure.wire(event))}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


def main() -> None:
    """Serve until SIGTERM."""
    routes = [
        Route("/tickets/{ticket}", say, methods=["POST"]),
        Route("/tickets/{ticket}", show),
        Route("/tickets/{ticket}/events", events),
    ]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        app = Starlette(routes=routes, lifespan=lifespan)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
