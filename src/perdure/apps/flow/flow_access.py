"""Open the flows of a store for a command, with agents for the roles."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

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


@asynccontextmanager
async def flows_of(
    store: Store, acting: RoleOptions | None = None, *, is_run: bool = False
) -> AsyncGenerator[Flows]:
    """Open the flows of `store`; `acting` provides the agents for the roles.

    With `is_run`, models without a known price are reported if their roles have a budget.
    """
    if acting is None:
        async with Flows(Runtime(store, runner="embedded")) as flows:
            yield flows
        return
    async with aclosing(models(acting.scenario)) as router:
        prices = Configuration(Path(), os.environ).prices
        agents = role_agents(acting)  # workers do not have them
        runtime = Runtime(store, agents, models=router, prices=prices, runner="embedded")
        if is_run:
            await _remark_unpriced(runtime.host)
        make = None if acting.agents else partial(role_agent, acting)
        async with (
            runtime,
            Flows(runtime, offered_models=acting.offered, default_agent=make) as flows,
        ):
            yield flows


async def _remark_unpriced(host: Host) -> None:
    """Report, once, each model without a known price, because a budget cannot count its cost."""
    warnings = [await host.unpriced_warning(a, host.budget_of(a)) for a in host.agents.values()]
    for warning in dict.fromkeys(warnings):
        if warning is not None:
            remark(f"{safe(warning)}; its price goes into [models.prices] of your settings")


@asynccontextmanager
async def opened_flow(common: CommonOptions, id: str) -> AsyncGenerator[tuple[Store, Flow]]:
    """Open an existing flow for a person's decision; the flow's files need not be on this machine.

    The agents of the roles get their permissions from the stored settings of the flow.
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
