"""An agent: who answers in a session. Its snapshot is frozen when a session starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from perdure.engine.turns.config import CompactionSettings, Limits, QueueModes
from perdure.errors import ConfigError
from perdure.models.protocol import ThinkingLevel
from perdure.models.retry import RetryPolicy
from perdure.session.ledger import InterruptPolicy
from perdure.tools.registry import ToolRegistry, registry_of
from perdure.tools.spec import ToolSpec

DEFAULT_MODEL = "scripted:echo"
"""What answers when nothing else is configured: offline, and says so."""

_PLACEHOLDER = re.compile(r"\{\{\s*ctx\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")

Tools = Iterable[ToolSpec | Callable[..., Any]]


class Workspace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The situation a session runs in.

    `working_dir` is where file tools look. `variables` fill ``{{ctx.name}}`` in the agent's
    instructions, once, at the start; they are stored in plain text and must not hold secrets.
    """

    working_dir: str = "."
    variables: dict[str, str] = {}


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is besides its tools; plain data, kept in every session it starts.

    `model` is ``provider:name``. `on_interrupt` says what happens to an answer that was streaming
    when its process died: ``retry`` it, ``continue`` from the part that was kept, ``rollback`` the
    turn, or ``ask``.
    """

    model: str = DEFAULT_MODEL
    instructions: str = ""
    thinking_level: ThinkingLevel = "off"
    on_interrupt: InterruptPolicy = "retry"
    limits: Limits = Limits()
    retry: RetryPolicy = RetryPolicy()
    compaction: CompactionSettings = CompactionSettings()
    queue_mode: QueueModes = "one-at-a-time"
    max_output_tokens: int | None = None
    temperature: float | None = None


class Agent(AgentSettings, frozen=True):
    """A model with instructions and tools. `tools` are functions or `ToolSpec`s.

    Raises: ConfigError for two tools of one name.
    """

    id: str
    tools: Tools = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "tools", registry_of(self.tools).tools)

    @property
    def registry(self) -> ToolRegistry:
        """Its tools by name."""
        return registry_of(self.tools)

    def narrowed(self, tools: Iterable[str] | None) -> Agent:
        """The agent with only the tools named; None keeps all.

        Raises: ConfigError for a tool it does not have: a session may only narrow its agent.
        """
        if tools is None:
            return self
        return self.with_tools(self.registry.narrowed(tools).tools)

    def with_tools(self, tools: Tools) -> Agent:
        """The agent with other tools."""
        return msgspec.structs.replace(self, tools=tuple(tools))

    def snapshot(self) -> dict[str, object]:
        """The agent as plain data, its tools as names with the hashes of their schemas."""
        registry = self.registry
        described = [
            {"name": name, "schema_hash": registry.schema_hash(name)} for name in registry.names
        ]
        return {"id": self.id, **_plain(self), "tools": described}

    def system_prompt(self, workspace: Workspace) -> str | None:
        """The instructions with ``{{ctx.name}}`` filled from the workspace, never scanned again.

        Raises: ConfigError for a name the workspace does not have.
        """

        def filled(found: re.Match[str]) -> str:
            name = found.group(1)
            if name not in workspace.variables:
                known = ", ".join(sorted(workspace.variables)) or "none"
                raise ConfigError(
                    f"the instructions of agent {self.id!r} use {{{{ctx.{name}}}}}, which the "
                    f"workspace does not define (it defines: {known})"
                )
            return workspace.variables[name]

        return _PLACEHOLDER.sub(filled, self.instructions) or None


class _Snapshot(AgentSettings, frozen=True, kw_only=True):
    """A stored agent; fields of later versions are left out."""

    id: str
    tools: tuple[dict[str, str], ...] = ()


def agent_of(snapshot: Mapping[str, object], tools: ToolRegistry) -> Agent:
    """The agent that `snapshot` describes, with those of its tools that `tools` still has.

    A tool whose name or schema has changed is not bound: calls of it are answered as unknown.
    Raises: ConfigError when the snapshot cannot be read.
    """
    try:
        stored = msgspec.convert(dict(snapshot), _Snapshot)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the session's agent cannot be read: {error}") from error
    bound = [
        tools.get(tool["name"])
        for tool in stored.tools
        if tool.get("name") in tools.names
        and tools.schema_hash(tool["name"]) == tool.get("schema_hash")
    ]
    settings = {name: getattr(stored, name) for name in AgentSettings.__struct_fields__}
    return Agent(stored.id, tools=tuple(bound), **settings)


def _plain(settings: AgentSettings) -> dict[str, object]:
    return {
        name: msgspec.to_builtins(getattr(settings, name))
        for name in AgentSettings.__struct_fields__
    }
