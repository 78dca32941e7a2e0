"""An agent: who answers in a session. Its snapshot is frozen when a session starts."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from perdure.bounds.limits import require_within
from perdure.client.conversation.workspace import Workspace
from perdure.context.build import History
from perdure.engine.hooks.registry import Hooks
from perdure.engine.turns.config import (
    Budget,
    CompactionSettings,
    Limits,
    OnExceed,
    QueueModes,
)
from perdure.engine.turns.environment import SilenceLimits
from perdure.errors import ConfigError, WrongArgument
from perdure.models.catalogue import model_missing, require_model_name
from perdure.models.protocol import ThinkingLevel, TimeoutS
from perdure.models.retry import RetryPolicy
from perdure.secrets.pasted_keys import PastePolicy
from perdure.secrets.references import unfilled_in
from perdure.session.argument_checks import check_fields, takes_declared
from perdure.session.flows.graph import is_role
from perdure.session.ledger import InterruptPolicy
from perdure.tools.mcp.servers import McpServer
from perdure.tools.permissions import Permissions, Scope
from perdure.tools.registry import ToolRegistry, registry_of
from perdure.tools.spec import ToolSpec
from perdure.workflow.templates import with_context

RETRY_ALONE = RetryPolicy()
RETRY_IN_CHAIN = RetryPolicy(max_attempts=1, first_wait_s=0.25, cap_s=8.0)
"""How the agent's own model is tried where the agent does not say: with fallbacks, only once."""

Tools = Iterable[str | ToolSpec | Callable[..., Any]]

_log = logging.getLogger(__name__)
_CATALOGUE = "perdure.tools.builtin.catalogue"


class Fallback(msgspec.Struct, frozen=True):
    """A model that is called when the one before it in the chain cannot be.

    `max_attempts` counts the first one too.
    """

    model: str
    max_attempts: Annotated[int, Meta(ge=1)] = 1

    def __post_init__(self) -> None:
        check_fields(self)
        require_model_name(self.model)

    @property
    def retry(self) -> RetryPolicy:
        """How often it is tried, and the waits between."""
        return msgspec.structs.replace(RETRY_IN_CHAIN, max_attempts=self.max_attempts)


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is besides its tools; plain data, kept in every session it starts.

    `model` is ``provider:name``, and an agent needs one. `on_interrupt` says what happens to an
    answer that was streaming when its process died: ``retry`` it, ``continue`` from the part that
    was kept, ``rollback`` the turn, or ``ask``. An answer that broke off in the middle ends the
    turn, or with `restart_on_cut` begins anew with the next fallback.
    `retry` None tries `model` once where there are fallbacks, and three times where there are none.
    `max_cost_microcents` (see `dollars`; 0: no limit) is what a session may spend on models,
    `on_exceed` what happens before a call that may cost more. `history` "text_only" keeps tool
    calls of earlier turns out of the context. `on_pasted` says what happens to a message that
    holds a credential: ``warn``, ``redact`` it, or ``refuse`` the message. `permissions` is what
    its built-in tools may touch; a session may only narrow them. `name` and `description` tell
    people, and agents that may invoke it, what it is; `max_agents` is how many sessions of other
    agents a session may open with ``invoke_agent``, `max_depth` how deep those may nest.
    A question not answered within `question_expires_s` ends its turn (None: it waits).
    A model call fails as unavailable if its provider sends no byte within `first_byte_timeout_s`
    (None: 60, and 600 with thinking on), or no further one within `stream_idle_timeout_s` (None:
    `InputLimits.model_silence_s`); then the model is tried again, or the next fallback is called.
    """

    name: str | None = None
    description: str | None = None
    model: str = ""
    instructions: str = ""
    thinking_level: ThinkingLevel = "off"
    on_interrupt: InterruptPolicy = "retry"
    limits: Limits = Limits()
    retry: RetryPolicy | None = None
    compaction: CompactionSettings = CompactionSettings()
    queue_mode: QueueModes = "one-at-a-time"
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    restart_on_cut: bool = False
    max_cost_microcents: Annotated[int, Meta(ge=0)] = 0
    on_exceed: OnExceed = "pause_for_approval"
    history: History = "full"
    on_pasted: PastePolicy = "warn"
    permissions: Permissions = Permissions()
    max_agents: Annotated[int, Meta(ge=0)] = 16
    max_depth: Annotated[int, Meta(ge=0)] = 3
    question_expires_s: Annotated[float, Meta(gt=0)] | None = None
    first_byte_timeout_s: TimeoutS | None = None
    stream_idle_timeout_s: TimeoutS | None = None

    @property
    def budget(self) -> Budget:
        """What a session may spend, and what happens then."""
        return Budget(self.max_cost_microcents, self.on_exceed)

    @property
    def silence(self) -> SilenceLimits:
        """How long a model's provider may be silent."""
        return SilenceLimits(self.first_byte_timeout_s, self.stream_idle_timeout_s)


