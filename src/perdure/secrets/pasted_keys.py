"""What is done about a credential that somebody pasted where it would be stored in plain text.

Pure. A setting that is kept and sent with every request (a variable, an agent's file) refuses one;
what a person typed is theirs, and they are told (``docs/guides/tools.md``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from perdure.errors import SecretPasted
from perdure.secrets.mask import mask_secrets
from perdure.secrets.references import fill_references, names_in
from perdure.secrets.shapes import finds

PastePolicy = Literal["warn", "redact", "refuse"]


class ScreenedText(msgspec.Struct, frozen=True):
    """What to write, and what was found in it. Shape: `kinds` sorted, each once."""

    text: str
    kinds: tuple[str, ...] = ()


def credentials_in(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a file's `text` that hold credentials, and of what kind; never the values.

    Shape: lines count from 1; one of several lines is told at the first. A reference to a secret is
    none, and what stands around it in YAML's braces is looked at by itself.
    """
    is_found = False
    for number, line in enumerate(text.splitlines(), 1):
        for kind in sorted({kind for piece in _pieces(line) for kind in _kinds(piece)}):
            is_found = True
            yield number, kind
    if not is_found:
        without = (line for line in text.splitlines() if not names_in(line))
        yield from ((1, kind) for kind in _kinds("\n".join(without)))


def _kinds(text: str) -> tuple[str, ...]:
    return apply_paste_policy(text, "warn", "").kinds


def _pieces(line: str) -> list[str]:
    return re.split(r"[{},]", fill_references(line, lambda _: "")) if names_in(line) else [line]


def apply_paste_policy(text: str, policy: PastePolicy, place: str) -> ScreenedText:
    """`text` as it may be written in `place` under `policy`, and the kinds of secrets found.

    Raises: SecretPasted under ``refuse``, naming the place and the kind and never the value.
    """
    kinds = tuple(sorted({find.kind for find in finds(text)}))
    if kinds and policy == "refuse":
        raise SecretPasted(place, kinds)
    return ScreenedText(mask_secrets(text) if kinds and policy == "redact" else text, kinds)
