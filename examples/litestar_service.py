"""A web service with Litestar: a response contains the typed answer of a turn, or its question.

A request waits for its turn and returns the result of the agent as a typed value. A turn that needs
a person does not keep the request open: the response is 202 with the question, and the response to
the answer is the result of the same turn. An event stream shows the progress of the turn.

    pip install litestar uvicorn
    uvicorn --app-dir examples litestar_service:app --timeout-graceful-shutdown 5
    curl localhost:8000/trips/1 -H 'Content-Type: application/json' -d '{"text": "Oslo"}'

The answers are a script, so it runs offline. For a real model delete ``models=SCRIPT`` and set
$OPENAI_API_KEY. The service has no sign-in: add authentication before you make it public.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from event_streams import end_streams_at_signal, until_shutdown
from litestar import Litestar, Request, Response, get, post
from litestar.datastructures import State
from litestar.exceptions import NotFoundException
from litestar.response import ServerSentEvent, ServerSentEventMessage

import perdure
from perdure import assistant, tool_call
from perdure.testing import ScriptedModel


@dataclass
class Trip:
    """What the agent planned."""

    hotel: str
    nights: int


@dataclass
class Wish:
    """The body of a request for a trip."""

    text: str


@dataclass
class Decision:
    """The body of an answer to a question."""

    question: str
    answer: str
    by: str


@perdure.tool(effect="external", needs_approval=True)
async def book(hotel: str, nights: int) -> str:
    """Book a hotel."""
    return f"booked {hotel} for {nights} nights"


AGENT = perdure.Agent("travel", model="openai:gpt-5", tools=[book], output=Trip)
PLAN = {"hotel": "Aurora", "nights": 2}
SCRIPT = ScriptedModel([assistant(tool_call("c1", "book", PLAN)), json.dumps(PLAN)])


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncGenerator[None]:
    """Open the store, and continue the turns that the last process left open."""
    async with (
        perdure.open("sqlite:///trips.db") as store,
        perdure.Runtime(store, [AGENT], models=SCRIPT) as runtime,
    ):
        app.state.store, app.state.runtime = store, runtime
        app.state.chats = {chat.id: chat for chat in await runtime.resume_all()}
        end_streams_at_signal()
        yield


async def outcome(turn: perdure.Turn) -> Response[object]:
    """Return the trip, or status 202 with the question that the turn waits for."""
    try:
        return Response((await turn).output)
    except perdure.errors.Waiting as waiting:
        return Response(perdure.wire(waiting.question), status_code=202)


@post("/trips/{session:str}")
async def plan(session: str, data: Wish, state: State) -> Response[object]:
    """Plan a trip in a new session. A second request with the same id gets status 409."""
    chat: perdure.Chat = await state.runtime.start(AGENT, id=session)
    state.chats[session] = chat
    return await outcome(chat.send(data.text, while_waiting="raise"))


@post("/trips/{session:str}/answer")
async def decide(session: str, data: Decision, state: State) -> Response[object]:
    """Answer the question of a trip, and return the result."""
    chat: perdure.Chat | None = state.chats.get(session)
    if chat is None or chat.turn is None:
        raise NotFoundException(f"no turn is open in {session!r}")
    await chat.session.answer(data.question, data.answer, by=data.by)
    return await outcome(chat.turn)


@get("/trips/{session:str}/events")
async def events(session: str, request: Request[object, object, State]) -> ServerSentEvent:
    """Stream the events of a trip after the last event that the client has, and then new events."""
    opened: perdure.Session = await request.app.state.store.open(session)
    after = int(request.headers.get("last-event-id", -1))

    async def messages() -> AsyncIterator[ServerSentEventMessage]:
        async for event in until_shutdown(opened.watch(after=after)):
            number = None
            if isinstance(event, perdure.Event) and not event.has_more:
                number = event.seq
            yield ServerSentEventMessage(json.dumps(perdure.wire(event)), id=number)

    return ServerSentEvent(messages())


def refuse(
    _: Request[object, object, State], error: perdure.errors.PerdureError
) -> Response[object]:
    """Return the error of an invalid request."""
    status = 404 if error.code.endswith("_not_found") else 409
    return Response({"code": error.code, "detail": str(error)}, status_code=status)


app = Litestar(
    [plan, decide, events],
    lifespan=[lifespan],
    exception_handlers={perdure.errors.PerdureError: refuse},
)