class Agent(AgentSettings, frozen=True):
    """A model with instructions and tools.

    `tools` are functions, `ToolSpec`s, or names of built-in tools. `fallbacks`, names of models or
    `Fallback`s, are called in order when `model` cannot be. `mcp_servers`, `McpServer`s or names
    the runtime knows, add their tools when a session is started or resumed. `hooks` are asked in
    its sessions after those of the store; they are this program's and not kept.
    Raises: ConfigError for two tools or two MCP servers of one name, and for an unknown tool;
    WrongArgument for an id that is not kebab-case, for a model that is not ``provider:name``, and
    for what a field is not declared as.
    """

    id: str
    tools: Tools = ()
    fallbacks: Iterable[str | Fallback] = ()
    mcp_servers: Iterable[str | McpServer] = ()
    hooks: Hooks | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not is_role(self.id):
            raise WrongArgument(
                f"invalid agent id {self.id!r}: use a-z, 0-9 and single hyphens, for example "
                "Agent('helper'); 'helper_2' names an instance of a role",
                argument="id",
            )
        require_within("name_characters", len(self.id), f"agent id {self.id!r:.40}")
        if not self.model:
            raise model_missing(f"agent {self.id!r}")
        require_model_name(self.model)
        msgspec.structs.force_setattr(self, "tools", registry_of(_resolve_tools(self.tools)).tools)
        chain = tuple(Fallback(f) if isinstance(f, str) else f for f in self.fallbacks)
        msgspec.structs.force_setattr(self, "fallbacks", chain)
        servers = tuple(self.mcp_servers)
        msgspec.structs.force_setattr(self, "mcp_servers", servers)
        names = [each if isinstance(each, str) else each.name for each in servers]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"agent {self.id!r} has two MCP servers named {name!r}", argument="mcp_servers"
                )

    @property
    def chain(self) -> tuple[Fallback, ...]:
        """Its models in the order in which they are called, its own first."""
        fallbacks = cast("tuple[Fallback, ...]", self.fallbacks)
        return (Fallback(self.model), *fallbacks)

    @property
    def own_retry(self) -> RetryPolicy:
        """How often `model` itself is tried."""
        return self.retry or (RETRY_IN_CHAIN if self.fallbacks else RETRY_ALONE)

    @property
    def registry(self) -> ToolRegistry:
        """Its tools by name."""
        return registry_of(_resolve_tools(self.tools))

    @takes_declared
    def restrict(
        self,
        tools: Iterable[str] | None = None,
        allowed_commands: Iterable[str] | None = None,
        scope: Scope | None = None,
    ) -> Agent:
        """The agent with only the tools and commands named, and a scope no wider than its own.

        None keeps what it has.
        Raises: ConfigError for what it does not have: a session may only narrow its agent.
        """
        agent = self
        if tools is not None:
            agent = agent.with_tools(agent.registry.restrict(tools).tools)
        allowed = self.permissions.restrict(scope=scope, allowed_commands=allowed_commands)
        return msgspec.structs.replace(agent, permissions=allowed)

    @takes_declared
    def with_tools(self, tools: Tools) -> Agent:
        """The agent with other tools."""
        return msgspec.structs.replace(self, tools=tuple(tools))

    def snapshot(self) -> dict[str, object]:
        """The agent as plain data, its tools as names with the hashes of their schemas."""
        registry = self.registry
        described = [
            {"name": name, "schema_hash": registry.schema_hash(name)} for name in registry.names
        ]
        fallbacks = msgspec.to_builtins(self.fallbacks)
        return {"id": self.id, **_plain(self), "fallbacks": fallbacks, "tools": described}

    @takes_declared
    def system_prompt(self, workspace: Workspace) -> str | None:
        """The instructions with ``{{ctx.name}}`` filled from the workspace, never scanned again.

        A reference to a secret stays as it is, and a warning is logged.
        Raises: ConfigError for a name the workspace does not have.
        """
        place = f"the instructions of agent {self.id!r}"
        if warning := unfilled_in(self.instructions, place):
            _log.warning("%s", warning)
        return with_context(self.instructions, workspace.names, place) or None

    @takes_declared
    def tools_in(self, workspace: Workspace) -> ToolRegistry:
        """Its tools, their descriptions filled as `system_prompt` is.

        Raises: ConfigError for a name the workspace does not have.
        """
        return ToolRegistry(
            tuple(_described(spec, workspace.names) for spec in self.registry.tools)
        )


def _resolve_tools(tools: Tools) -> tuple[ToolSpec | Callable[..., Any], ...]:
    """`tools` with the built-in one for each name; who names none loads none."""
    chosen = tuple(tools)
    if any(isinstance(each, str) for each in chosen):
        return importlib.import_module(_CATALOGUE).with_names(chosen)
    return tuple(each for each in chosen if not isinstance(each, str))


def _described(spec: ToolSpec, names: Mapping[str, str]) -> ToolSpec:
    place = f"the descriptions of tool {spec.name!r}"
    return msgspec.structs.replace(
        spec,
        description=with_context(spec.description, names, place),
        parameters=_filled_below(spec.parameters, names, place),
    )


def _filled_below(schema: Any, names: Mapping[str, str], place: str) -> Any:
    """`schema` with the descriptions in it filled; nothing else of it is text for a model."""
    if isinstance(schema, list):
        return [_filled_below(item, names, place) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    fields = cast("Mapping[str, Any]", schema)
    return {
        key: with_context(value, names, place)
        if key == "description" and isinstance(value, str)
        else _filled_below(value, names, place)
        for key, value in fields.items()
    }


class _Snapshot(AgentSettings, frozen=True, kw_only=True):
    """A stored agent; fields of later versions are left out."""

    id: str
    tools: tuple[dict[str, str], ...] = ()
    fallbacks: tuple[Fallback, ...] = ()


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
    try:
        return Agent(stored.id, tools=tuple(bound), fallbacks=stored.fallbacks, **settings)
    except WrongArgument as error:
        raise ConfigError(f"the session's agent cannot be used any more: {error}") from error


def _plain(settings: AgentSettings) -> dict[str, object]:
    return {
        name: msgspec.to_builtins(getattr(settings, name))
        for name in AgentSettings.__struct_fields__
    }
