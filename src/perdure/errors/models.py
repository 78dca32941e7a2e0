"""Errors of model calls; the class tells whether a retry can help."""

from __future__ import annotations

from perdure.errors.root import PerdureError


class ModelError(PerdureError):
    """A model call failed; the class of the error shows whether a retry can help."""

    code = "model_error"

    def __init__(self, model: str, reason: str) -> None:
        # Texts of providers may contain half a character, which cannot be stored in a log.
        reason = reason.encode(errors="replace").decode()
        super().__init__(f"{model}: {reason}")
        self.model = model
        self.reason = reason


class ModelUnavailable(ModelError):
    """The call failed (network, overload, 5xx or an interrupted stream); a retry may help."""

    code = "model_unavailable"
    retryable = True


class RateLimited(ModelError):
    """The provider rejected the call because of a rate limit and asks to wait."""

    code = "rate_limited"
    retryable = True

    def __init__(self, model: str, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(model, reason)
        self.retry_after_s = retry_after_s


class ContextOverflow(ModelError):
    """The request is larger than the model's window, or than the agent's working memory.

    `can_compact` is True if a shorter history may make the request small enough.
    """

    code = "context_overflow"

    def __init__(
        self,
        model: str,
        reason: str,
        used_tokens: int | None = None,
        limit_tokens: int | None = None,
        *,
        can_compact: bool = True,
    ) -> None:
        super().__init__(model, reason)
        self.used_tokens = used_tokens
        self.limit_tokens = limit_tokens
        self.can_compact = can_compact


class ModelRefused(ModelError):
    """The provider rejects this request (credentials, bad request, content filter)."""

    code = "model_refused"

    def __init__(self, model: str, reason: str, status: int | None = None) -> None:
        super().__init__(model, reason)
        self.status = status


class CredentialsRefused(ModelRefused):
    """The provider rejects the key, or the account to which the key belongs."""

    code = "credentials_refused"


class MediaMissing(ModelError):
    """Media of the conversation are missing or damaged in the store."""

    code = "media_missing"

    def __init__(self, model: str, handle: str) -> None:
        reason = (
            f"{handle}, which a message of the conversation shows, is missing or damaged; "
            "see Store.verify; to continue without it, branch off before that message"
        )
        super().__init__(model, reason)
        self.handle = handle


class MalformedResponse(ModelError):
    """The provider's answer could not be parsed."""

    code = "malformed_response"
    retryable = True


class SummaryTooShort(ModelError):
    """The model's summary is too short to replace the messages.

    Units: `count` and `minimum` are characters, without white space and lists of files.
    """

    code = "summary_too_short"
    retryable = True

    def __init__(self, model: str, count: int, minimum: int) -> None:
        super().__init__(
            model,
            f"the summary is too short to replace the messages: it has {count} characters without "
            f"white space, and needs at least {minimum}; use another model for summaries",
        )
        self.count = count
        self.minimum = minimum


class SummaryOverBudget(ModelError):
    """A summary needs several requests, and the next request could exceed the remaining budget."""

    code = "budget_exceeded"

    def __init__(self, model: str, used: str, left: str) -> None:
        super().__init__(
            model,
            f"the summary has cost {used}, and its next part could cost more than the rest of the "
            f"{left} that the budget allows; raise max_cost_microcents",
        )


class EmbedderUnavailable(ModelError):
    """An embedder returned no vectors; recall works without vectors."""

    code = "embedder_unavailable"
    retryable = True
