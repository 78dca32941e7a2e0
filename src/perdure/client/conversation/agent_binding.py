"""The agent that the log of a session binds to it, and the agent's settings for requests.

`client.agents` runs agents; this module only reads bindings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from perdure.engine.switches import Switches
from perdure.session.codec import body_of, readable, role_of
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow
from perdure.session.ids import StreamId
from perdure.session.kinds import ModelChange
from perdure.session.ledger import History
from perdure.session.messages import Message
from perdure.session.notes import AgentBound, SessionStarted
from perdure.stores.protocol import LogReader

Binding = SessionStarted | AgentBound
"""The entries that bind an agent to a session."""

BINDING_KINDS = (SessionStarted.kind, AgentBound.kind)
"""Kinds of the entries that say which agent a session has."""


LOOKED_AT = 256
"""The number of newest entries that are searched for the model of the last answer."""


class HistoryLimit(msgspec.Struct, frozen=True):
    """The maximum number of messages in a request; None: no limit."""

    max_messages: int | None = None


class ContextSettings(msgspec.Struct, frozen=True):
    """The settings in an agent's snapshot that affect its requests to models."""

    history: History = "full"
    compaction: HistoryLimit = HistoryLimit()
    model: str | None = None
    thinking_level: str | None = None


def binding_in(notes: Sequence[Entry]) -> Binding | None:
    """Return the newest binding in `notes`; a fork's own binding overrides that of its origin."""
    for note in reversed(notes):
        body = body_of(note)
        if isinstance(body, SessionStarted | AgentBound) and body.agent is not None:
            return body
    return None


async def model_of(log: LogReader, stream: StreamId, window: ContextWindow) -> str | None:
    """Return the model of the branch of `stream` that ends with `window`.

    If the session has an agent, the result is the model that was last set on the branch, or else
    the agent's model. Models set in an imported file do not count. In a session without an agent,
    the result is the model of the newest model change or answer.
    """
    agents = context_settings_in(await log.notes(stream, BINDING_KINDS)).model
    if agents is None:
        return await _followed(log, stream, window)
    return await switched_in(log, window) or agents


async def switched_in(log: LogReader, window: ContextWindow) -> str | None:
    """Return the model that was last set on the branch of `window`, ignoring imported changes."""
    switched = (await Switches(log).in_force(window.state)).model_change
    return None if switched is None else _said_by(switched)


async def _followed(log: LogReader, stream: StreamId, window: ContextWindow) -> str | None:
    change = window.state.model_change
    switched = None if change is None else _said_by(change)
    entries = window.entries[-LOOKED_AT:]
    found = _newest(entries, switched)
    has_more = window.hidden or window.earlier
    if found is None and len(entries) < LOOKED_AT and has_more and window.leaf is not None:
        found = _newest(await log.branch(stream, window.leaf, limit=LOOKED_AT), switched)
    return found or switched


def _newest(entries: Sequence[Entry], switched: str | None) -> str | None:
    """Return the model of the newest answer or model change.

    If an entry names no model, `switched` is used.
    """
    for entry in reversed(entries):
        if entry.kind == ModelChange.kind or role_of(entry) == "assistant":
            model = _said_by(entry) or switched
            if model is not None:
                return model
    return None


def _said_by(entry: Entry) -> str | None:
    """Return the model to which `entry` switches, or the model that wrote the answer in `entry`."""
    body = readable(entry)
    return body.model if isinstance(body, ModelChange | Message) else None


def context_settings_in(notes: Sequence[Entry]) -> ContextSettings:
    """Return the context settings of the agent bound in `notes`, or the defaults."""
    bound = binding_in(notes)
    try:
        return msgspec.convert(bound.agent if bound is not None else {}, ContextSettings)
    except msgspec.ValidationError:
        return ContextSettings()


def tool_names(snapshot: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of the tools of the agent in `snapshot`."""
    return tuple(tool_hashes(snapshot))


def tool_hashes(snapshot: Mapping[str, object]) -> dict[str, str | None]:
    """Return the hash of the schema of each tool of the agent in `snapshot`, by tool name."""
    tools = snapshot.get("tools")
    listed = cast("list[object]", tools) if isinstance(tools, list) else []
    described = [cast("dict[str, object]", tool) for tool in listed if isinstance(tool, dict)]
    found: dict[str, str | None] = {}
    for tool in described:
        name, schema_hash = tool.get("name"), tool.get("schema_hash")
        if isinstance(name, str):
            found[name] = schema_hash if isinstance(schema_hash, str) else None
    return found
