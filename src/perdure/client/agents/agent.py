"""An agent: model, instructions and tools. A session stores a frozen snapshot of the agent."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Generic, cast

import msgspec
from msgspec import Meta

from perdure.bounds.limits import require_within
from perdure.bounds.short_repr import ShortRepr, short_repr
from perdure.client.conversation.workspace import Workspace
from perdure.client.requests.cron import Recurring
from perdure.engine.hooks.registry import Hooks
from perdure.engine.turns.config import (
    Budget,
    CompactionSettings,
    Limits,
    MemoryConfig,
    OnExceed,
    QueueModes,
    SilenceLimits,
)
from perdure.errors import ConfigError, WrongArgument
from perdure.models.catalogue import model_missing, require_model_name
from perdure.models.protocol import ThinkingLevel, TimeoutS
from perdure.models.retry import RetryPolicy
from perdure.secrets.pasted_keys import PastePolicy
from perdure.secrets.references import unfilled_in
from perdure.session.argument_checks import NamedParameters, check_fields, takes_declared
from perdure.session.flows.graph import is_role
from perdure.session.ledger import History, InterruptPolicy
from perdure.tools.mcp.servers import McpServer
from perdure.tools.output import OutputT, OutputType, output_of
from perdure.tools.permissions import Permissions, Scope
from perdure.tools.registry import ToolRegistry, registry_of
from perdure.tools.spec import ToolSpec
from perdure.workflow.templates import with_context

RETRY_ALONE = RetryPolicy()
RETRY_IN_CHAIN = RetryPolicy(max_attempts=1, first_wait_s=0.25, cap_s=8.0)
"""The default retry policy for the own model of an agent that has fallbacks: one attempt."""

Tools = Iterable[str | ToolSpec | Callable[..., Any]]

_log = logging.getLogger(__name__)
_CATALOGUE = "perdure.tools.builtin.catalogue"


class Fallback(ShortRepr, frozen=True):
    """A model that is called if the previous model in the chain fails.

    `max_attempts` includes the first attempt.
    """

    model: str
    max_attempts: Annotated[int, Meta(ge=1)] = 1

    def __post_init__(self) -> None:
        check_fields(self)
        require_model_name(self.model)

    @property
    def retry(self) -> RetryPolicy:
        """The retry policy: the number of attempts, and the waits between them."""
        return msgspec.structs.replace(RETRY_IN_CHAIN, max_attempts=self.max_attempts)


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an agent, without its tools: plain data that each of its sessions stores."""

    name: str | None = None
    """The name that people see."""
    description: str | None = None
    """What the agent does, for people and for agents that can invoke it."""
    model: str = ""
    """The model, as ``provider:name``. Required."""
    instructions: str = ""
    """The system prompt. ``{{ctx.NAME}}`` is replaced by a value of the session's workspace."""
    thinking_level: ThinkingLevel = "off"
    """How much the model reasons before it answers."""
    on_interrupt: InterruptPolicy = "retry"
    """What happens to an answer that was streaming when its process died: ``retry`` the call,
    ``continue`` from the stored part, ``rollback`` the turn, or ``ask`` a person."""
    limits: Limits = Limits()
    """Maximum turns of a session, and rounds of a turn; a turn that exceeds a limit fails."""
    retry: RetryPolicy | None = None
    """How often `model` is tried at most.

    None: three times, or once with fallbacks.
    """
    compaction: CompactionSettings = CompactionSettings()
    """When older messages are summarized, and how many tokens of recent messages stay unchanged."""
    memory: MemoryConfig | None = None
    """What each turn recalls from earlier sessions (docs/guides/memory.md). None: nothing."""
    queue_mode: QueueModes = "one-at-a-time"
    """Whether the messages that wait for a turn reach the turn one by one or together."""
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    """Maximum tokens of an answer. None: the provider's limit."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """The sampling temperature, 0 to 2. None: the default of the provider."""
    restart_on_cut: bool = False
    """Call the next fallback after an answer that the provider cut off. False: the turn ends."""
    max_cost_microcents: Annotated[int, Meta(ge=0)] = 0
    """Maximum spending of a session on models (see `dollars`). 0: no limit."""
    on_exceed: OnExceed = "pause_for_approval"
    """What happens to a call that could exceed `max_cost_microcents`."""
    history: History = "full"
    """``text_only`` omits the tool calls of earlier turns from the context."""
    on_pasted: PastePolicy = "warn"
    """What happens to a message with a credential: ``warn``, ``redact`` it, or ``refuse`` it."""
    permissions: Permissions = Permissions()
    """What the built-in tools are allowed to do. A session can only restrict these permissions."""
    max_agents: Annotated[int, Meta(ge=0)] = 16
    """Maximum number of sessions that a session can open for other agents with ``invoke_agent``."""
    max_depth: Annotated[int, Meta(ge=0)] = 3
    """Maximum nesting depth of the sessions that ``invoke_agent`` opens."""
    question_expires_s: Annotated[float, Meta(gt=0)] | None = None
    """The seconds after which an unanswered question ends its turn. None: no time limit."""
    first_byte_timeout_s: TimeoutS | None = None
    """The seconds that the provider has for the first byte of an answer.

    After this time, the model is called again, or the next fallback is called. None: 60 seconds, or
    600 with thinking on.
    """
    stream_idle_timeout_s: TimeoutS | None = None
    """The seconds that the provider has for each further byte. None:
    `InputLimits.model_silence_s`."""

    @property
    def budget(self) -> Budget:
        """The budget of a session."""
        return Budget(self.max_cost_microcents, self.on_exceed)

    @property
    def silence(self) -> SilenceLimits:
        """The timeouts for a model's provider."""
        return SilenceLimits(self.first_byte_timeout_s, self.stream_idle_timeout_s)


