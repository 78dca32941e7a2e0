"""Sessions: list, create, show, rename, and their messages and entries."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, cast

import msgspec
from litestar import Request, Response, delete, get, patch, post
from litestar.params import FromQuery, JSONBody, QueryParameter

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.access.heads import etag_of, heads_in
from perdure.apps.server.context_values import ContextView
from perdure.apps.server.contexts import context_of_call, next_context
from perdure.apps.server.inputs import NewSession, Renamed
from perdure.apps.server.problems import Problem, Unchanged
from perdure.apps.server.routes.parameters import (
    LARGEST_SEQ,
    Limit,
    SessionId,
    TheCaller,
    TheConversations,
    TheRows,
)
from perdure.apps.server.tool_states import call_states
from perdure.apps.server.trees import compactions_after, tree_since
from perdure.apps.server.values import (
    EntryView,
    ErasedView,
    Messages,
    Page,
    SessionView,
)
from perdure.apps.server.views import (
    entry_view,
    message_view,
    session_view,
    whole_view,
)
from perdure.apps.session_rows import newest_rows
from perdure.client.session import Session
from perdure.errors import SessionHasForks
from perdure.events.wire import wire
from perdure.interop.reports import ExportFormat, Redaction
from perdure.session.entries import Entry
from perdure.session.kinds import MESSAGE
from perdure.stores.protocol import SessionScope
from perdure.stores.retention.erase import ForkPolicy

_LINES = ("jsonl", "application/x-ndjson")
_FILES: Mapping[ExportFormat, tuple[str, str]] = {
    "perdure": _LINES,
    "pi": _LINES,
    "operator": _LINES,
    "claude-code": _LINES,
    "codex": _LINES,
    "opencode": ("json", "application/json"),
    "workflow": ("yaml", "application/yaml"),
    "markdown": ("md", "text/markdown"),
    "html": ("html", "text/html"),
}
"""Format -> extension of its files, and their media type."""

_LONGEST_NAME = 100
_WITHOUT_ENTRY = ("running", "interrupted")
"""States that can change without a new entry, for example when the process of a turn is killed."""


@get("/sessions")
async def list_sessions(
    caller: TheCaller,
    rows: TheRows,
    *,
    limit: Limit = 50,
    after: FromQuery[str | None] = None,
    text: Annotated[str | None, QueryParameter(name="query")] = None,
    since: FromQuery[datetime | None] = None,
    until: FromQuery[datetime | None] = None,
    sessions: Annotated[SessionScope, QueryParameter(name="scope")] = "listed",
) -> Page[SessionView]:
    """List the sessions whose last activity is in the range from `since` to before `until`.

    The session with the newest activity comes first.
    """
    rows = msgspec.structs.replace(rows, scope=sessions, query=text, since=since, until=until)
    found = await newest_rows(caller.store, rows, limit + 1, after, has_models=True)
    return Page(
        items=[session_view(row.info, row.state, agent=row.agent) for row in found[:limit]],
        next=found[limit - 1].info.cursor if len(found) > limit else None,
    )


@post("/sessions", status_code=201, is_keyed=True)
async def create_session(
    caller: TheCaller, conversations: TheConversations, data: JSONBody[NewSession]
) -> Response[SessionView]:
    """Create a session with an agent."""
    caller.require("write")
    chat = await conversations.create(caller, data)
    return await shown(caller, chat.session, 201)


@get("/sessions/{session_id:str}")
async def show_session(
    request: Request[Any, Any, Any], caller: TheCaller, session_id: SessionId
) -> Response[SessionView]:
    """Show a session; answers 304 to `If-None-Match` if the session is unchanged and idle."""
    session = await caller.session(session_id)
    answer = await shown(caller, session)
    lines = request.headers.getall("if-none-match", [])
    heads = heads_in("If-None-Match", lines, is_weak=True) if lines else frozenset[int]()
    is_known = heads is None or session.head in heads
    if is_known and answer.content.state not in _WITHOUT_ENTRY:
        raise Unchanged(etag_of(session.head))
    return answer


@patch("/sessions/{session_id:str}", is_conditional=True)
async def rename_session(
    caller: TheCaller, session_id: SessionId, data: JSONBody[Renamed]
) -> Response[SessionView]:
    """Change the title of a session; null removes the title."""
    session = await caller.session(session_id, "write")
    await session.rename(data.title)
    return await shown(caller, session)


@get("/sessions/{session_id:str}/messages")
async def list_messages(
    caller: TheCaller, session_id: SessionId, last: Limit = 50, before: FromQuery[str | None] = None
) -> Messages:
    """List messages of the active branch, oldest first; with `before`, only earlier messages."""
    session = await caller.session(session_id)
    path = await session.path(before, last=last + 1 + (before is not None), kind=MESSAGE)
    if before is not None:
        path = [entry for entry in path if entry.id != before][-(last + 1) :]
    shown = path[-last:]
    labels, pins = await session.labels(), await session.pins()
    tree = await tree_since(session, shown)
    siblings, states = _siblings(tree), await call_states(session, shown)
    return Messages(
        items=[
            message_view(
                entry,
                message,
                labels.get(entry.id),
                is_pinned=entry.id in pins,
                siblings=[each for each in siblings[entry.parent_id] if each != entry.id],
                calls=states.get(entry.id),
            )
            for entry in shown
            if (message := entry.message) is not None
        ],
        has_more=len(path) > last,
        compactions=await compactions_after(session, tree, shown),
    )


@get("/sessions/{session_id:str}/entries")
async def list_entries(
    caller: TheCaller,
    session_id: SessionId,
    *,
    limit: Limit = 100,
    after: Annotated[
        int,
        QueryParameter(
            description="The list starts after the entry with this seq, so with `newestFirst` it "
            "contains only older entries; -1 starts at the first entry of the list."
        ),
    ] = -1,
    kind: FromQuery[str | None] = None,
    newest_first: Annotated[bool, QueryParameter(name="newestFirst")] = False,
) -> Page[EntryView]:
    """List the entries of the log, in log order or newest first.

    To get the next page in either order, pass `next` of the answer as `after`.
    """
    session = await caller.session(session_id)
    found = [
        entry
        async for entry in session.entries(
            after, kind=kind, newest_first=newest_first, limit=limit + 1
        )
    ]
    shown = found[:limit]
    return Page(
        items=[entry_view(entry) for entry in shown],
        next=str(shown[-1].seq) if len(found) > limit else None,
    )


async def shown(caller: Caller, session: Session, status: int = 200) -> Response[SessionView]:
    """Return the answer with `session`; its ``ETag`` is the head of the session's log."""
    view = await whole_view(caller.store, session)
    return Response(view, status_code=status, headers={"ETag": etag_of(session.head)})


