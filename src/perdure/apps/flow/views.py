"""``perdure flow show`` and ``graph``, which only read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import MOST, NamespaceOption, StoreOption
from perdure.apps.cli.store_options import CommonOptions, existing_address
from perdure.apps.flow.documents.start import output_data, output_lines
from perdure.apps.flow.files import graph_in
from perdure.apps.flow.flow_access import flows_of
from perdure.apps.flow.options import FlowArgument, FolderOption, WatchOption
from perdure.apps.flow.picture.description import feed_lines, head, lost_lines
from perdure.apps.flow.picture.live import Followed, watch_flow
from perdure.apps.flow.picture.render import GraphFormat, overlaid, render
from perdure.apps.settings.store_address import NAMESPACE
from perdure.apps.store_access import existing_store
from perdure.apps.terminal.output import (
    out_style,
    show,
    show_json,
    show_lines,
    width,
)
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import safe
from perdure.client.flows.documents.outputs import outputs_of
from perdure.client.flows.feeds import Feeds
from perdure.client.flows.flow import Flow
from perdure.client.store import Store
from perdure.engine.flows.continuation import can_continue
from perdure.engine.flows.files.graph_file import WORKFLOW, GraphFile
from perdure.engine.flows.files.required_readings import project_folder
from perdure.engine.flows.lost_roles import lost_roles
from perdure.errors import ConfigError, SessionNotFound
from perdure.session.codec import body_of
from perdure.session.flows.role_session import role_session
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId

LOOKS = 3
"""A flow is reported as not running after this many checks find no process that runs it."""

BETWEEN_LOOKS_S = 0.1


async def show_flow(
    flow: FlowArgument,
    *,
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="Show only the feed of this role instance.")
    ] = None,
    is_feed: Annotated[
        bool,
        typer.Option(
            "--feed", help="With --json: print the feed of the role instead of its session."
        ),
    ] = False,
    after: Annotated[
        str | None, typer.Option(metavar="ITEM", help="Only items of the feed after this item.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="Maximum number of items of the feed.")
    ] = None,
    is_watching: WatchOption = False,
    common: CommonOptions,
) -> None:
    """Show the state of a flow, or the feed of a role.

    --json prints the state of the flow. --json with --role prints the session of the role. --json
    with --role and --feed prints the feed of the role.

    Examples:
        perdure flow show 20260527T14
        perdure flow show 20260527T14 --watch         # while another process runs it
        perdure flow show 20260527T14 --role owner    # its thinking, messages and tool calls
        perdure flow show 20260527T14 --role owner --json
    """
    if role is None and (is_feed or after is not None or limit is not None):
        raise UsageMistake("a feed is a role's: name it with --role ROLE")
    if common.as_json and not is_feed and (after is not None or limit is not None):
        raise UsageMistake("--after and --limit select items of the feed: with --json add --feed")
    if is_watching and role is not None:
        raise UsageMistake("--watch shows all roles: leave out --role")

    async with common.existing_store() as opened, flows_of(opened) as flows:
        id = await opened.find(flow, only="flow")
        handle = flows.look(id)
        if is_watching:
            await watch_flow(opened, handle, as_json=common.as_json, is_ended=lambda: False)
        elif role is not None and common.as_json and not is_feed:
            await _session(opened, handle, role)
        elif role is not None:
            await _feed(opened, handle, role, after, limit, as_json=common.as_json)
        elif common.as_json:
            show_json(await _state_data(opened, handle))
        else:
            await _picture(opened, handle)


async def _state_data(store: Store, flow: Flow) -> dict[str, object]:
    """Return the flow's state, outputs, processes, and the roles whose sessions are lost."""
    seen = overlaid(await flow.state(), await flow.waiting())
    return {
        **msgspec.to_builtins(seen.run),
        **output_data(seen, await outputs_of(store.backend, seen)),
        "workers": await flow.workers(),
        "lostRoles": await lost_roles(store.backend, seen),
        "workflowFaults": await graph_faults(seen),
    }


