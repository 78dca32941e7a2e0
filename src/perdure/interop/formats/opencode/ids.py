"""Create ids in opencode's form: kind, 12 hex digits (time, number), 14 letters or digits."""

from __future__ import annotations

import hashlib

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TIMES = 2**48


def opencode_id(kind: str, at: int, number: int, seed: str) -> str:
    """Return the opencode id of a record of `kind`, made from its time `at`, `number` and `seed`.

    Units: `at` is Unix milliseconds.
    """
    time = (at * 0x1000 + number) % _TIMES
    if kind == "ses":
        time = _TIMES - 1 - time  # the newest session first
    digest = hashlib.sha256(f"{seed}:{kind}:{number}".encode()).digest()
    return f"{kind}_{time:012x}" + "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:14])


def is_id_of(id: str, kind: str, at: int, seed: str) -> bool:
    """Return whether `opencode_id` created `id` for `kind`, `at` and `seed` with any number."""
    digits = id.removeprefix(f"{kind}_")[:12]
    try:
        time = int(digits, 16)
    except ValueError:
        return False
    if kind == "ses":
        time = _TIMES - 1 - time
    number = (time - at * 0x1000) % _TIMES
    return id == opencode_id(kind, at, number, seed)
