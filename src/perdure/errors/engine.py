"""Errors of the engine, of formats and of the configuration."""

from __future__ import annotations

from typing import Literal, Protocol, cast, get_args

from perdure.errors.root import PerdureError

EndFailure = Literal[
    "turn_limit",
    "tool_round_limit",
    "tool_failed",
    "context_overflow",
    "provider_unavailable",
    "provider_rate_limit",
    "provider_refused",
    "provider_auth",
    "budget_exceeded",
    "question_expired",
    "empty_answer",
    "invalid_output",
    "content_filter",
    "internal",
]
"""Reasons why a turn failed after it had begun."""

TurnFailure = Literal[
    EndFailure,
    "summary_too_short",
    "work_failed",
    "workers_died",
    "secret_pasted",
    "limit_exceeded",
    "wrong_argument",
    "config_error",
    "agent_not_found",
    "mcp_unavailable",
    "request_refused",
]
"""Reasons why a turn or a requested summary failed.

The values from ``work_failed`` on are the reasons why no turn began for a message that was
scheduled or sent to workers (docs/guides/turns.md).
"""


def failure_of(code: str | None, other: TurnFailure) -> TurnFailure:
    """Return `code` if it is a failure code; otherwise return `other`."""
    return cast("TurnFailure", code) if code in get_args(TurnFailure) else other


class EngineError(PerdureError):
    """The turn engine cannot do the operation in the session's current state."""

    code = "engine_error"


class InvalidTransition(EngineError):
    """The requested action is not possible in the current state of the turn."""

    code = "invalid_transition"

    def __init__(self, phase: str, cause: str, *, is_of_runtime: bool = False) -> None:
        told = f"{cause} is not possible while the turn is {phase}"
        if is_of_runtime:
            told = f"{cause} is not possible: the Runtime was closed; use another one"
        elif phase == "closed":
            told = f"{cause} is not possible: this chat was closed; Runtime.resume opens it again"
        elif (phase, cause) == ("running", "send"):
            told += "; steer adds a message to it, follow_up one that it answers later"
        super().__init__(told)
        self.phase = phase
        self.cause = cause


class TurnFailed(EngineError):
    """The turn ended without an answer; the log has the reason and the session can continue.

    If an error of the model's client, of a hook or of perdure ended the turn in this process,
    ``__cause__`` is this error.
    """

    code = "turn_failed"

    def __init__(self, reason: str, failure: TurnFailure) -> None:
        super().__init__(f"the turn failed ({failure}): {reason}")
        self.reason = reason
        self.failure: TurnFailure = failure


class RequestAnswered(EngineError):
    """Another turn has answered the request, so no new turn begins for the request."""

    code = "request_answered"

    def __init__(self, stream: str, request: int) -> None:
        super().__init__(f"a turn has answered request {request} of session {stream!r} already")
        self.stream = stream
        self.request = request


class TurnSuspended(EngineError):
    """The process stopped running the turn, which stays open in the log."""

    code = "turn_suspended"

    def __init__(self) -> None:
        super().__init__("the turn was suspended and stays open; Runtime.resume continues it")


class QuestionText(Protocol):
    """The fields of a question that the error `Waiting` shows; see `perdure.types.Question`."""

    @property
    def text(self) -> str:
        """The text of the question."""
        ...

    @property
    def choices(self) -> tuple[str, ...]:
        """The possible answers; empty for free text."""
        ...

    @property
    def tool(self) -> str | None:
        """The name of the tool that asks, or None."""
        ...

    @property
    def arguments(self) -> dict[str, object] | None:
        """The arguments of the call to approve, with secrets masked."""
        ...

    @property
    def diff(self) -> str | None:
        """The change to approve, if the call changes a file."""
        ...


class AskedQuestion(Protocol):
    """An open question, with the fields that the error `Waiting` needs."""

    @property
    def id(self) -> str:
        """The id to pass to `Store.answer`."""
        ...

    @property
    def question(self) -> QuestionText:
        """The question itself."""
        ...


class Waiting(EngineError):
    """The turn waits for a person. The turn stays open; await the turn again to wait for its end.

    `question` is the oldest `OpenQuestion` that the turn waits for; `questions` are all open
    questions that the turn waits for.
    """

    code = "turn_waiting"

    def __init__(self, question: AskedQuestion, *others: AskedQuestion) -> None:
        super().__init__(
            f"the turn waits for an answer to {question.id!r}: {question.question.text}; answer it "
            "with Store.answer, then await the turn again"
        )
        self.question = question
        self.questions = (question, *others)


class QueueFull(EngineError):
    """The namespace has too many turns that wait for workers; nothing was written.

    If `has_worker` is False, the message says that no worker runs. Units: `retry_after_s` is in
    seconds.
    """

    code = "queue_full"
    retryable = True

    def __init__(
        self,
        namespace: str,
        waiting: int,
        most: int,
        retry_after_s: int,
        *,
        has_worker: bool = True,
    ) -> None:
        advice = "" if has_worker else "no worker runs, start a worker; "
        super().__init__(
            f"{waiting} turns of namespace {namespace!r} wait for workers, and {most} may: "
            f"{advice}try again in {retry_after_s} s (nothing was written)"
        )
        self.namespace = namespace
        self.waiting = waiting
        self.most = most
        self.retry_after_s = retry_after_s


class HookBlocked(EngineError):
    """A hook of the calling program blocked the operation."""

    code = "hook_blocked"

    def __init__(self, hook: str, reason: str) -> None:
        super().__init__(f"a hook ({hook}) refused it: {reason}")
        self.hook = hook
        self.reason = reason


class FormatError(PerdureError):
    """A source cannot be imported, or a session cannot be exported in a format."""

    code = "format_error"

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class UnknownFormat(FormatError):
    """A file is not a session of a known program."""

    code = "unknown_format"


class ConfigError(PerdureError):
    """The configuration or the arguments contradict each other or name something unknown.

    If the error is about a setting, `argument` is the name of the setting. `item` is the invalid
    item of the setting, or the key of that item.
    """

    code = "config_error"
    argument: str | None = None
    item: str | None = None

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(message)
        if argument is not None:
            self.argument = argument


class AgentNotFound(ConfigError):
    """No agent has this id. `known` are the valid ids."""

    code = "agent_not_found"

    def __init__(self, agent: str, known: tuple[str, ...], where: str = "") -> None:
        names = ", ".join(known) or "none; define one"
        super().__init__(f"there is no agent {agent!r}{where}; there are: {names}")
        self.agent = agent
        self.known = known


class PathExists(PerdureError):
    """A file with this name exists and was not replaced."""

    code = "path_exists"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} exists already: choose another name, or pass replace=True")
        self.path = path