async def _picture(store: Store, flow: Flow) -> None:
    state = await flow.state()
    show_lines(await Followed(store, flow).draw(state, out_style()))
    show_lines(lost_lines(await lost_roles(store.backend, state), out_style()))
    show_lines(graph_fault_lines(await graph_faults(state), out_style()))
    if await _is_left_alone(flow):
        show()
        told = f"No process runs this flow: `perdure flow resume {flow.id}` continues it."
        show(out_style().paint(told, "warning"))
    show_lines(output_lines(await outputs_of(store.backend, state), out_style()))


async def _is_left_alone(flow: Flow) -> bool:
    """Return whether the flow could continue but no process runs it."""
    for _ in range(LOOKS):  # a process that waits for people starts within that time
        if not can_continue(await flow.state()) or await flow.workers():
            return False
        await asyncio.sleep(BETWEEN_LOOKS_S)
    return True


async def _session(store: Store, flow: Flow, role: str) -> None:
    id = await _stream(flow, role)
    entries = await store.backend.entries(id)
    log = ((entry, body_of(entry)) for entry in entries if not entry.is_erased)
    show_json(role_session(role, id, log))


async def _feed(
    store: Store, flow: Flow, role: str, after: str | None, limit: int | None, *, as_json: bool
) -> None:
    await _stream(flow, role)
    try:
        items = await Feeds(store.backend, flow.id).page(role, after=after, limit=limit)
    except ValueError as error:
        raise UsageMistake(f"{error}; leave out --after to begin with the first") from error
    if as_json:
        show_json(items)
        return
    show_lines(head(await flow.state(), out_style()))
    show()
    show_lines(feed_lines(items, out_style(), width()))


async def _stream(flow: Flow, role: str) -> StreamId:
    state = await flow.state()
    if role not in state.sessions:
        raise RoleNotFound(flow.id, role, tuple(state.sessions), state.graph.roles)
    return state.sessions[role]


class RoleNotFound(SessionNotFound):
    """A role of a flow has no session."""

    def __init__(
        self, flow: str, role: str, begun: tuple[str, ...], roles: tuple[str, ...]
    ) -> None:
        super().__init__(f"{flow}__{role}")
        if role in roles:
            told = f"has not begun; roles that have begun: {', '.join(begun) or 'none'}"
        else:
            told = f"is none of its roles; it has: {', '.join(roles)}"
        self.args = (f"flow {flow!r}: {role!r} {told}",)


async def graph(
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="A flow, or the file of a workflow.")],
    *,
    format: Annotated[GraphFormat, typer.Option(help="The output format.")] = "text",
    workspace: FolderOption = Path(),
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
) -> None:
    """Draw the graph of a flow or of a workflow file.

    Examples:
        perdure flow graph workflow.yaml
        perdure flow graph 20260527T14 --format mermaid
        perdure flow graph workflow.yaml --format dot | dot -Tsvg -o workflow.svg
    """
    if await asyncio.to_thread(Path(flow).is_file):
        of_file = graph_in(Path(flow), workspace)
        show_lines(render(of_file, format, out_style(), width()))
        return
    address = existing_address(store)
    async with existing_store(address, namespace) as opened, flows_of(opened) as flows:
        state = await flows.state(await opened.find(flow, only="flow"))
    show_lines(render(state.graph, format, out_style(), width(), state))


async def graph_faults(state: FlowState) -> tuple[str, ...]:
    """Return the errors in the changed workflow file if the flow does not use this file yet.

    If the flow can no longer use a changed file, for example because the flow is completed, the
    result is empty.
    """
    run = state.run
    is_fixed = state.document is not None or run.status != "running"
    if is_fixed or not state.is_place_in_force:
        return ()
    record = Path(run.record_folder_path)

    def look() -> tuple[str, ...]:
        if not (record / WORKFLOW).is_file():
            return ()
        project = project_folder(Path(run.workspace_root), run.project_namespace)
        return GraphFile(record, project).change(state).faults

    try:
        return await asyncio.to_thread(look)
    except (ConfigError, OSError):
        return ()  # the process that runs the flow reports it


def graph_fault_lines(faults: Sequence[str], style: Style) -> Iterator[str]:
    """Return lines that report `faults` of the workflow file."""
    if faults:
        yield ""
        yield style.paint(f"The flow keeps its graph; {WORKFLOW} of its record:", "warning")
        yield from (style.paint(f"  {safe(fault)}", "warning") for fault in faults)
