"""A web service: messages and approvals over HTTP, events to the browser as they happen.

Each chat is a session with a durable id. A message starts a turn in the background; the browser
receives its events as server-sent events. The agent needs approval to refund an order: its question
waits in the store until a person answers it over HTTP. If the service is killed at any point, its
next start continues every open turn, and a browser that connects again misses no event.

    pip install 'fastapi>=0.135' uvicorn
    uvicorn --app-dir examples fastapi_service:app --timeout-graceful-shutdown 5

Open http://127.0.0.1:8000. The answers are a script, so it runs offline. For a real model delete
``models=SCRIPT``, install ``perdure[openai]`` and set $OPENAI_API_KEY. The service has no sign-in:
add authentication before you make it public.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from event_streams import end_streams_at_signal, until_shutdown
from fastapi import Body, Depends, FastAPI, Header, Request
from fastapi.responses import FileResponse, JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

import perdure
from perdure.testing import ScriptedModel


@perdure.tool(effect="external", needs_approval=True)
async def refund(order: int) -> str:
    """Refund an order."""
    return f"order {order} is refunded"


AGENT = perdure.Agent("desk", model="openai:gpt-5", instructions="Help customers.", tools=[refund])
CALL = perdure.tool_call("c1", "refund", {"order": 7})
SCRIPT = ScriptedModel([perdure.assistant(CALL), "Your money is on its way.", "You are welcome."])


@dataclass
class Service:
    """The objects that all requests share while the service runs."""

    store: perdure.Store
    runtime: perdure.Runtime
    chats: dict[str, perdure.Chat]

    async def chat(self, session: str) -> perdure.Chat:
        """Return the chat of `session`, resumed or new."""
        if session not in self.chats:
            await self.store.open_or_create(session)  # one session for simultaneous requests
            self.chats.setdefault(session, await self.runtime.resume(session, AGENT))
        return self.chats[session]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[dict[str, Service]]:
    """Open the store, and continue the turns that the last process left open."""
    async with (
        perdure.open("sqlite:///service.db") as store,
        perdure.Runtime(store, [AGENT], models=SCRIPT) as runtime,
    ):
        chats = {str(chat.id): chat for chat in await runtime.resume_all()}
        end_streams_at_signal()
        yield {"service": Service(store, runtime, chats)}


def service_of(request: Request) -> Service:
    """Return the service of a request."""
    service: Service = request.state.service
    return service


Shared = Annotated[Service, Depends(service_of)]


async def session_of(session: str, service: Shared) -> perdure.Session:
    """Return the session with the id in a request."""
    return await service.store.open(session)


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def page() -> FileResponse:
    """Show a page that chats."""
    return FileResponse(Path(__file__).with_name("page.html"))


@app.post("/chats/{session}/messages", status_code=202)
async def say(session: str, text: Annotated[str, Body(embed=True)], service: Shared) -> None:
    """Store a message, and start its turn; a turn that is running receives the message instead."""
    chat = await service.chat(session)
    if chat.is_running:
        await chat.steer(text)
    else:
        await chat.send(text).started()


@app.get("/chats/{session}/events", response_class=EventSourceResponse)
async def events(
    session: Annotated[perdure.Session, Depends(session_of)],
    last_event_id: Annotated[int, Header(ge=-1)] = -1,
) -> AsyncIterable[ServerSentEvent]:
    """Stream the events after the last event that the browser has, and then new events."""
    after = min(last_event_id, session.head)  # a number past the newest begins there
    async for event in until_shutdown(session.watch(after=after)):
        number = None
        if isinstance(event, perdure.Event) and not event.has_more:
            number = str(event.seq)
        yield ServerSentEvent(data=perdure.wire(event), id=number)


@app.get("/questions")
async def questions(service: Shared) -> list[object]:
    """List the open questions for a person, with all arguments."""
    return [perdure.wire(question) for question in await service.store.questions()]


@app.post("/questions/{question:path}/answer", status_code=204)
async def answer(
    question: str, answer: Annotated[str, Body()], by: Annotated[str, Body()], service: Shared
) -> None:
    """Answer a question; its turn continues."""
    await service.store.answer(question, answer, by=by)


@app.exception_handler(perdure.errors.PerdureError)
async def refuse(_: Request, error: perdure.errors.PerdureError) -> JSONResponse:
    """Return the error of an invalid request."""
    status = 404 if error.code.endswith("_not_found") else 409
    return JSONResponse({"code": error.code, "detail": str(error)}, status)
