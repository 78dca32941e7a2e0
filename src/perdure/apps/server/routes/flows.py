"""Routes that list, start, show and delete flows, show feeds, and record people's decisions.

Questions of flows are answered with the routes of the inbox.
"""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody, PathParameter, QueryParameter

from perdure.apps.server.access.tokens import Role
from perdure.apps.server.flows.feeds import read_feed
from perdure.apps.server.flows.handoffs import staged_files
from perdure.apps.server.flows.inputs import (
    ConfiguredRole,
    FlowReply,
    FlowTarget,
    NewConsent,
    NewFlow,
    role_for,
)
from perdure.apps.server.flows.runs import FlowRuns
from perdure.apps.server.flows.states import shown, summaries
from perdure.apps.server.flows.values import FeedPage, FlowSummary, FlowView, HandedFile, RoleView
from perdure.apps.server.inputs import Focus
from perdure.apps.server.problems import Problem
from perdure.apps.server.routes.parameters import TheCaller, TheRuns
from perdure.apps.server.values import EntryView, Page
from perdure.apps.server.views import entry_view
from perdure.client.flows.flow import Flow
from perdure.client.store import Store
from perdure.session.flows.run import FlowState, RoleConfiguration
from perdure.session.ids import StreamId

FlowId = Annotated[str, PathParameter(description="The whole id of the flow.")]


@get("/flows")
async def list_flows(caller: TheCaller, runs: TheRuns) -> Page[FlowSummary]:
    """List all flows, newest first."""
    caller.require_all()
    return Page(items=await summaries(runs, caller.store))


@get("/projects")
async def list_projects(caller: TheCaller, runs: TheRuns) -> Page[str]:
    """List the project folders; flows can be started in these folders and in folders below them."""
    caller.require_all()
    return Page(items=[str(each) for each in runs.projects])


@post("/flows", status_code=201)
async def start_flow(caller: TheCaller, runs: TheRuns, data: JSONBody[NewFlow]) -> FlowView:
    """Start a flow and run it.

    The roles of the flow work as the operating system user of the server, so the caller needs the
    role admin.
    """
    caller.require_all("admin")
    flow = await runs.start(data)
    return await shown(await runs.ensure(flow.id), runs)


@get("/flows/{flow_id:str}")
async def show_flow(caller: TheCaller, runs: TheRuns, flow_id: FlowId) -> FlowView:
    """Show a flow: its graph, roles and consent, what it waits for, and the state of its review."""
    return await shown(await _flow(caller, runs, flow_id), runs)


@get("/flows/{flow_id:str}/feeds/{role:str}")
async def show_feed(
    caller: TheCaller,
    runs: TheRuns,
    flow_id: FlowId,
    role: FromPath[str],
    *,
    after: FromQuery[str | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=2_000)] = 300,
) -> FeedPage:
    """Show the feed of a role: its thinking, messages, actions and handoffs."""
    flow = await _flow(caller, runs, flow_id)
    await _state_with(role, flow)
    return await read_feed(caller.store, flow.id, role, after, limit)


@get("/flows/{flow_id:str}/roles/{role:str}")
async def show_role(
    caller: TheCaller, runs: TheRuns, flow_id: FlowId, role: FromPath[str]
) -> RoleView:
    """Show a role: its configuration, and how full its context is."""
    return await _role(await _flow(caller, runs, flow_id), runs, caller.store, role)


@put("/flows/{flow_id:str}/roles/{role:str}")
async def configure_role(
    caller: TheCaller,
    runs: TheRuns,
    flow_id: FlowId,
    role: FromPath[str],
    data: JSONBody[ConfiguredRole],
) -> RoleView:
    """Set the model, skills and tools of a role from its next turn on.

    Skills can be set only before the first turn of the role.
    """
    flow = await _flow(caller, runs, flow_id, "write")
    await flow.configure(
        role, model=data.model, skills=data.skills, tools=data.tools, by=caller.name
    )
    await runs.go_on(flow.id)
    return await _role(flow, runs, caller.store, role)


@get("/flows/{flow_id:str}/handoffs/{node:str}")
async def show_handoff(
    caller: TheCaller, runs: TheRuns, flow_id: FlowId, node: FromPath[str]
) -> Page[HandedFile]:
    """Show the files of a handoff that waits for approval, with diffs; empty if none waits."""
    state = await (await _flow(caller, runs, flow_id)).state()
    return Page(items=await staged_files(caller.store.backend, state, node))


