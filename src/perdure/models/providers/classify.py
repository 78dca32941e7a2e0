"""Convert every exception that a call of a provider can raise to a `ModelError`.

The HTTP status determines the class of the error; if there is no status, the provider's text
determines it. An unknown failure counts as a malformed answer. No error text contains a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import cast

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UserError,
)

from perdure.errors import (
    ContextOverflow,
    CredentialsRefused,
    MalformedResponse,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from perdure.models.providers.bounded_http import RejectedAnswer

OVERFLOW_PHRASES = tuple(
    re.compile(phrase, re.IGNORECASE)
    for phrase in (
        r"context_length_exceeded",  # OpenAI and many compatible servers, as a code
        r"model_context_window_exceeded",  # z.ai
        r"request_too_large",  # Anthropic, over its limit of bytes
        r"exceeds? the (?:model'?s )?(?:maximum )?context (?:window|length|size)",  # OpenAI
        r"maximum context length",  # vLLM, OpenRouter, Mistral, DeepSeek
        r"prompt is too long",  # Anthropic
        r"prompt (?:is )?too (?:long|large)\b.{0,200}(?:context|token)",  # Ollama
        r"input is too long for",  # Bedrock
        r"input token count.{0,200}exceeds",  # Google
        r"maximum prompt length is \d+",  # xAI
        r"reduce the length of (?:the|your) (?:messages|prompt|input)",  # Groq
        r"prompt token count.{0,200}exceeds the limit",  # GitHub Copilot
        r"exceeds the available context size",  # llama.cpp
        r"greater than the context length",  # LM Studio
        r"context window exceeds limit",  # MiniMax
        r"exceeded model token limit",  # Moonshot
        r"too many (?:input )?tokens",  # Cohere and others
        r"(?:input|prompt) tokens? (?:count )?(?:exceeds?|exceeded)",  # Bedrock, Together
        r"range of input length should be",  # Alibaba
    )
)
"""Phrases by which providers report that a request exceeds the model's window."""

_COUNT = r"(?<![\d,])(\d[\d,]{0,20})"
"""Matches a number of tokens. Its length is bounded, so that matching takes linear time."""

_USED_AND_LIMIT = tuple(
    # Each with the order of the two numbers in the sentence.
    (re.compile(sentence, re.IGNORECASE), order)
    for sentence, order in (
        (rf"(?:maximum|limit)\D{{0,40}}?{_COUNT} tokens?\D.{{0,200}}?{_COUNT} tokens", "lu"),
        (rf"{_COUNT} tokens? ?> ?{_COUNT}", "ul"),
        (rf"{_COUNT}\D{{0,40}}exceeds?\D{{0,60}}?{_COUNT}", "ul"),
    )
)
_BAD_REQUEST = re.compile(r"invalid_|unsupported_|image_|empty_image")
"""Prefixes of the error codes that report an invalid request in a stream."""

_CREDENTIALS = (401, 402, 403)
"""HTTP statuses that concern the key or its account, not the request."""

_TRY_AGAIN = re.compile(r"try again in (\d+(?:\.\d+)?)\s*(ms|s|m)\b", re.IGNORECASE)
_DECIMAL = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_TRANSPORTS = ("httpx", "httpx2", "httpcore2", "anyio")
_NO_END = "without a `finish_reason`"
_SAID_CHARS = 4_000
"""Maximum characters of a provider's text that are examined: a proxy may return a whole page."""


def model_error(
    error: Exception,
    model: str,
    secrets: Collection[str] = (),
    *,
    address: str = "the provider",
    has_begun: bool = True,
    silence: str | None = None,
) -> ModelError:
    """Convert `error`, raised while `model` was called at `address`, to a `ModelError`.

    `has_begun` is True if part of an answer had arrived. If the stream had no end, the error says
    that the answer was interrupted (`has_begun` is True) or that no answer arrived (`has_begun` is
    False). `silence` is the message for a read that timed out. `secrets` are removed from all
    texts.
    """
    if isinstance(error, ModelError):
        return error
    if isinstance(error, ModelHTTPError):
        return _of_status(error, model, secrets)
    for each in _chain(error):
        if isinstance(each, RejectedAnswer):
            return MalformedResponse(model, redact_text(str(each), secrets))
    is_transport = type(error).__module__.partition(".")[0] in _TRANSPORTS
    if is_transport or isinstance(error, ModelConnectionError | ModelRequestTimeout):
        return ModelUnavailable(
            model, redact_text(_connection_text(error, address, silence), secrets)
        )
    if _is_unended(error, has_begun=has_begun):
        return unfinished_stream_error(model, has_begun=has_begun)
    if isinstance(error, ModelAPIError):
        return _of_api_error(error, model, secrets)
    if isinstance(error, UserError):
        return ModelRefused(model, redact_text(f"the request cannot be sent: {error}", secrets))
    what = f"its answer could not be read ({type(error).__name__}: {error})"
    return MalformedResponse(model, redact_text(what, secrets))


def unfinished_stream_error(model: str, *, has_begun: bool) -> ModelError:
    """Return the error for a stream without an end: an interrupted answer, or no answer at all."""
    if has_begun:
        return ModelUnavailable(model, "the answer broke off before its end")
    return MalformedResponse(model, "what it sent is no stream of chunks; is the URL right?")


def is_overflow(text: str) -> bool:
    """Whether `text` says that the request is larger than the model's window."""
    return any(phrase.search(text) for phrase in OVERFLOW_PHRASES)


