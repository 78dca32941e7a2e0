"""Signatures of the fake services: a service accepts only its own signatures."""

from __future__ import annotations

import base64
import hashlib


def signature_of(text: str) -> str:
    """Return the signature of `text`, in base64."""
    return base64.b64encode(hashlib.sha256(b"signed " + text.encode()).digest()).decode()


def is_signed(text: str, signature: str) -> bool:
    """Return whether `signature` is the signature of `text`."""
    return signature == signature_of(text)
