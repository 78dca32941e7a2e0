"""Configuration of a turn: models, tools, limits, budget.

The configuration is constant during the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from perdure.bounds.short_repr import ShortRepr
from perdure.errors.usage import WrongArgument
from perdure.models.embedders.protocol import check_embedder
from perdure.models.prices import Cost, unpriced
from perdure.models.retry import RetryPolicy
from perdure.session.argument_checks import NamedParameters, check_fields
from perdure.session.ledger import InterruptPolicy, ToolEffect, UnknownPolicy
from perdure.session.messages import ToolCallPart
from perdure.tools.approval import Bound, Judge, Ruling

QueueModes = Literal["one-at-a-time", "all"]

MAX_TURNS = 50
MAX_TOOL_ROUNDS = 16
MAX_CORRECTABLE_ROUNDS = 3
OUTPUT_TOKENS = 4_096
"""Expected maximum tokens of an answer if its agent sets no limit."""

PARK_MS = 30_000
"""Minimum pause of a provider after the error "too many requests"."""


class SilenceLimits(ShortRepr, frozen=True):
    """The longest time for which a model's provider is allowed to send nothing; see `ModelRequest`.

    Units: the limits are seconds.
    """

    first_byte_timeout_s: float | None = None
    stream_idle_timeout_s: float | None = None


class Limits(ShortRepr, frozen=True, metaclass=NamedParameters):
    """Limits that end a turn with an error. For each limit, zero or less means the default.

    `max_turns` limits the number of turns in which the session's own agent called a model.
    `max_tool_rounds` limits the answers of one turn that call tools. `max_correctable_rounds`
    limits the answers with faulty tool calls that the model can correct (an unknown tool, invalid
    arguments).
    """

    max_turns: int = MAX_TURNS
    max_tool_rounds: int = MAX_TOOL_ROUNDS
    max_correctable_rounds: int = MAX_CORRECTABLE_ROUNDS

    def __post_init__(self) -> None:
        check_fields(self)
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            if getattr(self, name) <= 0:
                msgspec.structs.force_setattr(self, name, default)

    def over(self, below: Limits) -> Limits:
        """Return this object's limits, with each default value replaced by the limit of `below`."""
        default = Limits()
        chosen = {
            name: mine
            for name in self.__struct_fields__
            if (mine := getattr(self, name)) != getattr(default, name)
        }
        return msgspec.structs.replace(below, **chosen)


CompactionStrategy = Literal["tail", "node"]


