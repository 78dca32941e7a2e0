"""The workspace of a session as the context of a workflow: what ``{{ctx.name}}`` stands for."""

from __future__ import annotations

from typing import cast

import msgspec

from perdure.interop.workflow_export.agents import ExportedAgent
from perdure.session.notes import AgentBound, SessionStarted
from perdure.workflow.document import NAME, ContextEntry
from perdure.workflow.templates import context_names, neutralise, without_context


def context_of(bound: SessionStarted | AgentBound) -> tuple[ContextEntry, ...]:
    """Return the variables of the session, and what else its instructions name, in name order.

    Values are no templates: an opener in one is spaced out. The working directory is left out,
    since every run has its own.
    """
    workspace = bound.workspace or {}
    variables = _texts(workspace.get("variables"))
    used = context_names(_text((bound.agent or {}).get("instructions")))
    known = {name: _text(workspace.get(name)) for name in ("active_file", "git_ref")}
    known["selection"] = _selection(workspace.get("selection"))
    named = {name: known[name] for name in used if known.get(name)} | variables
    return tuple(
        ContextEntry(name, neutralise(value))
        for name, value in sorted(named.items())
        if NAME.fullmatch(name)
    )


def with_resolved_prompt(agent: ExportedAgent, bound: SessionStarted | AgentBound) -> ExportedAgent:
    """Return `agent` with the instructions that its model was given, for a format without context.

    A value that reads as ``{{ctx.name}}`` is spaced out, so that a run does not fill it again.
    """
    prompt = bound.system_prompt
    if prompt is None:
        return agent
    return msgspec.structs.replace(
        agent, definition={**agent.definition, "system_prompt": without_context(prompt)}
    )


def _selection(selected: object) -> str:
    fields = cast("dict[str, object]", selected) if isinstance(selected, dict) else {}
    file, first, last = (fields.get(name) for name in ("file", "start_line", "end_line"))
    return f"{file}:{first}-{last}" if isinstance(file, str) else ""


def _texts(value: object) -> dict[str, str]:
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return {name: text for name, text in fields.items() if isinstance(text, str)}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
