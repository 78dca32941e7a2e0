"""Convert the snapshot of a session's agent to the keys of an agent file.

A snapshot can come from any file, so every value is checked before it is written. Settings for
which a dialect has no key are reported, never dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import cast

import msgspec

from perdure.interop.reports import Dialect
from perdure.interop.workflow_export.slugs import readable_slug

NO_AGENT = "exported-agent"
"""The agent id of nodes whose session had no agent; the author replaces it."""

_PROVIDERS = {"google": "gemini"}
_SAME = ("name", "description", "temperature")
_RENAMED = {
    "instructions": "system_prompt",
    "max_output_tokens": "max_tokens",
    "thinking_level": "reasoning_effort",
}
_EFFORTS = {"minimal": "low", "xhigh": "high"}
"""Maps reasoning efforts that relavium lacks to the nearest effort that it supports."""

_OWN = (
    *("limits", "compaction", "on_interrupt", "queue_mode", "restart_on_cut"),
    *("history", "on_pasted", "question_expires_s"),
    *("first_byte_timeout_s", "stream_idle_timeout_s"),
)
"""Settings that have the same key in workflow documents of perdure's own dialect."""

_RUNNERS = ("permissions", "mcp_servers")
"""Settings that are never in a document, because the person who runs the document decides them."""

DEFAULTS: Mapping[str, object] = {
    "limits": {"max_turns": 50, "max_tool_rounds": 16, "max_correctable_rounds": 3},
    "compaction": {
        "is_enabled": True,
        "strategy": "tail",
        "keep_recent_tokens": 20_000,
        "summary_tokens": 4_096,
        "trigger": 0.8,
        "reserve_tokens": None,
        "max_messages": None,
    },
    "on_interrupt": "retry",
    "queue_mode": "one-at-a-time",
    "restart_on_cut": False,
    "history": "full",
    "on_pasted": "warn",
    "max_agents": 16,
    "max_depth": 3,
    "max_cost_microcents": 0,
    "on_exceed": "pause_for_approval",
    "permissions": {},
    "mcp_servers": [],
    "fallbacks": [],
    "tools": [],
}
"""Default values of settings. A document without the key means the same as the default."""

_BUDGET = ("max_cost_microcents", "on_exceed")
_DELEGATION = ("max_agents", "max_depth")
_RETRY: Mapping[str, tuple[str, float]] = {
    "first_wait_s": ("backoff_ms", 1000),
    "cap_s": ("cap_ms", 1000),
    "factor": ("factor", 1),
    "jitter": ("jitter", 1),
}
_RETRY_OWN: Mapping[str, float] = {"cap_ms": 60_000, "factor": 2, "jitter": 0.2}
"""Keys of `retry` that relavium does not support, with their default values."""


class ExportedAgent(msgspec.Struct, frozen=True):
    """An agent as a workflow document contains it.

    `lost` lists the settings that the document cannot contain.
    """

    definition: Mapping[str, object]
    lost: tuple[str, ...] = ()


def agent_slug(snapshot: Mapping[str, object] | None) -> str:
    """Return the id by which nodes of the workflow refer to the agent in `snapshot`."""
    named = (snapshot or {}).get("id") or (snapshot or {}).get("name")
    return readable_slug(named) if isinstance(named, str) and named else NO_AGENT


def agent_of(snapshot: Mapping[str, object], dialect: Dialect = "perdure") -> ExportedAgent:
    """Return the agent of `snapshot` as a document of `dialect` defines it."""
    provider, model = _model(snapshot.get("model"))
    agent: dict[str, object] = {
        "id": agent_slug(snapshot),
        "model": model,
        "provider": provider,
        "system_prompt": "",
    }
    agent.update({key: snapshot[key] for key in _SAME if _is_said(snapshot.get(key))})
    for ours, theirs in _RENAMED.items():
        if _is_plain(snapshot.get(ours)):
            agent[theirs] = snapshot[ours]
    agent |= _setting_fields(snapshot, "tools", _tools)
    agent |= _setting_fields(snapshot, "fallbacks", _fallbacks, "fallback_chain")
    agent |= _setting_fields(snapshot, "retry", _retry)
    agent |= _group(snapshot, _BUDGET, "budget")
    agent |= _group(snapshot, _DELEGATION, "delegation")
    for key in _OWN:
        agent |= _setting_fields(snapshot, key, _plain)
    lost = list(_unwritten(snapshot, agent))
    if snapshot.get("id") not in (None, agent["id"]):
        lost.append(f"id {snapshot['id']!r} (written as {agent['id']!r})")
    if dialect == "relavium":
        agent, more = _as_relavium(agent)
        lost += more
    return ExportedAgent(agent, tuple(dict.fromkeys(lost)))


