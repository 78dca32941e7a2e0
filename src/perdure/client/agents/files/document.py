"""The format of an agent file: the type of a decoded file, from which its JSON Schema is generated.

The keys of Relavium's ``agent.yaml`` come first, then perdure's own.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from perdure.client.requests.cron import Recurring
from perdure.engine.turns.config import (
    CompactionSettings,
    Limits,
    MemoryConfig,
    OnExceed,
    QueueModes,
)
from perdure.errors import ConfigError
from perdure.models.embedders.protocol import LOCAL, check_name
from perdure.models.protocol import ThinkingLevel, TimeoutS
from perdure.secrets.pasted_keys import PastePolicy
from perdure.session.ledger import History, InterruptPolicy
from perdure.tools.mcp.servers import McpServer
from perdure.tools.permissions import Permissions

KEBAB = "^[a-z0-9]+(-[a-z0-9]+)*$"

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Milliseconds = Annotated[float, Meta(ge=0)]
Microcents = Annotated[int, Meta(ge=0)]


class FiledRetry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of attempts with the agent's own model, and the waits between them."""

    max: Annotated[Count, Meta(description="Maximum attempts, including the first.")]
    backoff: Annotated[
        Literal["exponential", "linear"], Meta(description="How the waits grow.")
    ] = "exponential"
    backoff_ms: Annotated[Milliseconds, Meta(description="The first wait.")] = 2_000
    cap_ms: Annotated[Milliseconds, Meta(description="The longest wait.")] = 60_000
    factor: Annotated[
        Annotated[float, Meta(ge=1)],
        Meta(description="The factor by which exponential waits grow."),
    ] = 2.0
    jitter: Annotated[
        Annotated[float, Meta(ge=0, le=1)],
        Meta(description="The share by which a wait can be longer or shorter."),
    ] = 0.2


