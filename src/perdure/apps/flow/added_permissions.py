"""What ``flow resume`` allows besides what roles began with: a recorded grant to each of them."""

from __future__ import annotations

import msgspec

from perdure.apps.flow.roles import RoleOptions, role_agent
from perdure.apps.terminal.output import remark
from perdure.apps.terminal.text import safe
from perdure.client.agents.delegation.restriction import is_within
from perdure.client.agents.runtime import Runtime
from perdure.client.conversation.authority import authority_of
from perdure.client.store import Store
from perdure.engine.flows.lost_roles import lost_roles
from perdure.errors import TurnOpen
from perdure.session.flows.graph import base_role
from perdure.session.flows.run import FlowState
from perdure.tools.permissions import Permissions


async def grant_added(store: Store, state: FlowState, acting: RoleOptions, by: str) -> None:
    """Give the roles that have begun the commands and hosts of `acting` that they lack.

    A role in whose session a turn is open keeps what it has until the next resume.
    Raises: ConfigError.
    """
    async with Runtime(store) as runtime:
        lost = await lost_roles(store.backend, state)
        for role, session in state.sessions.items():
            if role in lost:
                continue
            known = await authority_of(store.backend, session)
            if known.bound is None or known.withheld is not None:
                continue  # today's agent is bound to it
            kept = msgspec.convert((known.bound.agent or {}).get("permissions", {}), Permissions)
            wanted = _with_added(kept, acting.permissions)
            if is_within(wanted, kept):
                continue
            agent = role_agent(msgspec.structs.replace(acting, permissions=wanted), base_role(role))
            try:
                await runtime.grant(session, agent, by=by)
            except TurnOpen:
                told = f"{safe(role)} has an open turn: what was added counts for it at the next"
                remark(f"{told} `perdure flow resume`")


def _with_added(kept: Permissions, today: Permissions) -> Permissions:
    """`kept` with the commands and hosts of `today`."""
    hosts = today.allowed_domains
    return msgspec.structs.replace(
        kept,
        allowed_commands=today.allowed_commands,
        allowed_command_globs=today.allowed_command_globs,
        allowed_domains=hosts,
        credentials={host: text for host, text in kept.credentials.items() if host in hosts},
    )
