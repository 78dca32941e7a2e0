"""Check grants for a whole flow: they take effect, and only an existing one is revoked."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.client.agents.agent import tool_names
from perdure.client.conversation.authority import authority_of
from perdure.client.flows.role_setup import Equipment, agent_for
from perdure.client.inbox.consent import COMMANDS
from perdure.errors import ConfigError
from perdure.session.flows.kinds import ConsentMode, GrantedTool
from perdure.session.flows.run import FlowState
from perdure.stores.protocol import SessionStore
from perdure.tools.commands import NeedsShell, canonical, is_allowed, words_of
from perdure.tools.permissions import Permissions


async def check_grant(
    store: SessionStore, equipment: Equipment, state: FlowState, tool: GrantedTool, name: str
) -> None:
    """Refuse to grant `name`, an exact command or a tool, that no role of the flow can use.

    A role whose agent is not known here may be able to.
    Raises: ConfigError.
    """
    argv = words_of(name) if tool == "bash" else ()
    for role in state.graph.roles:
        snapshot = await _snapshot(store, equipment, state, role)
        if snapshot is None or _is_able(snapshot, argv, name):
            return
    if tool == "mcp":
        raise ConfigError(f"no role of this flow has a tool {name!r}")
    raise ConfigError(
        f"no role of this flow may run {name!r}: their agents have no {COMMANDS}, or allow other "
        "commands only"
    )


def granted_name(tool: GrantedTool, name: str) -> str:
    """`name` as a grant stores it: a command canonically quoted, a tool as it is.

    Raises: ConfigError for an empty name, and for a command that only a shell could run.
    """
    if not name.strip():
        raise ConfigError(f"the {'command' if tool == 'bash' else 'tool'} to allow is empty")
    if tool == "mcp":
        return name
    try:
        return canonical(words_of(name))
    except NeedsShell as error:
        told = f"{name!r} needs a shell, and commands run without one: {error}"
        raise ConfigError(told) from None


def check_in_force(state: FlowState, mode: ConsentMode | None) -> None:
    """Refuse a grant that would have no effect, as the flow's consent is, or becomes, `mode`.

    Raises: ConfigError.
    """
    if (mode or state.consent.mode) == "no-access":
        raise ConfigError(
            "the consent is no-access, in which allowed commands and tools still ask; change it "
            "to partial-access in the same step"
        )


def revoked_name(state: FlowState, tool: GrantedTool, name: str) -> str:
    """The grant that `name` revokes, as it is stored.

    Raises: ConfigError when it was not granted.
    """
    found: set[str] = set()
    for consent in (state.run.consent_state, state.consent):
        found.update(consent.bash.allowed_commands if tool == "bash" else consent.mcp.allowed_tools)
    if name not in found:
        name = granted_name(tool, name)
    if name not in found:
        known = ", ".join(repr(each) for each in sorted(found)) or "nothing"
        raise ConfigError(f"{name!r} is not allowed, so it cannot be revoked; allowed: {known}")
    return name


async def _snapshot(
    store: SessionStore, equipment: Equipment, state: FlowState, role: str
) -> Mapping[str, object] | None:
    """The agent of `role` as a snapshot; None where it is not known, or its tools may change."""
    agent = agent_for(equipment.agents, role)
    if agent is not None and agent.mcp_servers:
        return None
    session = state.sessions.get(role)
    if session is not None:
        known = await authority_of(store, session)
        if known.bound is not None and known.withheld is None:
            return known.bound.agent
    return None if agent is None else agent.snapshot()


def _is_able(snapshot: Mapping[str, object], argv: tuple[str, ...], name: str) -> bool:
    names = tool_names(snapshot)
    if not argv:
        return name in names
    allowed = msgspec.convert(snapshot.get("permissions", {}), Permissions)
    globs = allowed.allowed_command_globs
    return COMMANDS in names and is_allowed(argv, allowed.allowed_commands, globs)
