"""Routes on branches: move, fork, label and compact them, and show their tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from litestar import Response, delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from perdure.apps.server.inputs import BranchTo, Focus, Labelled, NewFork, Uncompacted
from perdure.apps.server.problems import Problem
from perdure.apps.server.routes.parameters import SessionId, TheCaller, TheConversations
from perdure.apps.server.routes.sessions import shown
from perdure.apps.server.tool_states import call_states
from perdure.apps.server.trees import read_tree
from perdure.apps.server.values import (
    Difference,
    EntryView,
    MessageView,
    RemovedView,
    SessionView,
    Tree,
)
from perdure.apps.server.views import entry_view, message_view
from perdure.client.session import Session
from perdure.session.entries import Entry
from perdure.session.ids import entry_id
from perdure.session.kinds import MESSAGE


@get("/sessions/{session_id:str}/tree")
async def show_tree(
    caller: TheCaller,
    session_id: SessionId,
    last: Annotated[int, QueryParameter(ge=1, le=100_000)] = 2_000,
) -> Tree:
    """Show the newest entries of all branches, in log order."""
    return await read_tree(await caller.session(session_id), last)


@get("/sessions/{session_id:str}/diff")
async def compare_branches(
    caller: TheCaller, session_id: SessionId, a: FromQuery[str], b: FromQuery[str]
) -> Difference:
    """Compare the branches that end at the entries `a` and `b`."""
    session = await caller.session(session_id)
    one, two = await session.path(a), await session.path(b)
    shared = 0
    while shared < min(len(one), len(two)) and one[shared].id == two[shared].id:
        shared += 1
    return Difference(
        shared=one[shared - 1].id if shared else None,
        a=await _messages(session, one[shared:]),
        b=await _messages(session, two[shared:]),
    )


@post("/sessions/{session_id:str}/branch", status_code=200, is_conditional=True)
async def move_branch(
    caller: TheCaller,
    conversations: TheConversations,
    session_id: SessionId,
    data: JSONBody[BranchTo],
) -> Response[SessionView]:
    """Continue the conversation from another entry."""
    if data.summary:
        caller.require_unconditional()
    session = await caller.session(session_id, "write")
    if data.summary:
        chat = await conversations.chat(session_id)
        await chat.branch(data.entry, expected_leaf=data.expected_leaf, with_summary=True)
    else:
        await session.branch(data.entry, expected_leaf=data.expected_leaf)
    return await shown(caller, await caller.session(session_id))


@post("/sessions/{session_id:str}/fork", status_code=201, is_conditional=True)
async def fork_session(
    caller: TheCaller, session_id: SessionId, data: JSONBody[NewFork]
) -> Response[SessionView]:
    """Fork a session: the fork shares the entries of the session."""
    session = await caller.session(session_id, "write")
    fork = await session.fork(
        data.at,
        id=data.id,
        title=data.title,
        metadata=data.metadata,
        subject=caller.subject_or(data.subject),
    )
    return await shown(caller, fork, 201)


@put("/sessions/{session_id:str}/labels/{seq:int}", is_conditional=True)
async def label_entry(
    caller: TheCaller, session_id: SessionId, seq: FromPath[int], data: JSONBody[Labelled]
) -> EntryView:
    """Set or remove the label of an entry."""
    session = await caller.session(session_id, "write")
    return entry_view(await session.label(entry_id(session.id, seq), data.text))


@put("/sessions/{session_id:str}/pins/{seq:int}", is_conditional=True)
async def pin_entry(caller: TheCaller, session_id: SessionId, seq: FromPath[int]) -> EntryView:
    """Keep an entry in the context, even if a compaction covers it."""
    session = await caller.session(session_id, "write")
    return entry_view(await session.pin(entry_id(session.id, seq)))


@delete("/sessions/{session_id:str}/pins/{seq:int}", status_code=200, is_conditional=True)
async def unpin_entry(caller: TheCaller, session_id: SessionId, seq: FromPath[int]) -> EntryView:
    """Let compactions hide an entry again."""
    session = await caller.session(session_id, "write")
    return entry_view(await session.unpin(entry_id(session.id, seq)))


@post("/sessions/{session_id:str}/compact", status_code=200, is_conditional=True)
async def compact_session(
    caller: TheCaller,
    conversations: TheConversations,
    session_id: SessionId,
    data: JSONBody[Focus],
) -> Response[SessionView]:
    """Summarize older messages in the context; the log keeps them.

    Answers 409 with the code `nothing_to_compact` if a summary could replace no messages.
    """
    session = await caller.session(session_id, "write")
    chat = await conversations.chat(session_id)
    head = session.head if caller.is_conditional else None
    if await chat.compact(data.focus, expected_head=head) is None:
        raise Problem(409, "nothing_to_compact", "no older messages could be summarised now")
    return await shown(caller, await caller.session(session_id))


@get("/sessions/{session_id:str}/removed")
async def show_removed(
    caller: TheCaller, session_id: SessionId, compaction: FromQuery[str]
) -> RemovedView:
    """Show the messages that a compaction removed from the context; the log keeps them."""
    session = await caller.session(session_id)
    left = await session.left_by(compaction)
    wanted = frozenset[str](() if left is None else left.entries)
    removed = [each for each in await session.path(compaction, kind=MESSAGE) if each.id in wanted]
    return RemovedView(
        compaction=compaction,
        items=await _messages(session, removed),
        pinned=[] if left is None else list(left.pinned),
    )


@post("/sessions/{session_id:str}/uncompact", status_code=200, is_conditional=True)
async def undo_compaction(
    caller: TheCaller, session_id: SessionId, data: JSONBody[Uncompacted]
) -> Response[SessionView]:
    """Undo a compaction: the hidden messages are in the context again."""
    session = await caller.session(session_id, "write")
    await session.uncompact(data.compaction)
    return await shown(caller, session)


async def _messages(session: Session, entries: Sequence[Entry]) -> list[MessageView]:
    states = await call_states(session, entries)
    return [
        message_view(entry, message, calls=states.get(entry.id))
        for entry in entries
        if entry.kind == MESSAGE and (message := entry.message) is not None
    ]
