"""A model's answer to every request, described without any wire format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.models.scenario import ErrorCode
from perdure.session.messages import StopReason, Usage

USAGE = Usage(100, 20, cache_read_tokens=30)


@dataclass(frozen=True)
class Plan:
    """The model's answer to every request. By default, the model answers without an error.

    `error` ends the call before any output. With `after_words`, the error ends the call after the
    text. `calls` contains the id, the name and the arguments of each call. `ends` is the stop
    reason of an answer without an error.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str, Mapping[str, object]], ...] = ()
    usage: Usage = USAGE
    stop_reason: StopReason | None = None
    error: ErrorCode | None = None
    retry_after_s: float | None = None
    after_words: bool = False
    ends: str = "cleanly"
    chunk_chars: int = 8
