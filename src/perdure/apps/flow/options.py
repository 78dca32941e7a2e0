"""Shared parts of flow commands: options, and opening a flow."""

from __future__ import annotations

import getpass
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.options import only_text, stored_path
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.flow.roles import RoleOptions, role_agent, role_agents, roles_of
from perdure.apps.flow.run_settings import permissions_in
from perdure.apps.settings.layers import Configuration
from perdure.apps.terminal.output import remark
from perdure.apps.terminal.text import safe
from perdure.apps.wiring import models
from perdure.client.agents.runtime import Runtime
from perdure.client.agents.runtime_services import Host
from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import Flows
from perdure.client.store import Store

FlowArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The flow: its id or the beginning of it.")
]
ByOption = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="NAME", callback=only_text, help="The person who decides; default: you."
    ),
]
WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        metavar="DIR",
        parser=stored_path,
        help="The folder of the workspace on this machine.",
    ),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", callback=only_text, help="The project; default: the name of the folder."
    ),
]
RoleCommandsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-command",
        metavar="LINE",
        help="Limit roles to this command, e.g. 'pytest tests/*'; default: as "
        "configured, or any command.",
    ),
]
RoleDomainsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-domain",
        metavar="HOST",
        help="A host that roles can contact; default: as configured.",
    ),
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch", help="Redraw the graph when it changes; print lines without a terminal."
    ),
]
WaitOption = Annotated[
    bool,
    typer.Option("--wait", help="Wait for answers and continue until the flow is completed."),
]


def person(by: str | None) -> str:
    """Return the name of the deciding person."""
    return by or getpass.getuser()


@asynccontextmanager
async def flows_of(
    store: Store, acting: RoleOptions | None = None, *, is_run: bool = False
) -> AsyncGenerator[Flows]:
    """Open the flows of `store`; `acting` gives their roles agents.

    With `is_run`, models without a price are reported if their roles have a budget.
    """
    if acting is None:
        async with Flows(Runtime(store)) as flows:
            yield flows
        return
    router = models(acting.scenario)
    try:
        prices = Configuration(Path(), os.environ).prices
        runtime = Runtime(store, role_agents(acting), models=router, prices=prices)
        if is_run:
            await _remark_unpriced(runtime.host)
        make = None if acting.agents else partial(role_agent, acting)
        async with (
            runtime,
            Flows(runtime, offered_models=acting.offered, default_agent=make) as flows,
        ):
            yield flows
    finally:
        await router.aclose()


async def _remark_unpriced(host: Host) -> None:
    """Report once each model without a price that a budget cannot count."""
    warnings = [await host.unpriced_warning(a, host.budget_of(a)) for a in host.agents.values()]
    for warning in dict.fromkeys(warnings):
        if warning is not None:
            remark(f"{safe(warning)}; its price goes into [models.prices] of your settings")


@asynccontextmanager
async def opened_flow(common: CommonOptions, id: str) -> AsyncGenerator[tuple[Store, Flow]]:
    """Open an existing flow for a decision, wherever its files are.

    Its roles have the agents of a command line without options.
    Raises: FlowNotFound, AmbiguousId.
    """
    async with common.existing_store() as opened, flows_of(opened) as flows:
        flow = flows.look(await opened.find(id, only="flow"))
        state = await flow.state()
        if state.settings is None or state.document is not None:
            yield opened, flow
            return
        permissions = permissions_in(state.settings, os.environ)
        acting = RoleOptions(roles_of(state.graph), permissions=permissions)
        async with flows_of(opened, acting) as equipped:
            yield opened, equipped.look(flow.id)
