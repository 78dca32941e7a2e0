"""Payloads of durable events that differ from the fields of the entry's body.

`make_event_docs` writes them into ``docs/events.md`` and ``event_types.pyi``; a test compares that
stub with the payloads of `perdure.events.projection`.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class Place(TypedDict):
    """Keys of every payload: the ids of its entry, of the parent, and of the entry it is about."""

    entryId: str
    parentId: NotRequired[str | None]
    about: NotRequired[str]


class AgentApprovalRequested(Place):
    """Payload of ``agent:approval_requested``."""

    nodeId: NotRequired[str]
    callId: NotRequired[str]
    toolId: NotRequired[str]
    action: str
    preview: dict[str, str]


class AgentModelCalled(Place):
    """Payload of ``agent:model_called``."""

    call: int
    model: str
    attempt: int
    attemptNumber: int
    purpose: Literal["answer", "summary"]
    tokensEstimated: NotRequired[int]
    link: int
    nodeId: NotRequired[str]
    reason: NotRequired[Literal["manual", "threshold", "overflow"]]


class AgentModelFinished(Place):
    """Payload of ``agent:model_finished``."""

    stopReason: NotRequired[
        Literal["stop", "length", "tool_calls", "content_filter", "aborted", "error"]
    ]
    answer: NotRequired[str]
    error: NotRequired[str]
    errorCode: NotRequired[str]
    waitS: NotRequired[float]
    model: NotRequired[str]
    isEstimated: bool
    nextLink: NotRequired[int]
    parkedUntil: NotRequired[int]
    isRenewed: bool
    nodeId: NotRequired[str]
    attempt: int
    attemptNumber: int


class AgentToolCall(Place):
    """Payload of ``agent:tool_call``."""

    nodeId: NotRequired[str]
    model: NotRequired[str]
    callId: str
    toolId: str
    toolInput: dict[str, object]
    attemptNumber: int
    effect: Literal["read", "write", "external"]
    calledAt: str


class AgentToolResult(Place):
    """Payload of ``agent:tool_result``."""

    nodeId: NotRequired[str]
    callId: str
    toolId: str
    toolInput: NotRequired[dict[str, object]]
    calledAt: NotRequired[str]
    attemptNumber: int
    success: bool
    isError: bool
    outcome: Literal["ok", "error", "refused", "timeout", "aborted", "unknown"]
    outputSummary: str
    resultId: NotRequired[str]
    errorCode: NotRequired[str]
    durationMs: NotRequired[int]
    childSessionId: NotRequired[str]


class CostUpdated(Place):
    """Payload of ``cost:updated``."""

    nodeId: NotRequired[str]
    model: NotRequired[str]
    attemptNumber: int
    inputTokens: int
    outputTokens: int
    cacheReadTokens: int
    cacheWriteTokens: int
    costMicrocents: NotRequired[int]
    priced: bool
    isEstimated: bool
    cumulativeCostMicrocents: NotRequired[int]
    unpricedCalls: NotRequired[int]


class InboxQuestion(Place):
    """Payload of ``inbox:question``."""

    topic: str
    text: str
    choices: list[str]
    callId: NotRequired[str]
    argsHash: NotRequired[str]
    expiresAt: NotRequired[int]
    grant: NotRequired[str]
    limitMicrocents: NotRequired[int]
    nodeId: NotRequired[str]
    tool: NotRequired[str]
    action: NotRequired[str]
    preview: NotRequired[str]
    freeIn: NotRequired[list[str]]
    arguments: NotRequired[dict[str, object]]
    bound: NotRequired[dict[str, str]]
    diff: NotRequired[str]


class LogEntry(Place):
    """Payload of ``log:entry``."""

    kind: str
    lane: Literal["tree", "side"]
    problem: NotRequired[str]


class SessionBranchSummarized(Place):
    """Payload of ``session:branch_summarized``."""

    summary: str
    fromId: NotRequired[str]
    readFiles: list[str]
    modifiedFiles: list[str]
    tokensUsed: NotRequired[dict[str, int]]


class SessionCancelled(Place):
    """Payload of ``session:cancelled``."""

    stopReason: NotRequired[Literal["cancelled"]]
    tokensUsed: NotRequired[dict[str, object]]
    error: NotRequired[dict[str, object]]


class SessionCompacted(Place):
    """Payload of ``session:compacted``."""

    summary: str
    firstKept: NotRequired[str]
    tokensBefore: NotRequired[int]
    tokensAfter: NotRequired[int]
    reason: str
    readFiles: list[str]
    modifiedFiles: list[str]
    keptMessageCount: NotRequired[int]
    tokensUsed: NotRequired[dict[str, int]]


class SessionCompacting(Place):
    """Payload of ``session:compacting``."""

    reason: str


class SessionExported(Place):
    """Payload of ``session:exported``."""

    workflowPath: str
    format: str
    dialect: NotRequired[str]


class SessionLabeled(Place):
    """Payload of ``session:labeled``."""

    text: str | None


class SessionMoved(Place):
    """Payload of ``session:moved``."""

    cwd: str


class SessionRenamed(Place):
    """Payload of ``session:renamed``."""

    title: str | None


class SessionStarted(Place):
    """Payload of ``session:started``."""

    agentRef: NotRequired[str]
    model: NotRequired[str]
    agent: NotRequired[dict[str, object]]
    context: NotRequired[dict[str, object]]
    systemPrompt: NotRequired[str]


class SessionTrimmed(Place):
    """Payload of ``session:trimmed``."""

    reason: Literal["auto-fallback"]
    droppedMessageCount: int
    keptMessageCount: int
    limit: NotRequired[str]
    limitTokens: NotRequired[int]
    recalledLeftOutCount: NotRequired[int]


class SessionTurnCompleted(Place):
    """Payload of ``session:turn_completed``."""

    stopReason: Literal["stop", "length", "content_filter", "aborted", "error", "interrupted"]
    tokensUsed: NotRequired[dict[str, object]]
    error: NotRequired[dict[str, object]]


class SessionTurnStarted(Place):
    """Payload of ``session:turn_started``."""

    turnNumber: int
    agentRef: str
    base: NotRequired[str]
    onInterrupt: Literal["retry", "continue", "rollback", "ask"]
    contextTokens: NotRequired[int]
