"""Limit the length of lines that a server's program writes.

The protocol library buffers a line of any length in memory. Only the codec that decodes the bytes
can stop the library before it buffers a line that is too long.
"""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable
from contextvars import ContextVar

from perdure.bounds.limits import limits

LINES_WITHIN = "perdure_lines_within"
"""Name of a codec for UTF-8 that rejects lines longer than ``limits.mcp_answer_bytes``."""

_log = logging.getLogger(__name__)
_stop: ContextVar[Callable[[], object]] = ContextVar("perdure_stop_at_long_line")


def stop_at_long_line(stop: Callable[[], object]) -> None:
    """Call `stop` if this task, or a task that it starts, decodes a line that is too long."""
    _stop.set(stop)


class LineTooLong(ValueError):
    """Raised for a line of a server's program that is longer than the limit."""


class _Decoder(codecs.IncrementalDecoder):
    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._inner = codecs.getincrementaldecoder("utf-8")(errors)
        self._bytes = 0

    def decode(self, input: object, final: bool = False) -> str:  # noqa: FBT001, FBT002 - as in codecs
        chunk = bytes(input)  # pyright: ignore[reportArgumentType] # a buffer of any kind
        ended = chunk.rfind(b"\n")
        self._bytes = self._bytes + len(chunk) if ended < 0 else len(chunk) - ended - 1
        most = limits().mcp_answer_bytes
        if self._bytes > most:
            _log.warning(
                "an MCP server wrote a line longer than limits.mcp_answer_bytes = %s", most
            )
            stop = _stop.get(None)
            if stop is not None:
                stop()
            raise LineTooLong
        return self._inner.decode(chunk, final)

    def reset(self) -> None:
        self._inner.reset()
        self._bytes = 0


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if name != LINES_WITHIN:
        return None
    plain = codecs.lookup("utf-8")
    return codecs.CodecInfo(
        encode=plain.encode, decode=plain.decode, incrementaldecoder=_Decoder, name=LINES_WITHIN
    )


codecs.register(_find_codec)
