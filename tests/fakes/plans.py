"""What a model is to do with every request, said without a word of any wire format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.models.scenario import ErrorCode
from perdure.session.messages import StopReason, Usage

USAGE = Usage(100, 20, cache_read_tokens=30)


@dataclass(frozen=True)
class Plan:
    """What the model does with every request. Without more it answers, cleanly.

    `error` ends the call before anything came, with `after_words` when the text has come. `calls`
    are (id, name, arguments). `ends` says how the answer ends when there is no error.
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
    pause_s: float = 0.0
