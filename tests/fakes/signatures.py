"""Signatures as the fake services make them: only what they signed themselves passes them again."""

from __future__ import annotations

import base64
import hashlib


def signature_of(text: str) -> str:
    """The signature of `text`, in base64."""
    return base64.b64encode(hashlib.sha256(b"signed " + text.encode()).digest()).decode()


def is_signed(text: str, signature: str) -> bool:
    """Whether `signature` signs `text`."""
    return signature == signature_of(text)
