"""Decide which open questions a flow's consent answers, and what "allow for the flow" grants.

A role's question lists the consent modes in which the call would run without a question. A process
that changes the consent reads the modes in the question, so it can answer the question without
knowing the tools of the role.
"""

from __future__ import annotations

from perdure.session.flows.kinds import ConsentChanged, GrantedTool
from perdure.session.flows.run import ConsentState
from perdure.session.notes import Question

COMMANDS = "run_command"
"""The name of the tool for which a person grants exact commands."""


def is_freed(question: Question, consent: ConsentState) -> bool:
    """Whether `consent` allows the call that `question` asks about."""
    if question.topic != "approval":
        return False
    if consent.mode in (question.free_in or ()):
        return True
    granted = granted_by(question)
    if granted is None or consent.mode != "partial-access":
        return False
    tool, name = granted
    return name in (consent.bash.allowed_commands if tool == "bash" else consent.mcp.allowed_tools)


def allowing(question: Question, consent: ConsentState, by: str) -> ConsentChanged:
    """Return the change of `consent` that allows the call of `question` in the whole flow."""
    tool, name = granted_by(question) or (None, None)
    mode = "partial-access" if consent.mode == "no-access" else None
    return ConsentChanged(by, mode, tool, name)


def granted_by(question: Question) -> tuple[GrantedTool, str] | None:
    """Return the exact command or MCP tool that an answer to `question` grants."""
    grant, tool = question.grant, question.tool
    if grant is None or tool is None:
        return None
    if grant == tool:
        return "mcp", tool
    command = grant.removeprefix(f"{COMMANDS} ")
    return ("bash", command) if tool == COMMANDS and command != grant else None
