"""Handle credentials that were pasted into places that store plain text.

Pure. Settings that are stored and sent with every request (a variable, an agent's file) reject
credentials. Text that a person typed is accepted with a warning (``docs/guides/tools.md``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from perdure.errors import SecretPasted
from perdure.secrets.mask import mask_secrets
from perdure.secrets.references import fill_references, names_in
from perdure.secrets.shapes import kinds_in

PastePolicy = Literal["warn", "redact", "refuse"]


class ScreenedText(msgspec.Struct, frozen=True):
    """The text to store, and the kinds of secrets found in it.

    Shape: `kinds` is sorted and contains each kind once.
    """

    text: str
    kinds: tuple[str, ...] = ()


def credentials_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the kind of each credential in a file's `text`, never its value.

    Shape: lines are counted from 1; a credential over several lines is reported at line 1. A
    reference to a secret is not a credential. In a line with a reference, the texts between braces
    and commas are checked one by one.
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
    """Return `text` as `policy` allows it, and the kinds of secrets found in it.

    `place` is where the text is used, for error messages.

    Raises: SecretPasted if a secret was found and `policy` is ``refuse``; the error states the
    place and the kind, never the value.
    """
    kinds = tuple(sorted(kinds_in(text)))
    if kinds and policy == "refuse":
        raise SecretPasted(place, kinds)
    return ScreenedText(mask_secrets(text) if kinds and policy == "redact" else text, kinds)
