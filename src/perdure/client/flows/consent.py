"""The consent of a flow: its three modes as rules that judge tool calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from perdure.client.inbox.consent import COMMANDS
from perdure.session.flows.kinds import ConsentMode
from perdure.session.flows.run import ConsentState
from perdure.session.messages import ToolCallPart
from perdure.session.notes import ALLOW_FLOW
from perdure.tools.approval import Bound, Judge, Ruling
from perdure.tools.builtin.catalogue import BUILTIN
from perdure.tools.commands import NeedsShell, canonical, words_of
from perdure.tools.permission_check import RuleSet, bound_ruling, judge_call
from perdure.tools.permissions import Permissions
from perdure.tools.registry import ToolRegistry
from perdure.tools.spec import ToolSpec

RULES: Mapping[ConsentMode, RuleSet] = {
    "no-access": RuleSet(
        {"fs_write": "ask", "process": "ask", "egress": "ask", "os": "ask"}, honours_grants=False
    ),
    "partial-access": RuleSet(
        {"fs_write": "run", "process": "ask", "egress": "ask", "os": "ask"}, asks_hidden=True
    ),
    "full-access": RuleSet({"fs_write": "run", "process": "run", "egress": "run", "os": "run"}),
}

_LOOKING = re.compile(r"pwd|ls(?: (?:-[A-Za-z0-9]+|[A-Za-z0-9_.@%+,=][A-Za-z0-9_./@%+,=-]*))*")
"""Commands that only print the working directory, or list files below it."""


def consent_judge(
    tools: ToolRegistry, permissions: Permissions, consent: Callable[[], ConsentState]
) -> Judge:
    """Return the function that judges a role's tool calls.

    `consent` returns the current consent.
    """

    def judge(call: ToolCallPart, in_turn: frozenset[str], bound: Bound | None) -> Ruling:
        if call.name not in tools.names:
            return Ruling("run")  # calls of unknown tools are answered elsewhere
        now, spec = consent(), tools.get(call.name)
        rules = RULES[now.mode]
        ruling = bound_ruling(spec, call, permissions, in_turn, rules, bound=bound)
        if ruling.decision not in ("ask", "examine") or spec.action is None:
            return ruling
        if _is_granted(spec, call, permissions, now) or _is_harmless(call):
            return Ruling("run")
        if ruling.decision == "examine":
            return ruling
        return _asking(ruling, spec, call, permissions)

    return judge


def _asking(ruling: Ruling, spec: ToolSpec, call: ToolCallPart, permissions: Permissions) -> Ruling:
    """Return `ruling` with the grant for the flow, and the consent modes that allow the call."""
    is_hidden = ruling.bound is not None and ruling.bound.is_hidden
    bound = Bound(is_hidden=is_hidden)
    would = {
        mode: judge_call(spec, call.args, permissions, frozenset(), rules, bound=bound)
        for mode, rules in RULES.items()
    }
    free_in = tuple(mode for mode, other in would.items() if other.decision == "run")
    grant = None
    if _is_of_server(spec):
        grant = spec.name
    elif spec.name == COMMANDS:
        grant = would["partial-access"].grant
    ruling = msgspec.structs.replace(ruling, grant=grant or ruling.grant, free_in=free_in)
    if grant is None and "partial-access" not in free_in:
        return ruling
    if _is_of_server(spec):
        what = f"{spec.name} may be called, with any arguments,"
    elif grant:
        what = "this very command may be run, whatever the files that it names hold then,"
    else:
        what = "files may be written"
    told = f"{ruling.text} ({ALLOW_FLOW}: from now on {what} in this flow without asking)"
    return msgspec.structs.replace(ruling, text=told, choices=("allow", ALLOW_FLOW, "deny"))


def _is_of_server(spec: ToolSpec) -> bool:
    """Whether the tool belongs to an MCP server, so that a flow's consent can grant it by name."""
    return spec.is_outside and spec.name not in BUILTIN


def _is_granted(
    spec: ToolSpec, call: ToolCallPart, permissions: Permissions, now: ConsentState
) -> bool:
    """Whether the flow's consent grants the MCP tool or the exact command of `call`."""
    if now.mode != "partial-access":
        return False
    if _is_of_server(spec) and spec.name in now.mcp.allowed_tools:
        return True
    if spec.name != COMMANDS:
        return False
    rules = RULES[now.mode]
    return judge_call(spec, call.args, permissions, grants_of(now), rules).decision == "run"


def grants_of(consent: ConsentState) -> frozenset[str]:
    """Return the grants of the flow in the notation that the rules for tool calls use."""
    return frozenset(f"{COMMANDS} {_canonical(c)}" for c in consent.bash.allowed_commands)


def _canonical(command: str) -> str:
    """Return `command` in the notation that judges compare; unchanged if it needs a shell."""
    try:
        return canonical(words_of(command))
    except NeedsShell:
        return command


def _is_harmless(call: ToolCallPart) -> bool:
    """Whether `call` only searches or lists names, so that no mode asks for approval."""
    if call.name != COMMANDS:
        return call.name == "web_search"
    if call.args.get("args"):
        return False
    command = call.args.get("command")
    return (
        isinstance(command, str) and _LOOKING.fullmatch(command) is not None and ".." not in command
    )
