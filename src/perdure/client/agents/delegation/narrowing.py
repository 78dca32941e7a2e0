"""What an invoked agent may do: its own, as far as whoever invoked it may do that too.

Pure. Tools, permissions and money of a child are never more than its parent's, so that nothing is
gained by asking another agent.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.client.agents.agent import Agent
from perdure.engine.turns.config import Budget
from perdure.session.ledger import Spending
from perdure.tools.builtin.delegating import INVOKE_AGENT
from perdure.tools.commands import is_allowed, rule_words
from perdure.tools.permissions import SCOPES, ApprovalMode, Permissions
from perdure.tools.registry import ToolRegistry

_STRICTEST: tuple[ApprovalMode, ...] = ("plan", "ask", "accept-edits", "auto")
"""From the mode that lets least happen without a person."""


def within(child: Permissions, parent: Permissions) -> Permissions:
    """`child`, as far as `parent` has the same."""
    globs = parent.allowed_command_globs
    commands = tuple(
        line
        for line in child.allowed_commands
        if is_allowed(rule_words(line, is_glob=False), parent.allowed_commands, globs)
    )
    domains = tuple(host for host in child.allowed_domains if host in parent.allowed_domains)
    has_search = (child.search_endpoint, child.search_credential) == (
        parent.search_endpoint,
        parent.search_credential,
    )
    return Permissions(
        scope=SCOPES[min(SCOPES.index(child.scope), SCOPES.index(parent.scope))],
        roots=tuple(root for root in child.roots if root in parent.roots or parent.scope == "full"),
        allowed_commands=commands,
        allowed_command_globs=tuple(g for g in child.allowed_command_globs if g in globs),
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
        approval=_STRICTEST[
            min(_STRICTEST.index(child.approval), _STRICTEST.index(parent.approval))
        ],
    )


def _same(child: Mapping[str, str], parent: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in child.items() if parent.get(name) == text}


def carved(own: Budget, parent: Budget, limit: int, spent: Spending) -> Budget | None:
    """What an invoked agent may spend: what its parent has left, or its own limit where lower.

    `limit` is the parent's limit as it stands, raised by a person or not (0: none). What the child
    leaves is the parent's again, since only what was spent is counted there.
    Shape: None where nothing is left.
    Units: micro-cents.
    """
    if not parent.max_cost_microcents:
        return own
    left = limit - spent.cost_microcents
    if parent.on_exceed == "warn":
        left = max(left, 1)  # it warns from the first call on, as its parent would
    if left <= 0:
        return None
    if own.max_cost_microcents and own.max_cost_microcents <= left:
        return own
    return Budget(left, parent.on_exceed)


def narrowed_child(child: Agent, parent: Agent, tools: ToolRegistry, budget: Budget) -> Agent:
    """`child` with those of `tools`, its parent's, that it has itself, under `budget`."""
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