def _siblings(tree: Iterable[Entry]) -> dict[str | None, list[str]]:
    """Return parent id -> ids of the entries in `tree` that have this parent."""
    found: dict[str | None, list[str]] = defaultdict(list)
    for entry in tree:
        found[entry.parent_id].append(entry.id)
    return found


@get("/sessions/{session_id:str}/context")
async def show_context(
    caller: TheCaller,
    conversations: TheConversations,
    session_id: SessionId,
    *,
    budget: Annotated[int | None, QueryParameter(ge=1)] = None,
    call: Annotated[int | None, QueryParameter(ge=0, le=LARGEST_SEQ)] = None,
    last: Annotated[int | None, QueryParameter(ge=1)] = None,
) -> ContextView:
    """Show the next request to a model, within `budget` tokens, or the request of a past `call`.

    With `last`, return only the newest messages; `earlier` counts the omitted ones.
    Texts recalled from other sessions are shown only to a token that can read all sessions.
    """
    session = await caller.session(session_id)
    if call is not None:
        view = await context_of_call(conversations.runtime.host, session, call, last)
        return view if caller.sees_all else msgspec.structs.replace(view, recalled=[])
    host = conversations.runtime.host
    return await next_context(host, caller.store, session, budget, last)


@get(
    "/sessions/{session_id:str}/export",
    media_type="application/octet-stream",
    media_types=sorted({kind for _, kind in _FILES.values()}),
)
async def export_session(
    caller: TheCaller,
    session_id: SessionId,
    file_format: Annotated[ExportFormat, QueryParameter(name="format")] = "perdure",
    redact: FromQuery[list[Redaction] | None] = None,
) -> Response[bytes]:
    """Export a session as a file, with a name and a media type for its format."""
    session = await caller.session(session_id)
    exported = await session.export(file_format, redact=redact or ())
    ending, media_type = _FILES[file_format]
    name = re.sub(r"[^A-Za-z0-9._-]", "_", session.id)[:_LONGEST_NAME]
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.{ending}"',
        "X-Content-Type-Options": "nosniff",
    }
    return Response(exported.content, headers=headers, media_type=media_type)


@delete("/sessions/{session_id:str}", status_code=200, is_conditional=True)
async def erase_session(
    caller: TheCaller, session_id: SessionId, forks: FromQuery[ForkPolicy] = "refuse"
) -> ErasedView:
    """Permanently erase a session; the answer is the certificate.

    An erasure cannot be undone. Backups, exports and other copies keep the content. The field
    `copies` of the certificate lists the copies that the store knows.
    """
    session = await caller.session(session_id, "admin")
    if forks == "erase":
        caller.require_all()
    try:
        certificate = await session.erase(
            forks=forks,
            by=caller.name,
            expected_head=session.head if caller.is_conditional else None,
        )
    except SessionHasForks as error:
        if caller.sees_all:
            raise
        raise Problem(409, error.code, "forks share entries of it; nothing was erased") from None
    return ErasedView(certificate=cast("dict[str, Any]", wire(certificate)))