class Agent(AgentSettings, Generic[OutputT], frozen=True, metaclass=NamedParameters):
    """A model with instructions and tools.

    Raises: ConfigError if two tools or two MCP servers have the same name, or if a tool is unknown.
    Raises WrongArgument for an id that is not kebab-case, a model that is not ``provider:name``, an
    output without a schema, an unknown keyword, or a value of the wrong type.
    """

    __repr__ = short_repr

    id: str
    """The name of the agent in sessions, commands and flows: a-z, 0-9 and single hyphens."""
    tools: Tools = ()
    """The agent's tools: functions, `ToolSpec`s, or names of built-in tools."""
    fallbacks: Iterable[str | Fallback] = ()
    """Models, by name or as `Fallback`, that are called in order if `model` fails."""
    mcp_servers: Iterable[str | McpServer] = ()
    """`McpServer`s, or names that the runtime knows.

    Starting or resuming a session adds the servers' tools.
    """
    hooks: Hooks | None = None
    """Functions that observe or change the agent's turns; they run after the hooks of the store.

    The hooks are not stored.
    """
    recurring: Iterable[Recurring] = ()
    """Messages that each start a new session at times given by cron (docs/guides/schedules.md).

    The `Recurring` objects are not stored in sessions.
    """
    output: OutputType[OutputT] = None
    """The type of the agent's answers: a dataclass, msgspec.Struct, TypedDict or pydantic model.

    The model has to correct an answer that does not fit the type; `Reply.output` is the value of a
    valid answer (docs/guides/turns.md).
    """

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
        msgspec.structs.force_setattr(self, "recurring", tuple(self.recurring))
        names = [each if isinstance(each, str) else each.name for each in servers]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"agent {self.id!r} has two MCP servers named {name!r}", argument="mcp_servers"
                )

        output_of(self.output)

    @property
    def chain(self) -> tuple[Fallback, ...]:
        """The agent's models in call order, its own model first."""
        fallbacks = cast("tuple[Fallback, ...]", self.fallbacks)
        return (Fallback(self.model), *fallbacks)

    @property
    def own_retry(self) -> RetryPolicy:
        """The retry policy for the agent's own model."""
        return self.retry or (RETRY_IN_CHAIN if self.fallbacks else RETRY_ALONE)

    @property
    def registry(self) -> ToolRegistry:
        """The agent's tools by name."""
        return registry_of(_resolve_tools(self.tools))

    @takes_declared
    def restrict(
        self,
        tools: Iterable[str] | None = None,
        allowed_commands: Iterable[str] | None = None,
        scope: Scope | None = None,
    ) -> Agent[OutputT]:
        """Return the agent with only the named tools and commands, and with a narrower scope.

        An argument that is None changes nothing.
        Raises: ConfigError if the agent lacks a named tool or permission, because a session can
        only restrict its agent.
        """
        agent = self
        if tools is not None:
            agent = agent.with_tools(agent.registry.restrict(tools).tools)
        allowed = self.permissions.restrict(scope=scope, allowed_commands=allowed_commands)
        return msgspec.structs.replace(agent, permissions=allowed)

    @takes_declared
    def with_tools(self, tools: Tools) -> Agent[OutputT]:
        """Return the agent with `tools` instead of its own tools."""
        return msgspec.structs.replace(self, tools=tuple(tools))

    def snapshot(self) -> dict[str, object]:
        """Return the agent as plain data, with the name and the hash of the schema of each tool."""
        registry = self.registry
        described = [
            {"name": name, "schema_hash": registry.schema_hash(name)} for name in registry.names
        ]
        fallbacks = msgspec.to_builtins(self.fallbacks)
        plain = {"id": self.id, **_plain(self), "fallbacks": fallbacks, "tools": described}
        output = output_of(self.output)
        return plain if output is None else {**plain, "output": output.schema}

    @takes_declared
    def system_prompt(self, workspace: Workspace) -> str | None:
        """Return the instructions with each ``{{ctx.name}}`` replaced by its value in `workspace`.

        A placeholder inside a value stays plain text. Returns None if the instructions are blank. A
        reference to a secret is not replaced, and a warning is logged.
        Raises: ConfigError if the workspace lacks the name in a placeholder.
        """
        place = f"the instructions of agent {self.id!r}"
        if warning := unfilled_in(self.instructions, place):
            _log.warning("%s", warning)
        prompt = with_context(self.instructions, workspace.names, place)
        return prompt if prompt.strip() else None

    @takes_declared
    def tools_in(self, workspace: Workspace) -> ToolRegistry:
        """Return the agent's tools.

        Placeholders in descriptions are replaced (see `system_prompt`).

        Raises: ConfigError if the workspace lacks the name in a placeholder.
        """
        return ToolRegistry(
            tuple(_described(spec, workspace.names) for spec in self.registry.tools)
        )


def _resolve_tools(tools: Tools) -> tuple[ToolSpec | Callable[..., Any], ...]:
    """Return `tools` with each name replaced by the built-in tool of that name.

    Built-in tools that are not named are not loaded.
    """
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
    """Return `schema` with the placeholders in its descriptions replaced."""
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
    """A stored agent; fields that later versions added are ignored."""

    id: str
    tools: tuple[dict[str, str], ...] = ()
    fallbacks: tuple[Fallback, ...] = ()


def agent_of(snapshot: Mapping[str, object], tools: ToolRegistry) -> Agent:
    """Return the agent in `snapshot`, with those of its tools that `tools` contains.

    A tool whose name or schema changed is not bound, so calls of the tool are answered like calls
    of an unknown tool.
    Raises: ConfigError if the snapshot cannot be read.
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
    stored = {name: getattr(settings, name) for name in AgentSettings.__struct_fields__}
    stored["memory"] = None if settings.memory is None else settings.memory.stored()
    return {name: msgspec.to_builtins(value) for name, value in stored.items()}
