"""The agent of a session, as its snapshot says it, in the fields of an agent file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from perdure.interop.workflow_export.slugs import readable_slug

NO_AGENT = "exported-agent"
"""What nodes refer to where the session had no agent; to be changed by who reviews the file."""

_PROVIDERS = {"google": "gemini"}
_SAME = ("name", "description", "temperature")
_RENAMED = {
    "instructions": "system_prompt",
    "max_output_tokens": "max_tokens",
    "thinking_level": "reasoning_effort",
}
_EFFORTS = {"minimal": "low", "xhigh": "high"}


def agent_slug(snapshot: Mapping[str, object] | None) -> str:
    """The id by which nodes refer to the session's agent."""
    named = (snapshot or {}).get("id") or (snapshot or {}).get("name")
    return readable_slug(named) if isinstance(named, str) and named else NO_AGENT


def agent_of(snapshot: Mapping[str, object]) -> dict[str, object]:
    """`snapshot` as an inline agent. What a workflow does not say of agents is left out."""
    provider, _, model = str(snapshot.get("model") or "").partition(":")
    agent: dict[str, object] = {
        "id": agent_slug(snapshot),
        "model": model or provider,
        "provider": _PROVIDERS.get(provider, provider),
        "system_prompt": "",
    }
    agent.update({key: snapshot[key] for key in _SAME if snapshot.get(key) is not None})
    for ours, theirs in _RENAMED.items():
        value = snapshot.get(ours)
        if value is not None:
            agent[theirs] = _EFFORTS.get(value, value) if isinstance(value, str) else value
    tools = _tools(snapshot.get("tools"))
    return agent | ({"tools": tools} if tools else {})


def _tools(described: object) -> list[str]:
    if not isinstance(described, list | tuple):
        return []
    names: list[str] = []
    for each in cast("list[object]", described):
        name = cast("dict[str, object]", each).get("name") if isinstance(each, dict) else each
        if isinstance(name, str):
            names.append(name)
    return names
