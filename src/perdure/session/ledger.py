"""Bodies of the side entries that a turn writes: intents before effects, outcomes after effects.

Rule: an effect happens only after its intent is in the log; the outcome of the effect is a later
entry about that intent. If an intent has no outcome, it is unknown whether the effect happened.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.errors.engine import EndFailure
from perdure.session.ids import EntryId, StreamId
from perdure.session.messages import Message, StopReason, Usage
from perdure.session.notes import SideBody

ToolEffect = Literal["read", "write", "external"]
UnknownPolicy = Literal["retry", "ask", "never"]
InterruptPolicy = Literal["retry", "continue", "rollback", "ask"]
History = Literal["full", "text_only"]
"""What a request contains of earlier turns; ``text_only`` omits calls, results and thinking."""
Priority = Literal["low", "normal", "high"]
"""Turns with a higher priority begin before other turns that also wait for workers."""
CallPurpose = Literal["answer", "summary"]
CompactingReason = Literal["manual", "threshold", "overflow"]
ToolOutcome = Literal["ok", "error", "refused", "timeout", "aborted", "unknown"]
TurnEnd = Literal[
    "stop", "length", "content_filter", "aborted", "cancelled", "error", "interrupted"
]
Failure = Literal[EndFailure, "not_approved", "cancelled"]


class Spending(ShortRepr, frozen=True, omit_defaults=True):
    """Spending of a session: the sum over the ``model_finished`` entries of its own log.

    The total includes the spending of the sessions that the session's tool calls opened
    (`ToolFinished.delegated`). Units: micro-cents. `unpriced_calls` counts the calls that used
    tokens with an unknown price.
    """

    cost_microcents: int = 0
    unpriced_calls: int = 0

    def plus(self, usage: Usage | None) -> Spending:
        """Return the spending after one more call; a value of None adds nothing."""
        if usage is None:
            return self
        if usage.cost_microcents is None:
            return Spending(self.cost_microcents, self.unpriced_calls + 1)
        return Spending(self.cost_microcents + usage.cost_microcents, self.unpriced_calls)

    def __add__(self, other: Spending) -> Spending:
        """Return the sum of both spendings."""
        return Spending(
            self.cost_microcents + other.cost_microcents,
            self.unpriced_calls + other.unpriced_calls,
        )

    def and_below(self, delegated: Delegated | None) -> Spending:
        """Return this spending plus the spending of a session that a call opened."""
        return self if delegated is None else self + delegated.spent


class Delegated(ShortRepr, frozen=True):
    """The session that a tool call opened for another agent, and its spending."""

    session: StreamId
    spent: Spending = Spending()


class TurnStarted(SideBody, frozen=True, omit_defaults=True):
    """A turn starts; the user's message, if any, follows in the same commit.

    If a worker runs the turn, `about` refers to the ``turn_requested`` that the turn answers.

    `number` counts the turns under the session's own agent, from 1. `base` is the leaf at the
    turn's start, to which `rollback` returns. `context_tokens` estimates the context before the
    turn. The fields from `ran` on are carried over from turn to turn, so that a turn can be read
    without earlier turns. The turn limit uses `ran`, the number of turns that called a model; `ran`
    is None in logs of earlier versions. `spent` is the session's spending. `granted_microcents` is
    the cost limit that a person granted. `parked` maps a provider to the time (Unix milliseconds)
    until which the provider is not called. `grants` are the permissions of tools to act without
    approval.
    """

    kind: ClassVar[str] = "turn_started"

    number: int
    agent: str
    base: EntryId | None = None
    on_interrupt: InterruptPolicy = "retry"
    context_tokens: int | None = None
    ran: int | None = None
    spent: Spending | None = None
    granted_microcents: int | None = None
    parked: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    grants: tuple[str, ...] = ()


class TurnRequested(SideBody, frozen=True, omit_defaults=True):
    """A program requests a turn with `message`; a worker runs the turn.

    A ``turn_started`` entry about this request begins the turn. A ``turn_refused`` entry about this
    request states why no turn can begin. The turn does not begin before `due_at` (Unix
    milliseconds). Requests of one session are answered in order. If requests of several sessions
    wait, the session of the request with the highest `priority` is first.
    """

    kind: ClassVar[str] = "turn_requested"
    event: ClassVar[str] = "session:turn_requested"

    message: Message
    due_at: int | None = None
    priority: Priority = "normal"


class TurnRefused(SideBody, frozen=True):
    """The ``turn_requested`` to which `about` refers was refused: no turn can answer it.

    `code` is the error code.
    """

    kind: ClassVar[str] = "turn_refused"
    event: ClassVar[str] = "session:turn_refused"

    code: str
    error: str


class TurnStopRequested(SideBody, frozen=True, omit_defaults=True):
    """Another process asks for the end of a turn.

    `about` refers to the ``turn_requested`` of the turn, or to the ``turn_started`` of the open
    turn. `is_cancel` is True if the turn is stopped because its chat is being closed.
    """

    kind: ClassVar[str] = "turn_stop_requested"
    event: ClassVar[str] = "session:turn_stop_requested"

    is_cancel: bool = False


class ModelCalled(SideBody, frozen=True, omit_defaults=True):
    """A model call starts: attempt `attempt` (from 1) of the turn's call `call`.

    `link` is the model's position in the agent's chain of models: 0 is the agent's own model, and
    the fallbacks follow. `agent` is the calling agent. If the call writes the summary of a
    compaction, `reason` is the reason for the compaction.
    """

    kind: ClassVar[str] = "model_called"

    call: int
    model: str
    attempt: int = 1
    purpose: CallPurpose = "answer"
    tokens_estimated: int | None = None
    link: int = 0
    agent: str | None = None
    reason: CompactingReason | None = None


class ModelFinished(SideBody, frozen=True, omit_defaults=True):
    """The outcome of the model call to which `about` refers.

    `answer` is the id of the message in this commit that contains the answer. If `stop_reason` is
    None and `error` is set, no usable answer arrived. `wait_s` is the delay before the next
    attempt. `next_link` is the position of the next model in the agent's chain of models, if the
    model changes. `usage` is the token count of the provider. If the answer was interrupted before
    the count arrived, `usage` is an estimate (`is_estimated`). `spent` is the session's spending
    including this call. `parked_until` is the time (Unix milliseconds) before which the model's
    provider is not called. `is_renewed` means that the provider's key was renewed after the
    provider had rejected it. `agent` and `attempt` are copied from the ``model_called``.
    """

    kind: ClassVar[str] = "model_finished"

    stop_reason: StopReason | None = None
    usage: Usage | None = None
    answer: EntryId | None = None
    error: str | None = None
    error_code: str | None = None
    wait_s: float | None = None
    model: str | None = None
    is_estimated: bool = False
    spent: Spending | None = None
    next_link: int | None = None
    parked_until: int | None = None
    is_renewed: bool = False
    agent: str | None = None
    attempt: int = 1


class BudgetNoted(SideBody, frozen=True, omit_defaults=True):
    """A model call was made, although it could exceed the session's budget (``on_exceed: warn``).

    The entry's `about` refers to the ``turn_started`` of the turn. Units: micro-cents.
    `estimate_microcents` is the highest expected cost of the call, or None if the price of `model`
    is unknown.
    """

    kind: ClassVar[str] = "budget_noted"
    event: ClassVar[str] = "cost:budget_warning"

    model: str
    spent_microcents: int
    limit_microcents: int
    estimate_microcents: int | None = None


class OutputRefused(SideBody, frozen=True, omit_defaults=True):
    """An answer does not match the answer type of the agent; the model must correct the answer.

    `about` refers to the answer. `problem` describes what is wrong with the answer.
    """

    kind: ClassVar[str] = "output_refused"
    event: ClassVar[str] = "agent:output_refused"

    problem: str


class ToolStarted(SideBody, frozen=True, omit_defaults=True):
    """A tool call starts. `idempotency_key` is the same on every attempt of the same call.

    `agent` and `model` are the agent and the model that requested the call. `approved` is a hash of
    the arguments, and of the facts on which the approval depends (`Question.bound`). The tool runs
    only if the approved arguments and facts are unchanged. `contents` are the handles in `input`;
    the tool receives base64 instead of these handles.
    """

    kind: ClassVar[str] = "tool_started"

    id: str
    tool: str
    input: dict[str, object]
    called_at: int
    effect: ToolEffect
    on_unknown: UnknownPolicy
    idempotency_key: str
    attempt: int = 1
    agent: str | None = None
    model: str | None = None
    approved: str | None = None
    contents: tuple[str, ...] = ()


class ToolFinished(SideBody, frozen=True, omit_defaults=True):
    """The outcome of the tool call to which `about` refers.

    `result` is the id of the message in this commit that contains the output. A ``tool_finished``
    entry is also written for calls that never ran (refused, aborted) and for calls whose outcome is
    unknown. A call that never ran has no ``tool_started`` entry, so its ``tool_finished`` contains
    `input` and `called_at`; its `duration_ms` is 0. `whole` is the handle (``media://...``) of the
    untruncated output. `delegated` is the session that the call opened for another agent. `summary`
    is the start of the output.
    """

    kind: ClassVar[str] = "tool_finished"

    id: str
    tool: str
    outcome: ToolOutcome
    succeeded: bool
    result: EntryId | None = None
    error: str | None = None
    error_code: str | None = None
    duration_ms: int | None = None
    ends_session: bool = False
    whole: str | None = None
    delegated: Delegated | None = None
    agent: str | None = None
    attempt: int = 1
    summary: str | None = None
    input: dict[str, object] | None = None
    called_at: int | None = None


class TurnFinished(SideBody, frozen=True, omit_defaults=True):
    """The turn ended.

    `about` refers to the turn's ``turn_started`` entry. `usage` is the sum over all calls of the
    turn. `model` is the model that gave the last answer of the turn.
    """

    kind: ClassVar[str] = "turn_finished"

    end: TurnEnd
    usage: Usage | None = None
    failure: Failure | None = None
    error: str | None = None
    model: str | None = None


class Interrupted(SideBody, frozen=True, omit_defaults=True):
    """The received part of an interrupted answer.

    The entry is about the ``model_called`` entry of the call. A crash, an abort or the provider
    interrupts an answer. The context never contains an ``interrupted`` entry. Under
    ``on_interrupt: continue``, a message repeats the text of the partial answer. User interfaces
    show the partial answer.
    """

    kind: ClassVar[str] = "interrupted"
    event: ClassVar[str] = "agent:interrupted"

    partial: Message


class LateOutcome(SideBody, frozen=True, omit_defaults=True):
    """An outcome that arrived after its process lost the lease; it is stored but has no effect."""

    kind: ClassVar[str] = "late_outcome"
    event: ClassVar[str] = "agent:late_outcome"

    epoch: int
    outcome: msgspec.Raw


TrimLimit = Literal["max_working_tokens", "window", "max_messages"]
"""The limit to which a context was trimmed."""


class Trimmed(SideBody, frozen=True, omit_defaults=True):
    """The request of a model call omitted the oldest messages of the branch, or recalled texts.

    `about` refers to the model call. `dropped` is the number of omitted messages. `limit` is the
    limit that caused the omission of the messages. If `limit` counts tokens, `tokens` is the
    maximum number of tokens. `recalled` counts the recalled texts that were left out, because they
    exceeded their share of the request.
    """

    kind: ClassVar[str] = "trimmed"

    dropped: int
    kept: int
    limit: TrimLimit | None = None
    tokens: int | None = None
    recalled: int = 0
