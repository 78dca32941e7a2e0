"""What a turn runs under: model, tools, limits, compaction. Fixed for the turn's duration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from perdure.models.retry import RetryPolicy
from perdure.session.ledger import Effect, InterruptPolicy, UnknownPolicy

QueueModes = Literal["one-at-a-time", "all"]

MAX_TURNS = 50
MAX_TOOL_ROUNDS = 16
MAX_CORRECTABLE_ROUNDS = 3


class Limits(msgspec.Struct, frozen=True):
    """Caps that end a turn loudly. Zero or less means the default.

    `max_turns` counts the turns a session has run under its own agent, `max_tool_rounds` the
    answers of one turn that asked for tools, `max_correctable_rounds` those of them in which the
    model asked for something it can put right (an unknown tool, arguments that do not fit).
    """

    max_turns: int = MAX_TURNS
    max_tool_rounds: int = MAX_TOOL_ROUNDS
    max_correctable_rounds: int = MAX_CORRECTABLE_ROUNDS

    def __post_init__(self) -> None:
        if min(self.max_turns, self.max_tool_rounds, self.max_correctable_rounds) <= 0:
            defaults = (MAX_TURNS, MAX_TOOL_ROUNDS, MAX_CORRECTABLE_ROUNDS)
            asked = (self.max_turns, self.max_tool_rounds, self.max_correctable_rounds)
            for name, value, default in zip(self.__struct_fields__, asked, defaults, strict=True):
                msgspec.structs.force_setattr(self, name, value if value > 0 else default)


class CompactionSettings(msgspec.Struct, frozen=True):
    """When and how far a context is compacted.

    Units: tokens; `keep_recent_tokens` stay as they are, `summary_tokens` is the most a summary may
    take. With `reserve_tokens` the trigger is window - reserve, else `trigger` x window.
    """

    is_enabled: bool = True
    keep_recent_tokens: int = 20_000
    summary_tokens: int = 4_096
    trigger: float = 0.8
    reserve_tokens: int | None = None


class ToolFacts(msgspec.Struct, frozen=True):
    """What the machine must know of a tool: what it does, and what to do about a lost run."""

    effect: Effect
    on_unknown: UnknownPolicy


class TurnConfig(msgspec.Struct, frozen=True):
    """Everything the machine decides by besides the log.

    Units: `window_tokens` is the model's context window, None where unknown (then nothing is
    compacted before the provider says that it is too much).
    """

    agent: str
    model: str
    tools: Mapping[str, ToolFacts]
    limits: Limits = Limits()
    retry: RetryPolicy = RetryPolicy()
    compaction: CompactionSettings = CompactionSettings()
    on_interrupt: InterruptPolicy = "retry"
    queue_mode: QueueModes = "one-at-a-time"
    window_tokens: int | None = None