class CompactionSettings(ShortRepr, frozen=True, metaclass=NamedParameters):
    """Settings for the compaction of a context: when it starts, and how much it summarizes.

    `strategy` selects the entries to summarize. The strategy ``tail`` selects all entries that are
    older than the retained tail. The strategy ``node`` selects all entries since a flow entered the
    current node, without a retained tail.
    Units: sizes are tokens. The newest `keep_recent_tokens` remain unchanged; `summary_tokens` is
    the maximum size of a summary. With `reserve_tokens`, compaction starts when only this many
    tokens of the window are left; otherwise, it starts when the share `trigger` of the window is
    used. `max_messages` limits the messages sent to a model, not counting the summary and pinned
    entries. If a request would have more than `max_messages` messages, the oldest exchanges are
    omitted as a whole, and the event ``session:trimmed`` reports the omission.
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


class MemoryConfig(ShortRepr, frozen=True, metaclass=NamedParameters):
    """Settings for what the turns of a session remember of earlier sessions.

    Each turn recalls up to `semantic_top_k` facts and `episodic_top_k` texts of earlier sessions of
    the same subject. `max_working_tokens` limits the size of a request, which consists of
    instructions, tools, recalled texts (at most a quarter), history (its newest exchanges) and the
    new message. If `max_working_tokens` is None, the model's window is the limit. `extractor` finds
    facts in each session that ended. The value of `extractor` is "model" (the agent's own model),
    or an object or async function of the program (`perdure.types.Extractor`). If the extractor is
    an object or function, stored settings contain "program" instead of it. `knowledge` are folders
    of Markdown and text files; turns recall their passages. A relative folder is resolved in the
    session's working folder. If `embedder` is given, turns also recall texts by meaning. The value
    is ``static:FOLDER``, ``minilm:FOLDER``, PROVIDER:MODEL, or an object of the program
    (`perdure.types.Embedder`). If the embedder is an object, stored settings contain "program"
    instead of it.
    """

    max_working_tokens: Annotated[int, Meta(ge=1)] | None = None
    semantic_top_k: Annotated[int, Meta(ge=0, le=100)] = 5
    episodic_top_k: Annotated[int, Meta(ge=0, le=100)] = 5
    extractor: Any = None
    knowledge: tuple[str, ...] = ()
    embedder: Any = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.embedder not in (None, "program"):
            check_embedder(self.embedder)
        found = self.extractor
        if found in (None, *STORED_EXTRACTORS):
            return
        if not callable(getattr(found, "extract", found)):
            raise WrongArgument(
                f'extractor {found!r:.60} is no extractor: give "model", an object with the method '
                "`extract`, or an async function",
                argument="extractor",
            )

    def stored(self) -> MemoryConfig:
        """Return the settings in the form in which a snapshot stores them."""
        stored = self
        if self.extractor not in (None, *STORED_EXTRACTORS):
            stored = msgspec.structs.replace(stored, extractor="program")
        if not isinstance(self.embedder, str | None):
            stored = msgspec.structs.replace(stored, embedder="program")
        return stored


STORED_EXTRACTORS = ("model", "program")
"""Names of extractors in a stored snapshot."""


class WorkingLimit(msgspec.Struct, frozen=True):
    """The token limits of a request, and of its history without instructions, tools and memory.

    Units: the sizes are tokens.
    """

    request: int
    history: int

    @property
    def is_compacted(self) -> bool:
        """Whether the history can be compacted; False if a summary would fill most of `history`."""
        return self.history >= _LEAST_COMPACTED


_LEAST_COMPACTED = 1_000

OnExceed = Literal["fail", "warn", "pause_for_approval"]


class Budget(ShortRepr, frozen=True, metaclass=NamedParameters):
    """The limit of a session's spending on models, and the reaction to a call that could exceed it.

    ``fail`` ends the turn, ``warn`` makes the call and warns once per turn, ``pause_for_approval``
    asks a person in the inbox. A model without a known price counts as over budget.
    Units: the amount is in micro-cents; 0 means no limit.
    """

    max_cost_microcents: Annotated[int, Meta(ge=0)] = 0
    on_exceed: OnExceed = "pause_for_approval"

    def __post_init__(self) -> None:
        check_fields(self)


class Link(msgspec.Struct, frozen=True):
    """One model of the fallback chain, with its retry policy.

    Units: `window_tokens` is the context window of the model, None if unknown.
    """

    model: str
    retry: RetryPolicy = RetryPolicy()
    window_tokens: int | None = None


def runs_all(call: ToolCallPart, granted: frozenset[str], bound: Bound | None) -> Ruling:
    """Allow every call."""
    return Ruling("run")


class ToolFacts(msgspec.Struct, frozen=True):
    """What the machine must know about a tool: its effects, and the policy for a lost run.

    `is_async` is True if the tool is a coroutine function, so its run occupies no thread.
    """

    effect: ToolEffect
    on_unknown: UnknownPolicy
    is_async: bool


OutputProblem = Callable[[str], str | None]
"""Returns what is wrong with the text of an answer; None if it is valid. Pure."""


class TurnConfig(msgspec.Struct, frozen=True):
    """All inputs of the turn machine's decisions, except the log.

    `model` is the first model of the chain, with the retry policy `retry`; the models of
    `fallbacks` follow. `cost` and `judge` are pure functions of their arguments. With
    `ends_when_denied`, a denied tool call ends the turn; otherwise the model continues without the
    call.
    Units: `window_tokens` is the model's context window in tokens. If `window_tokens` is None
    (unknown), the context is compacted only after the provider rejects a request as too large.
    `working` contains the limits for the size of the turn's requests; they come from the agent's
    `MemoryConfig`. `output_problem` returns what is wrong with the text of an answer, or None.
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
    working: WorkingLimit | None = None
    output_problem: OutputProblem | None = None

    @property
    def chain(self) -> tuple[Link, ...]:
        """Return the models for an answer, in the order in which they are tried."""
        return (Link(self.model, self.retry, self.window_tokens), *self.fallbacks)

    def link(self, number: int) -> Link:
        """Return the link at the index `number`.

        If the chain is too short for `number`, return the first link.
        """
        chain = self.chain
        return chain[number] if number < len(chain) else chain[0]