class FiledFallback(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model that is called if the previous model fails."""

    model: Annotated[Text, Meta(description="provider:name, or a name with `provider`.")]
    provider: Annotated[Text | None, Meta(description="The provider of the model.")] = None
    max_attempts: Annotated[Count, Meta(description="Maximum attempts, including the first.")] = 1


class FiledBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limit of a session's spending on models. 100,000,000 micro-cents are one dollar."""

    max_cost_microcents: Annotated[Microcents, Meta(description="0: no limit.")]
    on_exceed: Annotated[
        OnExceed, Meta(description="What happens before a call that could exceed the limit.")
    ] = "pause_for_approval"


class FiledDelegation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the agent for invoking other agents with the tool invoke_agent."""

    max_agents: Annotated[Count, Meta(description="Child sessions of one session.")] = 16
    max_depth: Annotated[
        Annotated[int, Meta(ge=0)], Meta(description="How deep invoked agents can invoke agents.")
    ] = 3


class FiledMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings for shortening long conversations and for recalling earlier ones.

    Raises: ConfigError if the type "window" has no `window_size`, or if another type has one.
    """

    type: Annotated[
        Literal["none", "summary", "window"] | None,
        Meta(description="Older messages; summary: summarized; window: omitted; none: sent."),
    ] = None
    window_size: Annotated[
        Count | None, Meta(description="Newest messages that a window sends to the model.")
    ] = None
    max_working_tokens: Annotated[
        Count | None, Meta(description="Maximum tokens of a request, with recalled texts.")
    ] = None
    semantic_top_k: Annotated[
        Annotated[int, Meta(ge=0, le=100)] | None,
        Meta(description="Facts that are recalled for a turn."),
    ] = None
    episodic_top_k: Annotated[
        Annotated[int, Meta(ge=0, le=100)] | None,
        Meta(description="Texts of earlier sessions that are recalled for a turn."),
    ] = None

    extractor: Annotated[
        Literal["model"] | None,
        Meta(description="model: the agent's model lists the facts in a session that ended."),
    ] = None

    knowledge: Annotated[
        tuple[Text, ...],
        Meta(description="Folders of Markdown and text files, below the working folder."),
    ] = ()

    embedder: Annotated[
        Text | None,
        Meta(
            description="static:FOLDER, minilm:FOLDER or PROVIDER:MODEL, to recall by meaning, too."
        ),
    ] = None

    @property
    def working(self) -> MemoryConfig | None:
        """The memory settings; None if the file has none."""
        names = MemoryConfig.__struct_fields__
        found = {name: value for name in names if (value := getattr(self, name)) not in (None, ())}
        return MemoryConfig(**found) if found else None

    def __post_init__(self) -> None:
        for folder in self.knowledge:
            if PurePath(folder).is_absolute() or ".." in PurePath(folder).parts:
                raise ConfigError(
                    f"knowledge folder {folder!r:.80} is not below the working folder: name one "
                    "that is, for example docs",
                    argument="knowledge",
                )
        if self.embedder is not None:
            check_name(self.embedder)
        kind, _, place = (self.embedder or "").partition(":")
        if kind in LOCAL and not place.startswith("~") and not PurePath(place).is_absolute():
            raise ConfigError(
                f"the folder of the embedder {self.embedder!r:.80} is not absolute: name the whole "
                "path, or begin it with ~",
                argument="embedder",
            )
        if self.type == "window" and self.window_size is None:
            raise ConfigError(
                "memory 'window' needs window_size: {type: window, window_size: 40}",
                argument="type",
            )
        if self.type != "window" and self.window_size is not None:
            raise ConfigError(
                "window_size needs memory type 'window': {type: window, window_size: 40}",
                argument="window_size",
            )


SAME_NAMES = (
    *("id", "name", "description", "temperature", "mcp_servers", "recurring"),
    *("on_interrupt", "queue_mode", "restart_on_cut", "history", "on_pasted"),
    *("question_expires_s", "first_byte_timeout_s", "stream_idle_timeout_s"),
)
"""The keys of a file whose names and values are those of the agent's fields."""


class AgentFile(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The content of an agent file, as it was written."""

    id: Annotated[str, Meta(pattern=KEBAB, description="a-z, 0-9 and single hyphens.")]
    model: Annotated[Text, Meta(description="provider:name, or a name with `provider`.")]
    system_prompt: Annotated[
        str,
        Meta(description="The instructions of the agent; {{ctx.name}} is replaced by its value."),
    ]
    name: Annotated[Text | None, Meta(description="The name that people see.")] = None
    description: Annotated[
        Text | None, Meta(description="The purpose, for agents that can invoke this agent.")
    ] = None
    provider: Annotated[Text | None, Meta(description="The provider of `model`.")] = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[Count | None, Meta(description="Maximum tokens of an answer.")] = None
    reasoning_effort: ThinkingLevel = "off"
    tools: Annotated[tuple[Text, ...], Meta(description="Built-in tools by name.")] = ()
    memory: Annotated[
        Literal["none", "summary"] | FiledMemory,
        Meta(
            description="What happens to the older part of a long conversation.",
            extra_json_schema={"dependentRequired": {"window_size": ["type"]}},
        ),
    ] = "summary"
    retry: FiledRetry | None = None
    fallback_chain: tuple[FiledFallback, ...] = ()
    mcp_servers: Annotated[
        tuple[str | McpServer, ...],
        Meta(description="MCP servers whose tools the agent gets; a name is known to the runtime."),
    ] = ()

    recurring: Annotated[
        tuple[Recurring, ...],
        Meta(description="Messages that each start a new session, at times given by cron."),
    ] = ()

    budget: FiledBudget | None = None
    limits: Limits | None = None
    permissions: Permissions | None = None
    compaction: CompactionSettings | None = None
    delegation: FiledDelegation | None = None
    on_interrupt: Annotated[
        InterruptPolicy, Meta(description="What happens to an answer that was cut off.")
    ] = "retry"
    queue_mode: QueueModes = "one-at-a-time"
    restart_on_cut: bool = False
    history: History = "full"
    on_pasted: PastePolicy = "warn"
    question_expires_s: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="Seconds after which an unanswered question ends its turn."),
    ] = None
    first_byte_timeout_s: Annotated[
        TimeoutS | None,
        Meta(description="Limit on the wait for an answer's first byte; 60, with thinking 600."),
    ] = None
    stream_idle_timeout_s: Annotated[
        TimeoutS | None, Meta(description="Limit on the wait for each further byte of an answer.")
    ] = None
