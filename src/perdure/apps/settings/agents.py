"""The agents available in a folder, and how a project's agents are limited.

A project's agent comes with a repository that was cloned from elsewhere. If a project's agent is
chosen by its id, it gets only the user's permissions, starts no program and has none of the user's
MCP servers. If the user names the agent's file instead, these limits do not apply, because the user
trusts the content of the file.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from perdure.apps.settings.lookup import agent_folders
from perdure.client.agents.agent import Agent
from perdure.client.agents.delegation.restriction import within
from perdure.client.agents.files.lookup import AgentPlace, FoundAgentFile, agent_named, agents_found
from perdure.client.agents.files.reader import agent_in
from perdure.client.conversation.authority import authority_of
from perdure.client.store import Store
from perdure.errors import AgentNotFound, ConfigError, WrongArgument
from perdure.session.ids import StreamId
from perdure.tools.permissions import Permissions

_NOT_OF_PROJECTS = ("mcp_servers", "recurring")
"""Settings that start work without a person, so a project's agent does not get them."""

_WHERE_ALLOWED: Mapping[str, str] = {
    "scope": "chat.fs_scope",
    "allowed_commands": "chat.allowed_commands (or --allow-command)",
    "allowed_command_globs": "chat.allowed_commands (or --allow-command)",
    "allowed_domains": "chat.allowed_domains (or --allow-domain)",
    "approval": "chat.approval",
}
"""Maps a field of `Permissions` to the user's setting (and option, if any) that can allow it."""


class Chosen(msgspec.Struct, frozen=True):
    """A chosen agent. `notes` lists the rights that the agent does not get.

    `is_own` is True if the file belongs to the user or the user named it; otherwise, it belongs to
    the project.
    """

    agent: Agent
    file: Path
    notes: tuple[str, ...] = ()
    is_own: bool = True


def agents_here(start: Path, environment: Mapping[str, str]) -> tuple[FoundAgentFile, ...]:
    """Return the agent files of the project that contains `start`, and of the user."""
    return agents_found(cast("Mapping[AgentPlace, Path]", agent_folders(start, environment)))


def chosen_agent(named: str, found: Sequence[FoundAgentFile], allowed: Permissions) -> Chosen:
    """Return the agent `named`; `named` is a file name, or the id of an agent in `found`.

    `allowed` are the permissions that the user gives to a project's agent.
    Raises: AgentNotFound if no agent has this id; InvalidAgentFile if the file has errors.
    Raises: ConfigError if an id is not unique, or if a project's agent would start programs.
    """
    if is_file_name(named):
        if not Path(named).exists():
            raise AgentNotFound(named, tuple([filed.id for filed in found]))
        return Chosen(agent_in(Path(named)), Path(named))
    filed = agent_named(named, found)
    assert filed.agent is not None
    if filed.place == "user":
        return Chosen(filed.agent, filed.file)
    if _starts_programs(filed.agent):
        raise ConfigError(
            f"the project's agent {filed.id!r} brings MCP servers; look at {filed.file} and, if "
            f"you trust it, name the file: --agent {filed.file}"
        )
    return _restrict(filed.agent, filed.file, allowed)


def is_file_name(named: str) -> bool:
    """Whether `named` is a file name, not an id."""
    return named.endswith((".yaml", ".yml")) or os.sep in named


async def require_own_agent(store: Store, session: StreamId, named: str) -> None:
    """Raise an error if the agent in force in `session` has another id than `named`.

    Raises: WrongArgument.
    """
    known = await authority_of(store.backend, session)
    if known.bound is None or known.withheld is not None:
        return
    own = str((known.bound.agent or {}).get("id"))
    if own != named:
        raise WrongArgument(
            f"session {session} keeps its agent {own!r} for life and cannot continue with "
            f"{named!r}: leave out --agent, or start a new session"
        )


def invocable(
    found: Sequence[FoundAgentFile], allowed: Permissions, but: Agent
) -> tuple[Agent, ...]:
    """Return the agent `but`, then the other agents in `found` that may be invoked.

    The result omits invalid files, agents whose id is not unique, and a project's agents that start
    programs.
    """
    ids = [filed.id for filed in found]
    usable = [
        _restrict(filed.agent, filed.file, allowed).agent
        if filed.place == "project"
        else filed.agent
        for filed in found
        if filed.agent is not None
        and filed.id != but.id
        and ids.count(filed.id) == 1
        and not (filed.place == "project" and _starts_programs(filed.agent))
    ]
    return (but, *usable)


def _starts_programs(agent: Agent) -> bool:
    return any(not isinstance(server, str) for server in agent.mcp_servers)


def _restrict(agent: Agent, file: Path, allowed: Permissions) -> Chosen:
    granted = within(agent.permissions, allowed)
    lost = [
        field
        for field in Permissions.__struct_fields__
        if getattr(granted, field) != getattr(agent.permissions, field)
    ]
    lost += [name for name in _NOT_OF_PROJECTS if getattr(agent, name)]
    notes = (_report_lost(agent.id, lost, file),) if lost else ()
    narrowed = msgspec.structs.replace(agent, permissions=granted, mcp_servers=(), recurring=())
    return Chosen(narrowed, file, notes, is_own=False)


def _report_lost(agent: str, lost: Sequence[str], file: Path) -> str:
    ways = dict.fromkeys(_WHERE_ALLOWED[field] for field in lost if field in _WHERE_ALLOWED)
    settings = f"allow it in your settings: {', '.join(ways)}; or " if ways else ""
    trust = f"trust the whole file: perdure chat --agent {shlex.quote(str(file))}"
    return f"{agent} asks for more than you allow: {', '.join(lost)}; {settings}{trust}"
