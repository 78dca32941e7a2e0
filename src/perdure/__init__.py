"""perdure: durable sessions for AI agents, stored in one append-only log.

    async with perdure.open("sqlite:///agents.db") as store:
        session = await store.create(title="Trip")
        await session.append(perdure.user("Hello"))

Each name is imported at its first use (PEP 562): ``import perdure`` loads no other module of
perdure, and a program loads only the modules that it uses. ``perdure.blocking`` has the same calls
without async.

The table below lists the public names. Errors are in `perdure.errors`; other types of arguments and
results are in `perdure.types`. Type checkers read ``__init__.pyi``, which
``scripts/make_blocking.py`` writes from the table of public names.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

_MODULES = ("blocking", "errors", "event_types", "server", "testing", "types")
"""Public modules of this package."""

_NAMES: Mapping[str, str] = {
    "perdure.bounds.limits": "InputLimits use_input_limits",
    "perdure.client.agents.agent": "Agent Fallback",
    "perdure.client.agents.chat": "Chat",
    "perdure.client.agents.files.lookup": "load_agents",
    "perdure.client.agents.files.reader": "agent_of_text",
    "perdure.client.agents.files.writer": "agent_text",
    "perdure.client.agents.runtime": "Runtime",
    "perdure.client.agents.session_usage": "revoke standing_of",
    "perdure.client.agents.turn": "Reply Turn",
    "perdure.client.cluster.scheduler": "Scheduler",
    "perdure.client.conversation.append": "AppendOptions",
    "perdure.client.conversation.workspace": "Selection Workspace",
    "perdure.client.flows.feeds": "RoleFeed",
    "perdure.client.flows.flow": "Flow",
    "perdure.client.flows.flows": "Flows",
    "perdure.client.memory.capture": "ModelExtractor",
    "perdure.client.memory.handle": "Memory",
    "perdure.client.memory.tools": "memory_tools",
    "perdure.client.open": "open",
    "perdure.client.recording.record": "Recording record",
    "perdure.client.requests.cron": "Recurring",
    "perdure.client.requests.schedule": "Schedule",
    "perdure.client.session": "Session",
    "perdure.client.store": "Store",
    "perdure.client.watch": "Watch",
    "perdure.context.build": "Context",
    "perdure.engine.hooks.points": "Block",
    "perdure.engine.hooks.registry": "Hooks",
    "perdure.engine.turns.config": "Budget CompactionSettings Limits MemoryConfig",
    "perdure.events.consumer": "Follower",
    "perdure.events.types": "Event LiveEvent Snapshot",
    "perdure.events.wire": "wire",
    "perdure.memory.episodes": "Episode",
    "perdure.memory.hits": "MemoryHit",
    "perdure.models.prices": "Price dollars",
    "perdure.session.codec": "body_of",
    "perdure.session.entries": "LEAF Entry",
    "perdure.session.flows.graph": "FlowEdge FlowNode Graph",
    "perdure.session.flows.kinds": "RunSettings",
    "perdure.session.flows.run": "FeedbackContext RoleConfiguration",
    "perdure.session.info": "SessionInfo",
    "perdure.session.kinds": (
        "BranchSummary Compaction Custom CustomMessage ModelChange ThinkingChange raw_data"
    ),
    "perdure.session.media.inline": "InlineMedia content media",
    "perdure.session.memory.facts": "Fact",
    "perdure.session.messages": (
        "InFlightMessage MediaPart Message TextPart ThinkingPart ToolCallPart "
        "ToolResultPart Usage assistant system thinking tool_call tool_result user"
    ),
    "perdure.session.notes": "Note",
    "perdure.session.search.values": "Hit",
    "perdure.tools.decorator": "tool",
    "perdure.tools.mcp.servers": "McpServer",
    "perdure.tools.permissions": "Permissions",
    "perdure.tools.spec": "ToolCall ToolOutput ToolSpec",
}
"""Maps each module to the public names that it defines."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def _public() -> list[str]:
    """Return every public name."""
    return [*_HOMES, *_MODULES]


def __getattr__(name: str) -> object:
    """Import the public name `name` and cache it."""
    if name == "__all__":
        return _public()
    if name in _HOMES:
        with importlib.import_module("perdure.stores.access.collector").collector_paused_to_load():
            value: object = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    elif name == "__version__":
        value = importlib.import_module("importlib.metadata").version(__name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_public(), "__version__"})
