"""The constants of Operator's session files, version 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perdure.session.messages import StopReason

FORMAT: Final = "operator"
VERSION = 3
HEADER = "session"
HEADERS = (HEADER, "session_header")
"""Types of a header line: the one Operator writes, and the one in its documentation."""

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
"""Keys of the token counts: the names of the same fields of `Usage`, in the same order."""

META = ("reply_to", "channel_message_id", "attachments", "reactions")
"""Keys of the metadata that a gateway adds to a message."""

NAME = "perdure.name"
"""Key for the tool's name in a tool result's metadata; Operator's results have no such field."""

WORDS: Mapping[StopReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "aborted": "abort",
    "error": "error",
}
"""Perdure's stop reason -> Operator's word for it, one to one."""

STOP_REASONS: Mapping[str | None, StopReason] = {word: reason for reason, word in WORDS.items()}
