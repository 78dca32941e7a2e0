"""Routes that steer, abort, end and resume turns, or show the calls of turns on a time line."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get, post
from litestar.params import JSONBody, QueryParameter

from perdure.apps.server.inputs import Added, Reason, Resumed
from perdure.apps.server.problems import Problem
from perdure.apps.server.routes.parameters import (
    LARGEST_SEQ,
    Limit,
    SessionId,
    TheCaller,
    TheConversations,
)
from perdure.apps.server.routes.sessions import shown
from perdure.apps.server.timeline import newest_turns
from perdure.apps.server.values import EntryView, Page, SessionView, TurnView
from perdure.apps.server.views import entry_view


@get("/sessions/{session_id:str}/turns")
async def list_turns(
    caller: TheCaller,
    session_id: SessionId,
    last: Limit = 20,
    before: Annotated[int | None, QueryParameter(ge=0, le=LARGEST_SEQ)] = None,
) -> Page[TurnView]:
    """List the newest turns with their calls, oldest first.

    To get earlier turns, pass `next` of the answer as `before`.
    """
    return await newest_turns(await caller.session(session_id), last, before)


@post("/sessions/{session_id:str}/steer", status_code=202)
async def steer_turn(
    caller: TheCaller,
    conversations: TheConversations,
    session_id: SessionId,
    data: JSONBody[Added],
) -> EntryView:
    """Add a message to the running turn; the model gets it with its next call.

    If no turn runs, the answer is 409; `POST /v1/messages` starts a turn.
    """
    await caller.session(session_id, "write")
    return entry_view(await conversations.steer(session_id, data.text))


@post("/sessions/{session_id:str}/follow-up", status_code=202)
async def add_follow_up(
    caller: TheCaller,
    conversations: TheConversations,
    session_id: SessionId,
    data: JSONBody[Added],
) -> EntryView:
    """Queue a message that the running turn answers before it ends."""
    await caller.session(session_id, "write")
    return entry_view(await (await conversations.chat(session_id)).follow_up(data.text))


@post("/sessions/{session_id:str}/abort", status_code=200, is_conditional=True)
async def abort_turn(
    caller: TheCaller, conversations: TheConversations, session_id: SessionId
) -> Response[SessionView]:
    """Abort the open turn; its messages so far remain in the log."""
    chat = conversations.running(session_id)
    if chat is not None:
        caller.require_unconditional()
    session = await caller.session(session_id, "write")
    if chat is not None:
        await chat.abort()
    else:
        await session.abandon_turn()
    return await shown(caller, await caller.session(session_id))


@post("/sessions/{session_id:str}/cancel", status_code=200)
async def cancel_turn(
    caller: TheCaller, conversations: TheConversations, session_id: SessionId
) -> Response[SessionView]:
    """End the open turn but not the session, which can be resumed.

    Without an open turn nothing changes. If another process runs the turn, the turn continues and
    the answer is 409.
    """
    await conversations.cancel(await caller.session(session_id, "write"))
    return await shown(caller, await caller.session(session_id))


@post("/sessions/{session_id:str}/end", status_code=200, is_conditional=True)
async def end_session(
    caller: TheCaller,
    conversations: TheConversations,
    session_id: SessionId,
    data: JSONBody[Reason],
) -> Response[SessionView]:
    """Abort the open turn and end the session; the end is recorded as an episode."""
    chat = conversations.running(session_id)
    if chat is not None:
        caller.require_unconditional()
    session = await caller.session(session_id, "write")
    if chat is not None:
        await chat.end(data.reason)
    else:
        if await session.abandon_turn():
            session = await caller.session(session_id)
        await session.end(data.reason)
    return await shown(caller, await caller.session(session_id))


@post("/sessions/{session_id:str}/resume", status_code=200)
async def resume_session(
    caller: TheCaller,
    conversations: TheConversations,
    session_id: SessionId,
    data: JSONBody[Resumed],
) -> Response[SessionView]:
    """Continue an interrupted turn.

    If the session has no agent in force, `agent` becomes its agent.
    """
    await caller.session(session_id, "write")
    if data.agent is not None:
        caller.require_agent(data.agent)
        if conversations.running(session_id) is not None:
            raise Problem(409, "turn_running", "a turn of this session runs")
        await conversations.chat(session_id, data.agent)
    else:
        await conversations.continue_turn(session_id)
    return await shown(caller, await caller.session(session_id))
