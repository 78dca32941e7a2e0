"""Records over many sessions: search, tool calls, usage, activity, edited files."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Annotated

import msgspec
from litestar import get
from litestar.params import FromQuery, QueryParameter

from perdure.apps.server.routes.parameters import Limit, TheCaller, TheConversations, TheRows
from perdure.apps.server.timeline import tokens_of
from perdure.apps.server.values import (
    ActivityView,
    EditView,
    HitView,
    Page,
    SessionValues,
    ToolCallView,
    UsageView,
    time_of,
)
from perdure.apps.server.views import view_of
from perdure.apps.session_rows import RowFilter, newest_rows
from perdure.client.lookup.search_hits import hits_in_force
from perdure.client.store import Store
from perdure.session.clock import ms_of
from perdure.session.ids import StreamId
from perdure.session.records import ActivityGroup, UsageGroup
from perdure.session.search.values import Hit, SearchQuery, SearchRole
from perdure.stores.protocol import SessionScope

_FACTOR = 3
"""Number of hits that are read for each hit to show, if only some sessions are searched."""

_NEWEST = 200
"""Number of newest sessions whose agents are offered as values of a filter."""


@get("/search")
async def search(  # noqa: PLR0913 - each is a filter of its own
    caller: TheCaller,
    rows: TheRows,
    text: Annotated[str, QueryParameter(name="q", min_length=1, max_length=1_000)],
    *,
    limit: Limit = 20,
    role: FromQuery[list[SearchRole] | None] = None,
    session: FromQuery[list[str] | None] = None,
    tool: FromQuery[list[str] | None] = None,
    since: FromQuery[datetime | None] = None,
    until: FromQuery[datetime | None] = None,
    sessions: Annotated[SessionScope, QueryParameter(name="scope")] = "all",
) -> Page[HitView]:
    """Search every branch of every session for words; the best hits first.

    Finds only entries in the range from `since` to before `until`. The filters of lists of sessions
    work in the same way in a search.
    """
    for each in session or ():
        await caller.session(each)
    query = SearchQuery(
        text=text,
        roles=tuple(role or ()),
        sessions=tuple(map(StreamId, session or ())),
        tools=tuple(tool or ()),
        since=None if since is None else ms_of(since),
        until=None if until is None else ms_of(until),
        limit=limit,
    )
    found = await _hits_in(caller.store, query, msgspec.structs.replace(rows, scope=sessions))
    seen = [hit for hit in found if await caller.sees(hit.stream)]
    streams = {hit.stream for hit in seen}
    names = {each: (await (await caller.store.open(each)).info()).name for each in streams}
    return Page(
        items=[
            view_of(
                HitView,
                hit,
                session=hit.stream,
                name=names[hit.stream],
                entry_id=hit.entry,
                at=time_of(hit.at),
            )
            for hit in seen
        ]
    )


@get("/session-values")
async def list_session_values(caller: TheCaller, conversations: TheConversations) -> SessionValues:
    """List the values by which the sessions that the caller sees can be filtered.

    The listed agents are those of this server and of the newest sessions.
    """
    own = caller.principal
    newest = RowFilter(
        scope="all",
        subject=own.subject,
        agents=frozenset(() if own.agent is None else (own.agent,)),
    )
    rows = await newest_rows(caller.store, newest, _NEWEST)
    agents = {row.agent for row in rows if row.agent}
    infos = [row.info for row in rows]
    if own.agent is None:
        agents |= set(conversations.runtime.host.agents)
        infos = await caller.store.recent(None, scope="all", subject=own.subject)
    return SessionValues(
        agents=sorted(agents),
        subjects=sorted({info.subject for info in infos if info.subject}),
        sources=sorted({info.source for info in infos if info.source}),
        folders=sorted({info.cwd for info in infos if info.cwd}),
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
            view_of(ToolCallView, call, input=dict(call.input), called_at=time_of(call.called_at))
            for call in found
        ]
    )


@get("/usage")
async def show_usage(
    caller: TheCaller,
    conversations: TheConversations,
    by: FromQuery[UsageGroup] = "model",
    *,
    daily: FromQuery[bool] = False,
    since: FromQuery[datetime | None] = None,
    until: FromQuery[datetime | None] = None,
) -> Page[UsageView]:
    """Show tokens and cost by model, agent, source, project, subject, day or session.

    With `daily` each group has one item a day, oldest day first. If the log has no cost for a call,
    the cost is computed with the prices of the runtime. If the runtime has no price for the model,
    the public price list of the provider is used.
    """
    caller.require_all()
    return Page(
        items=[
            view_of(
                UsageView,
                total,
                tokens=tokens_of(total.usage),
                cost_microcents=total.usage.cost_microcents,
            )
            for total in await caller.store.usage(
                by, daily=daily, since=since, until=until, prices=conversations.runtime.host.prices
            )
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
            view_of(ActivityView, total)
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
            view_of(EditView, edit, folder=edit.cwd, at=time_of(edit.at))
            for edit in await caller.store.edits(session=session, last=last)
        ]
    )


async def _hits_in(store: Store, query: SearchQuery, wanted: RowFilter) -> list[Hit]:
    """Return the best hits of `query` in the sessions that `wanted` selects.

    The best hits of all sessions are read first; in most cases, enough of them are in the selected
    sessions. If too few hits are in the selected sessions, the sessions are selected before the
    search, which is slower.
    """
    search = partial(hits_in_force, store.backend)
    if wanted == RowFilter(scope="all"):
        return await search(query)
    asked = query.limit * _FACTOR
    found = await search(msgspec.structs.replace(query, limit=asked))
    streams = await _selected(store, wanted, {hit.stream for hit in found})
    hits = [hit for hit in found if hit.stream in streams]
    if len(hits) >= query.limit or len(found) < asked:
        return hits[: query.limit]
    streams = await _selected(store, wanted, query.sessions or None)
    if not streams:
        return []
    return await search(msgspec.structs.replace(query, sessions=tuple(streams)))


async def _selected(
    store: Store, wanted: RowFilter, among: Iterable[StreamId] | None
) -> set[StreamId]:
    """Return the sessions in `among` that `wanted` selects; without `among`, all such sessions."""
    looked = msgspec.structs.replace(wanted, among=None if among is None else frozenset(among))
    rows = await newest_rows(store, looked, None, has_agents=False)
    return {row.info.id for row in rows}
