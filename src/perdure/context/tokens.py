"""Token counts of messages: usage that the provider reported, and estimates for other messages.

An estimate is UTF-8 bytes / 4, times a scale that is learned per model from reported usage. The
estimate of tokens needs no tokenizer, so no tokenizer is downloaded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perdure.models.protocol import ModelRequest, ToolDeclaration
from perdure.session.codec import encode
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)

BYTES_PER_TOKEN = 4
MEDIA_TOKENS = 1_200
SCALE_MIN = 0.25
SCALE_MAX = 4.0
SCALE_WEIGHT = 0.3
"""Weight of the newest observation in `corrected_scale`."""

CUT_SHORT = frozenset({"error", "aborted"})
"""Stop reasons of interrupted answers."""


def estimate_tokens(message: Message, scale: float = 1.0) -> int:
    """Return the estimated tokens of `message`, rounded up.

    Shape: parts of unknown types count zero, because they are never sent.
    """
    return math.ceil(unscaled_tokens(message) * scale)


def unscaled_tokens(message: Message) -> float:
    """Return the unscaled estimate for `message`: a multiple of 1/4, so that sums are exact."""
    return sum(_unscaled_tokens(part) for part in message.parts)


def estimate_request(request: ModelRequest, scale: float = 1.0) -> int:
    """Return the estimated tokens of `request`: messages, instructions, declared tools."""
    around = math.ceil(unscaled_around(request.system, request.tools) * scale)
    return around + sum(estimate_tokens(message, scale) for message in request.messages)


def unscaled_around(system: str | None, tools: Sequence[ToolDeclaration]) -> float:
    """Return the unscaled estimate of a request's instructions and declared tools."""
    declared = len(encode([(t.name, t.description, t.parameters) for t in tools]))
    return (_byte_length(system or "") + declared) / BYTES_PER_TOKEN


def _unscaled_tokens(part: Part) -> float:
    match part:
        case TextPart() | ThinkingPart():
            return _byte_length(part.text) / BYTES_PER_TOKEN
        case ToolCallPart():
            length = _byte_length(part.name) + len(encode(part.args))
            return length / BYTES_PER_TOKEN
        case ToolResultPart():
            return _byte_length(part.text) / BYTES_PER_TOKEN + MEDIA_TOKENS * len(part.media)
        case MediaPart():
            return MEDIA_TOKENS
        case UnknownPart():
            return 0


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def context_tokens(messages: Sequence[Message], scale: float = 1.0) -> int:
    """Return the tokens of a call with `messages`: newest reported usage, plus estimates after it.

    Reported usage counts only if the answer was complete and the usage is not zero. Reported usage
    includes cached tokens. Usage reported before the newest compaction belongs to another context,
    so `build_context` removes it from the messages that it returns.
    """
    for position in range(len(messages) - 1, -1, -1):
        reported = reported_tokens(messages[position])
        if reported:
            later = messages[position + 1 :]
            return reported + sum(estimate_tokens(message, scale) for message in later)
    return sum(estimate_tokens(message, scale) for message in messages)


def reported_tokens(message: Message) -> int:
    """Return the usage reported with `message` if it can be used, else 0."""
    is_answer = message.role == "assistant" and message.stop_reason not in CUT_SHORT
    return message.usage.total_tokens if is_answer and message.usage else 0


def corrected_scale(scale: float, estimated: int, reported: int) -> float:
    """Return `scale`, adjusted towards the value that makes the estimate of a call exact.

    `estimated` was computed with `scale`; `reported` is the provider's count for the same call.
    Shape: the result is an exponentially weighted mean between `SCALE_MIN` and `SCALE_MAX`. If
    `estimated` or `reported` is zero or less, `scale` is returned unchanged.
    """
    if estimated <= 0 or reported <= 0:
        return scale
    right_now = scale * reported / estimated
    mean = (1 - SCALE_WEIGHT) * scale + SCALE_WEIGHT * right_now
    return min(SCALE_MAX, max(SCALE_MIN, mean))