def _as_relavium(agent: dict[str, object]) -> tuple[dict[str, object], list[str]]:
    """Return `agent` with relavium's keys, and the names of the settings that relavium lacks."""
    lost = [key for key in (*_OWN, "budget", "delegation") if key in agent]
    kept = {key: value for key, value in agent.items() if key not in lost}
    effort = kept.get("reasoning_effort")
    if isinstance(effort, str) and effort in _EFFORTS:
        kept["reasoning_effort"] = _EFFORTS[effort]
        lost.append(f"reasoning_effort {effort!r} (written as {_EFFORTS[effort]!r})")
    if isinstance(retry := kept.get("retry"), dict):
        policy = cast("dict[str, object]", retry)
        lost += [f"retry.{key}" for key, usual in _RETRY_OWN.items() if policy[key] != usual]
        kept["retry"] = {key: policy[key] for key in policy if key not in _RETRY_OWN}
    return kept, lost


def _unwritten(snapshot: Mapping[str, object], agent: Mapping[str, object]) -> Iterator[str]:
    """Yield the settings of `snapshot` that its converted form `agent` does not contain."""
    keys = {"id": "id", "model": "model", **_RENAMED, "fallbacks": "fallback_chain"}
    keys |= dict.fromkeys(_BUDGET, "budget") | dict.fromkeys(_DELEGATION, "delegation")
    for name, value in snapshot.items():
        is_said = value not in (None, "") and value != DEFAULTS.get(name)
        if is_said and (name in _RUNNERS or keys.get(name, name) not in agent):
            yield keys.get(name, name)


def _setting_fields(
    snapshot: Mapping[str, object],
    name: str,
    convert: Callable[[object], object],
    key: str | None = None,
) -> dict[str, object]:
    """Return the setting `name`, converted, as a dict; {} if it is empty or unreadable.

    The key in the result is `key`, or `name` by default.
    """
    value = snapshot.get(name)
    if value is None or value == DEFAULTS.get(name):
        return {}
    made = convert(value)
    return {} if made is None else {key or name: made}


def _group(snapshot: Mapping[str, object], names: tuple[str, ...], key: str) -> dict[str, object]:
    """Return the settings `names`, grouped under `key` as in a document."""
    values = {name: snapshot.get(name, DEFAULTS[name]) for name in names}
    is_default = all(values[name] == DEFAULTS[name] for name in names)
    return {} if is_default or _plain(values) is None else {key: values}


def _model(named: object) -> tuple[str, str]:
    """Split the model name `named` into provider and model; both can be empty.

    The provider gets the name that it has in documents, and is empty if `named` has no colon.
    """
    provider, colon, model = str(named or "").partition(":")
    if not colon:
        return "", provider
    return _PROVIDERS.get(provider, provider), model or provider


def _fallbacks(chain: object) -> list[object] | None:
    links = [_mapping(each) for each in cast("list[object]", chain)] if _is_list(chain) else []
    made: list[object] = []
    for link in links:
        if not isinstance(link.get("model"), str):
            return None
        provider, model = _model(link["model"])
        attempts = link.get("max_attempts", 1)
        if not isinstance(attempts, int):
            return None
        made.append({"model": model, "provider": provider, "max_attempts": attempts})
    return made or None


def _retry(policy: object) -> dict[str, object] | None:
    given = _mapping(policy)
    made: dict[str, object] = {"backoff": given.get("growth", "exponential")}
    made["max"] = given.get("max_attempts")
    for ours, (theirs, factor) in _RETRY.items():
        value = given.get(ours)
        if not isinstance(value, int | float):
            return None
        made[theirs] = round(value * factor, 6)
    return made if isinstance(made["max"], int) and isinstance(made["backoff"], str) else None


def _tools(described: object) -> list[str] | None:
    names: list[str] = []
    for each in cast("list[object]", described) if _is_list(described) else []:
        name = cast("dict[str, object]", each).get("name") if isinstance(each, dict) else each
        if isinstance(name, str):
            names.append(name)
    return names or None


def _plain(value: object) -> object:
    """Return `value` if a file can contain it as one line, or as one line per key; else None."""
    if _is_plain(value):
        return value
    fields = _mapping(value)
    is_flat = fields and all(each is None or _is_plain(each) for each in fields.values())
    return {key: each for key, each in fields.items() if each is not None} if is_flat else None


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def _is_said(value: object) -> bool:
    return _is_plain(value) and value != ""


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
