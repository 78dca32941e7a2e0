"""What roles may do without asking: the three modes of a flow, as rule sets of the one judge."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from perdure.engine.turns.config import Judge
from perdure.session.flows.kinds import ConsentMode
from perdure.session.flows.run import ConsentState
from perdure.session.messages import ToolCallPart
from perdure.tools.commands import NeedsShell, canonical, words_of
from perdure.tools.judging import RuleSet, Ruling, judged
from perdure.tools.permissions import Permissions
from perdure.tools.registry import ToolRegistry

RULES: Mapping[ConsentMode, RuleSet] = {
    "no-access": RuleSet(
        {"fs_write": "ask", "process": "ask", "egress": "ask", "os": "ask"}, honours_grants=False
    ),
    "partial-access": RuleSet({"fs_write": "run", "process": "ask", "egress": "ask", "os": "ask"}),
    "full-access": RuleSet({"fs_write": "run", "process": "run", "egress": "run", "os": "run"}),
}

COMMANDS = "run_command"
"""The tool whose exact commands a person grants."""

_NEVER_ASKED = frozenset({"web_search"})

_LOOKING = re.compile(r"pwd|ls(?: (?:-[A-Za-z0-9]+|[A-Za-z0-9_.@%+,=-][A-Za-z0-9_./@%+,=-]*))*")
"""Commands that only look, and only below the working directory."""


def consent_judge(
    tools: ToolRegistry, permissions: Permissions, consent: Callable[[], ConsentState]
) -> Judge:
    """The judge of a role's tool calls. `consent` gives what counts when a call is judged."""

    def judge(call: ToolCallPart, in_turn: frozenset[str]) -> Ruling:
        if call.name not in tools.names:
            return Ruling("run")  # calls of unknown tools are answered elsewhere
        now = consent()
        granted = in_turn | grants_of(now)
        ruling = judged(tools.get(call.name), call.args, permissions, granted, RULES[now.mode])
        is_granted = now.mode == "partial-access" and call.name in now.mcp.allowed_tools
        is_free = is_granted or _is_harmless(call)
        return Ruling("run") if ruling.decision == "ask" and is_free else ruling

    return judge


def grants_of(consent: ConsentState) -> frozenset[str]:
    """What was granted for the flow, as the judge names it."""
    return frozenset(f"{COMMANDS} {_canonical(c)}" for c in consent.bash.allowed_commands)


def _canonical(command: str) -> str:
    """`command` as the judge writes it; as it is when only a shell could run it."""
    try:
        return canonical(words_of(command))
    except NeedsShell:
        return command


def _is_harmless(call: ToolCallPart) -> bool:
    """Whether nobody is asked about `call` in any mode: searching, and looking at names."""
    if call.name != COMMANDS:
        return call.name in _NEVER_ASKED
    if call.args.get("args"):
        return False
    command = call.args.get("command")
    return (
        isinstance(command, str) and _LOOKING.fullmatch(command) is not None and ".." not in command
    )
