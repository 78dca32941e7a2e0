"""Records over many sessions: search, tool calls, usage, activity, edited files."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from litestar import get
from litestar.params import FromQuery, QueryParameter

from perdure.apps.server.routes.parameters import Limit, TheCaller
from perdure.apps.server.timeline import tokens_of
from perdure.apps.server.values import (
    ActivityView,
    EditView,
    HitView,
    Page,
    ToolCallView,
    UsageView,
    time_of,
)
from perdure.session.records import ActivityGroup, UsageGroup
from perdure.session.search.values import SearchRole

_FACTOR = 4
"""Hits read for each one shown to a caller who may not see all sessions."""


@get("/search")
async def search(
    caller: TheCaller,
    text: Annotated[str, QueryParameter(name="q", min_length=1, max_length=1_000)],
    *,
    limit: Limit = 20,
    role: FromQuery[list[SearchRole] | None] = None,
    session: FromQuery[list[str] | None] = None,
    tool: FromQuery[list[str] | None] = None,
    since: FromQuery[datetime | None] = None,
    until: FromQuery[datetime | None] = None,
) -> Page[HitView]:
    """Find words in everything that was said, in every branch of every session; best first."""
    for each in session or ():
        await caller.session(each)
    found = await caller.store.search(
        text,
        roles=role or (),
        sessions=session or (),
        tools=tool or (),
        since=since,
        until=until,
        limit=limit if caller.sees_all else limit * _FACTOR,
    )
    seen = [hit for hit in found if await caller.sees(hit.stream)][:limit]
    streams = {hit.stream for hit in seen}
    names = {each: (await (await caller.store.open(each)).info()).name for each in streams}
    return Page(
        items=[
            HitView(
                session=hit.stream,
                name=names[hit.stream],
                entry_id=hit.entry,
                about=hit.about,
                role=hit.role,
                at=time_of(hit.at),
                snippet=hit.snippet,
                marks=list(hit.marks),
                score=hit.score,
                is_on_branch=hit.is_on_branch,
            )
            for hit in seen
        ]
    )


@get("/tool-calls")
async def list_tool_calls(
    caller: TheCaller,
    *,
    session: FromQuery[str | None] = None,
    tool: FromQuery[str | None] = None,
    failed: FromQuery[bool | None] = None,
    last: Limit = 100,
) -> Page[ToolCallView]:
    """List the newest tool calls, of one session or of all."""
    if session is None:
        caller.require_all()
    else:
        await caller.session(session)
    found = await caller.store.tool_calls(session=session, tool=tool, failed=failed, last=last)
    return Page(
        items=[
            ToolCallView(
                id=call.id,
                session=call.session,
                entry_id=call.entry_id,
                name=call.name,
                input=dict(call.input),
                output=call.output,
                success=call.success,
                outcome=call.outcome,
                error=call.error,
                called_at=time_of(call.called_at),
                duration_ms=call.duration_ms,
            )
            for call in found
        ]
    )


@get("/usage")
async def show_usage(
    caller: TheCaller,
    by: FromQuery[UsageGroup] = "model",
    *,
    daily: FromQuery[bool] = False,
    since: FromQuery[datetime | None] = None,
    until: FromQuery[datetime | None] = None,
) -> Page[UsageView]:
    """Show tokens and cost by model, agent, source, project, subject, day or session.

    With `daily` each group has one item a day, oldest day first.
    """
    caller.require_all()
    return Page(
        items=[
            UsageView(
                key=total.key,
                day=total.day,
                calls=total.calls,
                sessions=total.sessions,
                tokens=tokens_of(total.usage),
                cost_microcents=total.usage.cost_microcents,
                unpriced_calls=total.unpriced_calls,
            )
            for total in await caller.store.usage(by, daily=daily, since=since, until=until)
        ]
    )


@get("/activity")
async def show_activity(
    caller: TheCaller,
    by: FromQuery[ActivityGroup] = "day",
    since: FromQuery[datetime | None] = None,
    until: FromQuery[datetime | None] = None,
) -> Page[ActivityView]:
    """Show messages, turns, tool calls and tokens by day or hour."""
    caller.require_all()
    return Page(
        items=[
            ActivityView(
                key=total.key,
                messages=total.messages,
                turns=total.turns,
                tool_calls=total.tool_calls,
                tokens=total.tokens,
                sessions=total.sessions,
            )
            for total in await caller.store.activity(by, since=since, until=until)
        ]
    )


@get("/edits")
async def list_edits(
    caller: TheCaller, session: FromQuery[str | None] = None, last: Limit = 50
) -> Page[EditView]:
    """List the files that tool calls changed, newest first."""
    if session is None:
        caller.require_all()
    else:
        await caller.session(session)
    return Page(
        items=[
            EditView(
                path=edit.path,
                folder=edit.cwd,
                session=edit.session,
                entry_id=edit.entry_id,
                tool=edit.tool,
                at=time_of(edit.at),
                edits=edit.edits,
            )
            for edit in await caller.store.edits(session=session, last=last)
        ]
    )


ROUTES = (search, list_tool_calls, show_usage, show_activity, list_edits)
