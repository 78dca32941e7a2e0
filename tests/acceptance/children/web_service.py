"""A web service whose agents ask people; it runs a `Runtime` and sends events as SSE.

Called as ``web_service.py STORE FOLDER GRACE_S``; prints its port.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import perdure
from perdure.client.clock import SystemClock
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel

ASKING = CallTools((ScriptedCall("write_file", '{"path": "a.txt", "content": "x"}'),))
SCENARIO = Scenario(
    name="test",
    rules=(
        Reply(when=When(after="user"), steps=(ASKING,)),
        Reply(when=When(after="tool"), steps=(Say("done"),)),
    ),
)
AGENT = perdure.Agent("helper", model="scripted:test", tools=("write_file",))


@dataclass
class Service:
    """The store, runtime and folder that the requests use while the service runs."""

    store: perdure.Store
    runtime: perdure.Runtime
    folder: Path


def application(address: str, folder: Path) -> Starlette:
    """The service on the store at `address`."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[dict[str, Any]]:
        models = ScriptedModel(SCENARIO, clock=SystemClock())
        async with (
            perdure.open(address) as store,
            perdure.Runtime(store, [AGENT], models=models) as runtime,
        ):
            yield {"service": Service(store, runtime, folder)}

    routes = [
        Route("/send/{session}", send, methods=["POST"]),
        Route("/resume/{session}", resume, methods=["POST"]),
        Route("/answer/{question:path}", answer, methods=["POST"]),
        Route("/questions", questions),
        Route("/events/{session}", events),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def send(request: Request) -> Response:
    service = request.state.service
    session = request.path_params["session"]
    folder = service.folder / session  # of its own: what one writes, another's approval is bound to
    folder.mkdir()
    place = perdure.Workspace(working_dir=str(folder))
    chat = await service.runtime.start("helper", id=session, workspace=place)
    chat.send("go")
    return JSONResponse({"session": chat.id})


async def resume(request: Request) -> Response:
    """Continue the open turn, and respond once it ends."""
    chat = await request.state.service.runtime.resume(request.path_params["session"])
    assert chat.turn is not None
    return JSONResponse({"text": (await chat.turn).text})


async def answer(request: Request) -> Response:
    store = request.state.service.store
    await store.answer(request.path_params["question"], "allow", by="a person")
    return Response(status_code=204)


async def questions(request: Request) -> Response:
    asked = await request.state.service.store.questions()
    return JSONResponse([question.id for question in asked])


async def events(request: Request) -> Response:
    session = await request.state.service.store.open(request.path_params["session"])

    async def lines() -> AsyncIterator[str]:
        async for event in session.watch(after=-1):
            yield f"data: {event.type}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


def main(address: str, folder: str, grace_s: str) -> None:
    """Serve until SIGTERM."""
    app = application(address, Path(folder))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=int(grace_s), lifespan="on"
        )
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
