"""Apply changes to a flow's consent, and ignore the consent in entries that are not trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from perdure.session.clock import timestamp
from perdure.session.flows.kinds import ConsentChanged
from perdure.session.flows.run import CommandGrant, ConsentState, FlowState, ToolGrant

T = TypeVar("T")

replace = msgspec.structs.replace


def consent_after(consent: ConsentState, body: ConsentChanged, at: int) -> ConsentState:
    """Return `consent` after the change in `body`. Units: `at` is Unix milliseconds."""
    if body.mode is not None:
        consent = replace(consent, mode=body.mode)
    command = body.command
    if body.tool == "bash" and command is not None:
        grant = None if body.is_revoked else CommandGrant(command, timestamp(at))
        commands = _with(consent.bash.allowed_commands, command, grant)
        consent = replace(consent, bash=replace(consent.bash, allowed_commands=commands))
    if body.tool == "mcp" and command is not None:
        granted = None if body.is_revoked else ToolGrant(command, timestamp(at))
        tools = _with(consent.mcp.allowed_tools, command, granted)
        consent = replace(consent, mcp=replace(consent.mcp, allowed_tools=tools))
    return consent


def withheld(state: FlowState) -> FlowState:
    """Return `state` without consent and folder in force.

    This function is used after an entry that the user neither wrote nor trusts.
    """
    return replace(state, consent_in_force=ConsentState(), is_place_in_force=False)


def _with(items: Mapping[str, T], key: str, value: T | None) -> dict[str, T]:
    kept = {name: each for name, each in items.items() if name != key}
    return kept if value is None else kept | {key: value}
