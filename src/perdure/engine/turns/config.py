"""What a turn runs under: models, tools, limits, budget. Fixed for the turn's duration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from perdure.models.prices import Cost, unpriced
from perdure.models.retry import RetryPolicy
from perdure.session.argument_checks import check_fields
from perdure.session.ledger import InterruptPolicy, ToolEffect, UnknownPolicy
from perdure.session.messages import ToolCallPart
from perdure.tools.approval import Bound, Decision

QueueModes = Literal["one-at-a-time", "all"]

MAX_TURNS = 50
MAX_TOOL_ROUNDS = 16
MAX_CORRECTABLE_ROUNDS = 3
OUTPUT_TOKENS = 4_096
"""What an answer is expected to take at most, where its agent sets no limit."""

PARK_MS = 30_000
"""How long a provider that said "too many requests" is left alone, if it asks for no longer."""


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
        check_fields(self)
        if min(self.max_turns, self.max_tool_rounds, self.max_correctable_rounds) <= 0:
            defaults = (MAX_TURNS, MAX_TOOL_ROUNDS, MAX_CORRECTABLE_ROUNDS)
            asked = (self.max_turns, self.max_tool_rounds, self.max_correctable_rounds)
            for name, value, default in zip(self.__struct_fields__, asked, defaults, strict=True):
                msgspec.structs.force_setattr(self, name, value if value > 0 else default)


CompactionStrategy = Literal["tail", "node"]


class CompactionSettings(msgspec.Struct, frozen=True):
    """When and how far a context is compacted.

    `strategy` says what is summarised: ``tail`` what is older than the tail that stays; ``node``
    everything since the current node of a flow was entered, without a tail.
    Units: tokens; `keep_recent_tokens` stay as they are, `summary_tokens` is the most a summary may
    take. With `reserve_tokens` the trigger is window - reserve, else `trigger` x window.
    With `max_messages` a model is sent no more of them, the summary and what is pinned not counted:
    the oldest exchanges are left out, whole, and that is told (``session:trimmed``).
    """

    is_enabled: bool = True
    strategy: CompactionStrategy = "tail"
    keep_recent_tokens: Annotated[int, Meta(ge=0)] = 20_000
    summary_tokens: Annotated[int, Meta(ge=1)] = 4_096
    trigger: Annotated[float, Meta(gt=0, le=1)] = 0.8
    reserve_tokens: Annotated[int, Meta(ge=0)] | None = None
    max_messages: Annotated[int, Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)


OnExceed = Literal["fail", "warn", "pause_for_approval"]


class Budget(msgspec.Struct, frozen=True):
    """What a session may spend on models, and what happens before a call that may spend more.

    ``fail`` ends the turn, ``warn`` makes the call and says so once a turn, ``pause_for_approval``
    asks in the inbox. A model whose price nobody knows exceeds every budget.
    Units: micro-cents; 0 is no limit.
    """

    max_cost_microcents: Annotated[int, Meta(ge=0)] = 0
    on_exceed: OnExceed = "pause_for_approval"

    def __post_init__(self) -> None:
        check_fields(self)


class Link(msgspec.Struct, frozen=True):
    """One model of the chain that is called for an answer, with how often it is tried.

    Units: `window_tokens` is its context window, None where unknown.
    """

    model: str
    retry: RetryPolicy = RetryPolicy()
    window_tokens: int | None = None


class PermissionCheck(Protocol):
    """What a policy says about a tool call (`tools.judging` makes them).

    `text` asks the person, or tells the model why not; `grant` is what the answer "always" allows
    for the rest of the session, None where there is no such answer.
    """

    @property
    def decision(self) -> Decision:
        """Whether it runs, a person is asked, it never runs, or `bound` is needed to decide."""
        ...

    @property
    def text(self) -> str: ...

    @property
    def grant(self) -> str | None: ...

    @property
    def error_code(self) -> str | None: ...

    @property
    def action(self) -> str | None:
        """Of what kind the call is, where a person is asked."""
        ...

    @property
    def preview(self) -> str | None:
        """The path, the command or the host that a person is asked about."""
        ...

    @property
    def choices(self) -> tuple[str, ...]:
        """What a person can answer; (): allow, deny, and where there is a `grant` always."""
        ...

    @property
    def free_in(self) -> tuple[str, ...]:
        """The modes of a flow's consent that let the call run without a question."""
        ...

    @property
    def bound(self) -> Bound | None:
        """What an approval is bound to besides the arguments."""
        ...


Judge = Callable[[ToolCallPart, frozenset[str], Bound | None], PermissionCheck]
"""Says whether a call may run, given what people granted in the turn so far, and what an approval
would be bound to: None where that was not read yet. Pure."""


class Runs(msgspec.Struct, frozen=True):
    """The ruling of an agent without a policy."""

    decision: Decision = "run"
    text: str = ""
    grant: str | None = None
    error_code: str | None = None
    action: str | None = None
    preview: str | None = None
    choices: tuple[str, ...] = ()
    free_in: tuple[str, ...] = ()
    bound: Bound | None = None


def runs_all(call: ToolCallPart, granted: frozenset[str], bound: Bound | None) -> PermissionCheck:
    """The judge that lets everything run."""
    return Runs()


class ToolFacts(msgspec.Struct, frozen=True):
    """What the machine must know of a tool: what it does, and what to do about a lost run."""

    effect: ToolEffect
    on_unknown: UnknownPolicy


class TurnConfig(msgspec.Struct, frozen=True):
    """Everything the machine decides by besides the log.

    `model`, tried as `retry` says, is the first of the chain; `fallbacks` follow. `cost` and
    `judge` are functions of their arguments alone. With `ends_when_denied` a tool call that a
    person denies ends the turn; otherwise the model continues without it.
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
    fallbacks: tuple[Link, ...] = ()
    restart_on_cut: bool = False
    budget: Budget = Budget()
    max_output_tokens: int | None = None
    cost: Cost = unpriced
    judge: Judge = runs_all
    question_expires_s: float | None = None
    ends_when_denied: bool = False

    @property
    def chain(self) -> tuple[Link, ...]:
        """The models for an answer, in the order in which they are tried."""
        return (Link(self.model, self.retry, self.window_tokens), *self.fallbacks)

    def link(self, number: int) -> Link:
        """One of the chain; its first where a log tells of a longer chain."""
        chain = self.chain
        return chain[number] if number < len(chain) else chain[0]
