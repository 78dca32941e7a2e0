"""Texts of providers made fit to be shown and stored: no key in them, one line, not too long."""

from __future__ import annotations

import re
from collections.abc import Collection

REDACTED = "[redacted]"
MAX_CHARS = 400

_KEY_SHAPES = (
    # Provider keys, whole or partly starred out as their own error messages quote them.
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
    """`text` as one line of at most `MAX_CHARS`, without `secrets` and what looks like a key."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, REDACTED)
    for shape in _KEY_SHAPES:
        text = shape.sub(REDACTED, text)
    text = " ".join(text.split())
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"