def used_and_limit(text: str) -> tuple[int | None, int | None]:
    """Return the used and the allowed tokens that `text` states; None for a missing number."""
    for pattern, order in _USED_AND_LIMIT:
        found = pattern.search(text)
        if found:
            first, second = (int(number.replace(",", "")) for number in found.groups())
            return (first, second) if order == "ul" else (second, first)
    return None, None


def _is_unended(error: Exception, *, has_begun: bool) -> bool:
    """Return whether `error` means that the stream had no end or was empty."""
    if isinstance(error, UnexpectedModelBehavior):
        return not has_begun
    return isinstance(error, ModelAPIError) and _NO_END in str(error)


def _of_status(error: ModelHTTPError, model: str, secrets: Collection[str]) -> ModelError:
    status, said = error.status_code, _provider_message(error)
    reason = redact_text(f"HTTP {status}: {said or 'no message'}", secrets)
    if status in _CREDENTIALS:
        return CredentialsRefused(model, reason, status)
    if isinstance(error, ModelQuotaExceededError):
        # Some providers report an empty account as 429. Waiting does not help.
        return ModelRefused(model, reason, status)
    if status == 429:
        return RateLimited(model, reason, _retry_after_s(error, said))
    if _says_overflow(error, said):
        return _overflow(model, reason, said)
    if status == 408 or status >= 500:
        return ModelUnavailable(model, reason)
    return ModelRefused(model, reason, status)


def _of_api_error(error: ModelAPIError, model: str, secrets: Collection[str]) -> ModelError:
    """Return the error for an API error that has no HTTP status.

    An API error without an HTTP status arrives within the stream, or means that the body of the
    answer is not JSON.
    """
    said = _provider_message(error) or str(error)
    reason = redact_text(said, secrets)
    if isinstance(error.__cause__, ValueError):  # of a decoder: each library has its own
        return MalformedResponse(model, redact_text(f"its answer is not JSON ({said})", secrets))
    if isinstance(error, ModelRateLimitError):
        return RateLimited(model, reason, _retry_after_s(error, said))
    if _says_overflow(error, said):
        return _overflow(model, reason, said)
    is_rejected = isinstance(error, ModelQuotaExceededError | ModelRequestRejectedError)
    is_bad = _BAD_REQUEST.match(error.provider_error_code or error.provider_error_type or "")
    if is_rejected or is_bad:
        return ModelRefused(model, reason)
    return ModelUnavailable(model, reason)


def _says_overflow(error: ModelAPIError, said: str) -> bool:
    if isinstance(error, ModelContextWindowExceededError) or is_overflow(said):
        return True
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    # Some servers drop a too large request without a message.
    return status == 413 or (status == 400 and not said)


def _overflow(model: str, reason: str, said: str) -> ContextOverflow:
    used, limit = used_and_limit(said)
    return ContextOverflow(model, reason, used, limit)


def _provider_message(error: ModelAPIError) -> str:
    """Return the provider's own message from the body of its answer."""
    body = error.body
    if isinstance(body, dict):
        fields = cast("dict[str, object]", body)
        nested = fields.get("error")
        if isinstance(nested, dict):
            fields = cast("dict[str, object]", nested)
        named = (fields.get(key) for key in ("message", "detail", "error", "code", "type"))
        words = [value for value in named if isinstance(value, str)]
        body = ": ".join(dict.fromkeys(words)) or json.dumps(fields, default=str)
    return str(body or "")[:_SAID_CHARS]


def _retry_after_s(error: ModelAPIError, said: str) -> float | None:
    if error.retry_after is not None:
        return error.retry_after
    headers = error.headers if isinstance(error, ModelHTTPError) else None
    told = _DECIMAL.fullmatch((headers or {}).get("retry-after", "").strip())
    if told is not None:  # not in the standard, but some servers send it
        return float(told[0])
    found = _TRY_AGAIN.search(said)
    return float(found[1]) * _SECONDS[found[2].lower()] if found else None


def _connection_text(error: Exception, address: str, silence: str | None) -> str:
    """Return the original message of a connection error, which libraries hide in their errors."""
    if silence is not None and any(type(each).__name__ == "ReadTimeout" for each in _chain(error)):
        return silence
    if isinstance(error, ModelTimeoutError | ModelRequestTimeout):
        return f"{address} did not answer in time"
    *_, root = _chain(error)
    words = str(root) or "without a word"
    name = type(root).__name__
    advice = "; is the server running, and is this its address?" if "Connect" in name else ""
    return f"no connection to {address}, or it broke ({name}: {words}){advice}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield `error`, its cause, the cause of its cause, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


REDACTED = "[redacted]"
MAX_CHARS = 400

_KEY_SHAPES = (
    # Provider keys, complete or partly masked as in the providers' own error messages.
    re.compile(r"\b(?:sk|pk|rk|gsk|xai|ghp|hf)[-_][A-Za-z0-9_*.-]{6,}"),
    re.compile(r"\bAIza[A-Za-z0-9_*-]{8,}"),
    re.compile(r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9+/=._~*-]{6,}"),
    re.compile(r"(?i)(?<=[?&])(?:api[-_]?key|key|token|access_token)=[^&\s\"']+"),
    re.compile(r"(?i)(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(
        r"(?i)\b(?:api[-_ ]?key|authorization|secret|password)\"?'?\s*[:=]\s*\"?'?[^\s\"',}]+"
    ),
)


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """Return `text` as one line of at most `MAX_CHARS`, without `secrets` or probable keys."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, REDACTED)
    for shape in _KEY_SHAPES:
        text = shape.sub(REDACTED, text)
    text = " ".join(text.split())
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"