@post("/flows/{flow_id:str}/roles/{role:str}/compact", status_code=200)
async def compact_role(
    caller: TheCaller,
    runs: TheRuns,
    flow_id: FlowId,
    role: FromPath[str],
    data: JSONBody[Focus],
) -> EntryView | None:
    """Summarize the work of a role at its node; answers null if there is nothing to summarize."""
    flow = await _flow(caller, runs, flow_id, "write")
    made = await (await runs.flows.open(flow.id)).compact(role, data.focus)
    return None if made is None else entry_view(made)


@post("/flows/{flow_id:str}/resume", status_code=200)
async def resume_flow(caller: TheCaller, runs: TheRuns, flow_id: FlowId) -> FlowView:
    """Run a flow that no process runs."""
    flow = await _flow(caller, runs, flow_id, "write")
    return await shown(await runs.ensure(flow.id), runs)


@post("/flows/{flow_id:str}/reply", status_code=200)
async def reply_to_node(
    caller: TheCaller, runs: TheRuns, flow_id: FlowId, data: JSONBody[FlowReply]
) -> FlowView:
    """Reply to a node or role that waits."""
    flow = await _flow(caller, runs, flow_id, "write")
    await flow.reply(data.text, data.to, by=caller.name)
    await runs.go_on(flow.id)
    return await shown(flow, runs)


@post("/flows/{flow_id:str}/stop", status_code=200)
async def stop_turn(
    caller: TheCaller, runs: TheRuns, flow_id: FlowId, data: JSONBody[FlowTarget]
) -> FlowView:
    """Stop the turn of a node or role; the node or role then waits for a reply."""
    flow = await _flow(caller, runs, flow_id, "write")
    await flow.stop(data.target, by=caller.name)
    return await shown(flow, runs)


@post("/flows/{flow_id:str}/consent", status_code=200)
async def change_consent(
    caller: TheCaller, runs: TheRuns, flow_id: FlowId, data: JSONBody[NewConsent]
) -> FlowView:
    """Change which actions a flow's roles may do without asking.

    The change also answers the open questions that the new consent decides. The mode full-access
    needs the role admin.
    """
    flow = await _flow(caller, runs, flow_id, role_for(data.mode))
    await flow.consent(
        data.mode,
        command=data.command,
        tool=data.tool,
        is_revoked=data.is_revoked,
        by=caller.name,
    )
    await runs.go_on(flow.id)
    return await shown(flow, runs)


@delete("/flows/{flow_id:str}", status_code=204)
async def delete_flow(caller: TheCaller, runs: TheRuns, flow_id: FlowId) -> None:
    """Permanently delete a flow and the sessions of its roles.

    The files in the flow's record folder are not deleted.
    """
    flow = await _flow(caller, runs, flow_id, "admin")
    await runs.stop(flow.id)
    await runs.flows.delete(flow.id, by=caller.name)


async def _flow(caller: TheCaller, runs: FlowRuns, id: str, role: Role = "read") -> Flow:
    """Return the flow whose whole id is `id`.

    Raises: Problem 403 if the rights of the caller are not sufficient; FlowNotFound if no flow has
    this id.
    """
    caller.require_all(role)
    await runs.flows.state(id)
    return runs.flows.look(StreamId(id))


async def _state_with(role: str, flow: Flow) -> FlowState:
    """Return the state of `flow`. Raises: Problem 404 if the flow has no role `role`."""
    state = await flow.state()
    roles = dict.fromkeys((*state.graph.roles, *state.sessions))
    if role not in roles:
        known = ", ".join(roles)
        raise Problem(404, "role_not_found", f"the flow has no role {role!r}; it has: {known}")
    return state


async def _role(flow: Flow, runs: FlowRuns, store: Store, role: str) -> RoleView:
    state = await _state_with(role, flow)
    chosen = state.roles.get(role, RoleConfiguration())
    session, tokens, model = state.sessions.get(role), None, chosen.model
    if session is not None:
        handle = await store.open(session)
        tokens = (await handle.context()).tokens
        model = (await handle.info()).model
    return RoleView(
        role=role,
        session=session,
        model=model,
        skills=None if chosen.skills is None else list(chosen.skills),
        tools=None if chosen.tools is None else list(chosen.tools),
        context_tokens=tokens,
        context_window=runs.window(model),
    )
