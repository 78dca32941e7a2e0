"""Restricts an invoked agent by its parent, and a session's agent by its current version.

Pure. A child never has more tools, permissions or budget than its parent, so no agent gains
permissions by invoking another one. A session never gets more rights than the agent with which it
is resumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from perdure.client.agents.agent import Agent, agent_of
from perdure.client.conversation.agent_binding import tool_hashes, tool_names
from perdure.engine.turns.config import Budget
from perdure.errors import ConfigError
from perdure.secrets.pasted_keys import PastePolicy
from perdure.session.ledger import Spending
from perdure.tools.builtin.delegation import INVOKE_AGENT
from perdure.tools.commands import ANY_COMMAND, is_allowed, rule_words
from perdure.tools.permissions import SCOPES, ApprovalMode, Permissions
from perdure.tools.registry import ToolRegistry

_STRICTEST: tuple[ApprovalMode, ...] = ("plan", "ask", "accept-edits", "auto")
"""The approval modes in order; the first allows the fewest actions without a person."""

_PASTED: tuple[PastePolicy, ...] = ("warn", "redact", "refuse")
"""The policies for pasted credentials in order; the first one lets the most messages pass."""


def within(child: Permissions, parent: Permissions) -> Permissions:
    """Return the intersection of the permissions of `child` and `parent`."""
    commands = tuple(dict.fromkeys((*_allowed(child, parent), *_allowed(parent, child))))
    domains = tuple(host for host in child.allowed_domains if host in parent.allowed_domains)
    has_search = (child.search_endpoint, child.search_credential) == (
        parent.search_endpoint,
        parent.search_credential,
    )
    return Permissions(
        scope=SCOPES[min(map(SCOPES.index, (child.scope, parent.scope)))],
        roots=_roots(child, parent),
        allowed_commands=commands,
        allowed_command_globs=_globs(child.allowed_command_globs, parent.allowed_command_globs),
        command_env=_same(child.command_env, parent.command_env),
        command_timeout_s=min(child.command_timeout_s, parent.command_timeout_s),
        allowed_domains=domains,
        credentials={
            host: text
            for host, text in _same(child.credentials, parent.credentials).items()
            if host in domains
        },
        search_endpoint=child.search_endpoint if has_search else None,
        search_credential=child.search_credential if has_search else None,
        is_search_local=child.is_search_local and parent.is_search_local and has_search,
        approval=_STRICTEST[min(map(_STRICTEST.index, (child.approval, parent.approval)))],
    )


def is_within(child: Permissions, parent: Permissions) -> bool:
    """Whether `parent` has all permissions that `child` has."""
    both = within(child, parent)
    lists = ("roots", "allowed_commands", "allowed_command_globs", "allowed_domains")
    return all(
        set(getattr(child, field)) <= set(getattr(both, field))
        if field in lists
        else getattr(child, field) == getattr(both, field)
        for field in Permissions.__struct_fields__
    )


def _allowed(these: Permissions, others: Permissions) -> Iterator[str]:
    """Return those commands in `these` that `others` also allow."""
    for line in these.allowed_commands:
        argv = rule_words(line, is_glob=False)
        if is_allowed(argv, others.allowed_commands, others.allowed_command_globs):
            yield line


def _globs(child: tuple[str, ...], parent: tuple[str, ...]) -> tuple[str, ...]:
    """Return the globs in both `child` and `parent`; `ANY_COMMAND` includes every glob."""
    if ANY_COMMAND in parent:
        return child
    return parent if ANY_COMMAND in child else tuple(glob for glob in child if glob in parent)


def _roots(child: Permissions, parent: Permissions) -> tuple[str, ...]:
    """Return the folders that both `child` and `parent` can access; ``full`` means every folder."""
    if parent.scope == "full":
        return child.roots
    if child.scope == "full":
        return parent.roots
    return tuple(root for root in child.roots if root in parent.roots)


def resumed_agent(kept: Agent, today: Agent) -> Agent:
    """Restrict a session's agent `kept` to the agent `today` that resumes the session.

    The result has the tools of `today`, so the session runs only the current code of the tools.
    """
    names = set(kept.registry.names)
    return msgspec.structs.replace(
        kept.with_tools(tuple(spec for spec in today.registry.tools if spec.name in names)),
        permissions=within(kept.permissions, today.permissions),
        max_agents=min(kept.max_agents, today.max_agents),
        max_depth=min(kept.max_depth, today.max_depth),
        on_pasted=max(kept.on_pasted, today.on_pasted, key=_PASTED.index),
        hooks=today.hooks,
        output=today.output,
    )


def missing_version(snapshot: Mapping[str, object], today: Agent, tools: ToolRegistry) -> str:
    """Return a text on how a session with `snapshot` differs from its current agent `today`.

    The text names the tools that the session cannot call any more. If both agents have the same id,
    the text also states whether the instructions or the model have changed. `tools` contains the
    tools of `today`.
    Shape: the result is "" if the only difference is tools that were added later.
    """
    hashes = tool_hashes(snapshot)
    lost = [
        name
        for name, kept in hashes.items()
        if name not in tools.names or tools.schema_hash(name) != kept
    ]
    parts: list[str] = []
    if lost:
        named = ", ".join(lost)
        parts.append(f"cannot call {named} (missing now, or with other parameters)")
    if snapshot.get("id") == today.id:
        names = ("instructions", "model")
        parts += [f"keeps its {n}" for n in names if snapshot.get(n) != getattr(today, n)]
    return "; ".join(parts)


def local_agent(today: Agent, snapshot: Mapping[str, object] | None) -> Agent:
    """Restrict the agent `today` by the stored agent in `snapshot`, which is not in force.

    If `snapshot` is invalid, the result is `today`.
    """
    if snapshot is None:
        return today
    try:
        theirs = agent_of(snapshot, ToolRegistry(()))
    except ConfigError:
        return today
    names = set(tool_names(snapshot))
    return msgspec.structs.replace(
        today.with_tools(tuple(spec for spec in today.registry.tools if spec.name in names)),
        permissions=within(theirs.permissions, today.permissions),
        max_agents=min(theirs.max_agents, today.max_agents),
        max_depth=min(theirs.max_depth, today.max_depth),
    )


def _same(child: Mapping[str, str], parent: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in child.items() if parent.get(name) == text}


def child_budget(own: Budget, parent: Budget, limit: int, spent: Spending) -> Budget | None:
    """Return an invoked agent's budget: the rest of the parent's budget, or `own` if it is lower.

    `limit` is the current limit of the parent (0: no limit). The part of the budget that the child
    does not spend stays with the parent. If nothing of the parent's budget is left, the result is
    None. If the parent's budget only warns, the result is never None.
    Units: micro-cents.
    """
    if not parent.max_cost_microcents:
        return own
    left = limit - spent.cost_microcents
    if parent.on_exceed == "warn":
        left = max(left, 1)  # like its parent, it warns from the first call on
    if left <= 0:
        return None
    if own.max_cost_microcents and own.max_cost_microcents <= left:
        return own
    return Budget(left, parent.on_exceed)


def narrowed_child(child: Agent, parent: Agent, tools: ToolRegistry, budget: Budget) -> Agent:
    """Return `child` under `budget`, with only the tools that are also in its parent's `tools`."""
    names = child.registry.names
    servers = tuple(_prefix(server) for server in child.mcp_servers)
    kept = [
        spec
        for spec in tools.tools
        if spec.name in names or (servers and spec.name.startswith(servers))
    ]
    depth = min(child.max_depth, parent.max_depth - 1)
    if depth <= 0:
        kept = [spec for spec in kept if spec.name != INVOKE_AGENT]
    return msgspec.structs.replace(
        child.with_tools(kept),
        mcp_servers=(),
        permissions=within(child.permissions, parent.permissions),
        max_cost_microcents=budget.max_cost_microcents,
        on_exceed=budget.on_exceed,
        max_depth=max(depth, 0),
    )


def _prefix(server: object) -> str:
    return f"mcp_{server if isinstance(server, str) else getattr(server, 'name', '')}_"
