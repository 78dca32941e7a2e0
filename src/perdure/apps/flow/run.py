"""``perdure flow run`` and ``resume``: run a flow until it ends or needs a person."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import DONE, FAILED, UsageMistake
from perdure.apps.cli.options import named_path, require_file, stored_path
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.flow.documents.agents import recast
from perdure.apps.flow.documents.start import (
    InputsOption,
    Prepared,
    output_data,
    output_lines,
    prepare,
)
from perdure.apps.flow.files import graph_in
from perdure.apps.flow.flow_access import flows_of
from perdure.apps.flow.options import (
    ActingOptions,
    FlowArgument,
    ProjectOption,
    Shown,
    WorkspaceOption,
    person,
)
from perdure.apps.flow.picture.description import lost_lines, wait_data, waits
from perdure.apps.flow.picture.live import Followed, changes_of, watch_flow
from perdure.apps.flow.picture.render import is_blocked
from perdure.apps.flow.roles import (
    RoleOptions,
    configuring_in,
    is_choosing,
    model_of_roles,
    models_before,
    roles_in,
    roles_of,
)
from perdure.apps.flow.run_settings import (
    acting_of,
    grant_added,
    new_settings,
    resumed_settings,
    scenario_folder,
)
from perdure.apps.flow.views import graph_fault_lines, graph_faults
from perdure.apps.terminal.output import out_style, remark, show, show_json, show_lines
from perdure.apps.terminal.text import safe
from perdure.apps.wiring import require_providers
from perdure.client.flows.documents.outputs import outputs_of
from perdure.client.flows.documents.start import document_in
from perdure.client.flows.flow import Flow
from perdure.client.store import Store
from perdure.engine.flows.lost_roles import lost_roles
from perdure.models.catalogue import ECHO
from perdure.session.flows.kinds import ConsentMode, RunSettings
from perdure.session.flows.run import FlowState, RoleConfiguration

_FOR_ROLES = "--role, --configure and --offer"
"""Options that apply only to workflows of roles."""


class StartOptions(msgspec.Struct, frozen=True):
    """The options of a new flow. `configuring` and `roles` apply only to flows of roles."""

    workspace: Annotated[
        Path,
        typer.Option(metavar="DIR", parser=stored_path, help="The folder in which the roles work."),
    ] = Path()
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=stored_path,
            help="The record folder; default: .perdure/records/ID in the workspace.",
        ),
    ] = None
    project: ProjectOption = None
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The flow's id; default: a new id.")
    ] = None
    consent: Annotated[
        ConsentMode,
        typer.Option(
            metavar="MODE",
            help="The permission of roles to act without asking: no-, partial-, full-access.",
        ),
    ] = "no-access"
    configuring: Annotated[
        str,
        typer.Option(
            "--configure",
            metavar="WHO",
            help=(
                "Who chooses the model and skills of roles: given (agents and "
                "files), ask (you), auto (a model, then you); or separately: "
                "model=auto,skills=ask."
            ),
        ),
    ] = "given"
    roles: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="WORDS",
            help='The model and skills of a role: "ROLE model=NAME skills=A,B".',
        ),
    ] = None


async def begin(
    file: Annotated[Path, typer.Argument(metavar="FILE", parser=named_path, help="The workflow.")],
    *,
    start: StartOptions,
    acting: ActingOptions,
    inputs: InputsOption = None,
    shown: Shown,
    common: CommonOptions,
) -> int:
    """Begin a flow and run it until it is done or waits for you.

    If this process ends, `perdure flow resume` continues the flow, here or on another machine.

    Examples:
        perdure flow run workflow.yaml --watch
        perdure flow run workflow.yaml -m anthropic:claude-opus-4-5 --consent partial-access
        perdure flow run workflow.yaml -m openai:gpt-5 --wait  # answer in another terminal
        perdure flow run workflow.yaml --scenario scenario.yaml  # offline, scripted
        perdure flow run session.workflow.yaml --input message="and for Sunday?"
        perdure flow run workflow.yaml --role "reviewer model=openai:gpt-5 skills=careful-reading"
        perdure flow run workflow.yaml --configure ask --offer openai:gpt-5 --offer scripted:echo
        perdure flow run workflow.yaml --configure model=ask,skills=auto

    Exit codes:
        0  the flow is completed
        1  the flow waits for a person: see `perdure flow show`
        2  an error in the workflow, or in a file that the workflow refers to
    """
    require_file(file, "the file of a workflow")
    settings = new_settings(acting.typed(), os.environ)
    acted, configuring = acting_of(settings, os.environ), configuring_in(start.configuring)
    document = await asyncio.to_thread(document_in, file)
    if document is not None:
        if is_choosing(configuring) or start.roles or acted.offered:
            raise UsageMistake(f"a workflow document names its own models: omit {_FOR_ROLES}")
        workspace, given = start.workspace, inputs or ()
        ready = await asyncio.to_thread(prepare, document, workspace, given, acted, settings)
    else:
        if inputs:
            raise UsageMistake("a workflow of roles takes no --input; a workflow document does")
        ready = await asyncio.to_thread(_prepare_roles, file, start, acted, settings)
    chosen = roles_in(start.roles or ())
    _require_providers(ready.acting, chosen)
    if document is None:
        _remark_script(ready.acting, start.record)
    async with (
        common.writable_store() as opened,
        flows_of(opened, ready.acting, is_run=True) as flows,
    ):
        flow = await flows.start(
            ready.workflow,
            workspace=start.workspace,
            project=start.project,
            id=start.id,
            record_folder=None if start.record is None else start.record.absolute(),
            consent=start.consent,
            inputs=ready.inputs,
            configuring=configuring,
            roles=chosen,
            settings=ready.settings,
        )
        remark(f"flow {safe(flow.id)}")
        return await run_and_show(opened, flow, shown, as_json=common.as_json)


ECHOES = (
    "scripted:echo hands nothing over, so a flow of roles stops at its first node: use a real "
    "model (-m PROVIDER:NAME), or --scenario FILE to run it offline"
)


def _remark_script(acting: RoleOptions, record: Path | None) -> None:
    """Print a remark if the scripted model stops the flow, or writes outside of `record`."""
    if acting.scenario is None:
        if acting.model == ECHO:
            remark(ECHOES)
    elif record is None and (folder := scenario_folder(acting.scenario)) is not None:
        told = f"the scenario writes into {safe(folder)}/, which is not the record folder"
        remark(f"{told}; to hand those files over, add --record {safe(folder)}")


def _require_providers(acting: RoleOptions, chosen: Mapping[str, RoleConfiguration]) -> None:
    """Reject models of unknown providers before anything is written. Raises: ConfigError."""
    if acting.scenario is None:
        of_roles = (each.model for each in chosen.values())
        require_providers((acting.model, *acting.offered, *of_roles))


def _prepare_roles(
    file: Path, start: StartOptions, acting: RoleOptions, settings: RunSettings
) -> Prepared:
    """Read a workflow of roles from `file`, and choose the model of its roles. Blocks."""
    graph, used = graph_in(file, start.workspace, start.project), acting.model
    if acting.scenario is None:
        used = model_of_roles(acting.model, acting.offered)
    acting = msgspec.structs.replace(acting, roles=roles_of(graph), model=used)
    return Prepared(file, acting, msgspec.structs.replace(settings, model=used))


async def resume(
    flow: FlowArgument,
    *,
    workspace: WorkspaceOption = None,
    acting: ActingOptions,
    shown: Shown,
    common: CommonOptions,
) -> int:
    """Continue a flow with the settings of `flow run`, until it is done or waits for you.

    Turns that another process left open are continued. Several processes can run one flow. Options
    of this command replace the stored options of the flow. --model replaces a stored scenario, and
    --scenario replaces a stored model. --allow-command and --allow-domain add commands and hosts
    that are not allowed yet. If every given command is already allowed, the roles keep only the
    given commands; the same applies to hosts.

    Examples:
        perdure flow resume 20260527T14 --watch
        perdure flow resume 20260527T14 --wait  # answer in another terminal
        perdure flow resume 20260527T14 -m openai:gpt-5  # from now on
        perdure flow resume 20260527T14 --workspace ~/moved/here

    Exit codes:
        0  the flow is completed
        1  the flow waits for a person
        4  the files of the flow are not on this machine: name their folder with --workspace
    """
    typed = acting.typed()
    async with common.existing_store() as opened:
        async with flows_of(opened) as flows:
            state = await flows.state(await opened.find(flow, only="flow"))
        async with resumed_flow(opened, state, typed, workspace) as found:
            return await run_and_show(opened, found, shown, as_json=common.as_json)


@asynccontextmanager
async def resumed_flow(
    store: Store,
    state: FlowState,
    typed: RunSettings,
    workspace: Path | None,
    *,
    is_for_one_call: bool = False,
) -> AsyncGenerator[Flow]:
    """Open the flow of `state` with its stored settings, changed by the settings `typed`.

    If `is_for_one_call` is True, the changed settings are not stored, and a model in `typed`
    applies only to this call, and only to roles that would have no model otherwise.
    """
    settings = resumed_settings(state.settings, typed, os.environ)
    acting = await asyncio.to_thread(acting_of, settings, os.environ)
    if not is_for_one_call:
        _require_providers(acting, {})
    last: tuple[str, ...] = ()
    if is_for_one_call and typed.model is not None:
        last = (typed.model,)
        of_roles = None if state.settings is None else state.settings.model
        typed = msgspec.structs.replace(typed, model=None)
        settings = msgspec.structs.replace(settings, model=of_roles)
    if state.document is not None:  # its own agents name their models
        acting = msgspec.structs.replace(acting, model=typed.model)
        agents = recast(state.document, acting, is_foreign=state.is_foreign)
        acting = msgspec.structs.replace(acting, agents=agents)
    else:
        if acting.scenario is None:
            before = await models_before(store, state)
            used = model_of_roles(settings.model, (*before, *settings.offered, *last))
            settings = msgspec.structs.replace(settings, model=used)
        acting = msgspec.structs.replace(acting, roles=roles_of(state.graph), model=settings.model)
        if state.settings is not None:
            await grant_added(store, state, acting, person(None))
    is_run = state.document is not None or not is_for_one_call
    async with flows_of(store, acting, is_run=is_run) as flows:
        kept = None if is_for_one_call else settings
        yield await flows.open(state.run.flow_id, workspace=workspace, settings=kept)


async def run_and_show(store: Store, flow: Flow, shown: Shown, *, as_json: bool) -> int:
    """Run `flow`, display its progress, and return the exit code."""
    running = asyncio.ensure_future(flow.run(until_completed=shown.is_waiting))
    is_drawn = shown.is_watching and not as_json and sys.stdout.isatty()
    beside = [asyncio.ensure_future(_wait_until_blocked(store, flow))]
    stays = is_drawn or shown.is_waiting
    ends = (running,) if stays else (running, *beside)
    if shown.is_waiting and not shown.is_watching:
        beside.append(asyncio.ensure_future(_announce_waits(store, flow, as_json=as_json)))
    try:
        if shown.is_watching:
            await watch_flow(
                store,
                flow,
                as_json=as_json,
                is_ended=lambda: any(each.done() for each in ends),
            )
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    except asyncio.CancelledError:
        remark(f"suspended; `perdure flow resume {flow.id}` continues it")
        raise
    finally:
        for each in (running, *beside):
            each.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await each
    return await _show_end(store, flow, is_drawn=is_drawn, as_json=as_json)


async def _show_end(store: Store, flow: Flow, *, is_drawn: bool, as_json: bool) -> int:
    """Show the state of `flow` after this process has stopped running it; return the exit code."""
    state = await flow.state()
    outputs = await outputs_of(store.backend, state)
    code = DONE if state.run.status == "completed" else FAILED
    if as_json:
        told = [wait_data(flow.id, each) for each in await flow.waiting()]
        lost = await lost_roles(store.backend, state)
        summary = {"flow": flow.id, "status": state.run.status, "waiting": told}
        faults = await graph_faults(state)
        summary |= {"lostRoles": lost} if lost else {}
        summary |= {"workflowFaults": faults} if faults else {}
        show_json({**summary, **output_data(state, outputs)})
        return code
    if not is_drawn:
        show_lines(await Followed(store, flow).draw(state, out_style()))
    show_lines(lost_lines(await lost_roles(store.backend, state), out_style()))
    show_lines(graph_fault_lines(await graph_faults(state), out_style()))
    show_lines(output_lines(outputs, out_style()))
    return code


async def _announce_waits(store: Store, flow: Flow, *, as_json: bool) -> None:
    """Print each new question or decision that waits for a person, only once."""
    known: set[str | None] = set()
    followed = Followed(store, flow)
    async with aclosing(changes_of(store)) as changes:
        async for _ in changes:
            for each in await flow.waiting():
                if each.question in known:
                    continue
                known.add(each.question)
                if as_json:
                    show_json({"waiting": wait_data(flow.id, each)}, is_flushed=True)
                    continue
                show("Waiting for you:", is_flushed=True)
                said = await followed.newest_words(await flow.state())
                for line in waits(flow.id, (each,), said):
                    show(line, is_flushed=True)


async def _wait_until_blocked(store: Store, flow: Flow) -> None:
    """Wait until every running role waits for consent; then the process can exit."""
    async with aclosing(changes_of(store)) as changes:
        async for _ in changes:
            if is_blocked(await flow.state(), await flow.waiting()):
                return
