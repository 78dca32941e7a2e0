"""The constants of pi's session files, version 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perdure.session.messages import StopReason

FORMAT: Final = "pi"
VERSION = 3
BASH = "bash_execution"
"""Custom type that perdure gives to a shell command that the user ran."""

LEAF_MARKER = "perdure.leaf"
"""Custom type of the record that moves the leaf to the record's parent."""

MOST_HEADER_BYTES = 512
"""Number of bytes that pi reads of a file to check whether it is a session."""

TOKENS = ("input", "output", "cacheRead", "cacheWrite")
"""Keys of the token counts, in the order of `Usage`."""

STOP_REASONS: Mapping[str | None, StopReason] = {
    "stop": "stop",
    "length": "length",
    "toolUse": "tool_calls",
    "error": "error",
    "aborted": "aborted",
}
"""pi's stop reason -> perdure's; a reason that pi does not know is written as ``error``."""
