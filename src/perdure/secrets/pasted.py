"""What is done about a credential that somebody pasted where it would be stored in plain text.

Pure. A setting that is kept and sent with every request (a variable, an agent's file) refuses one;
what a person typed is theirs, and they are told (``docs/guides/tools.md``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.errors import SecretPasted
from perdure.secrets.masking import masked
from perdure.secrets.shapes import finds

PastePolicy = Literal["warn", "redact", "refuse"]


class Pasted(msgspec.Struct, frozen=True):
    """What to write, and what was found in it. Shape: `kinds` sorted, each once."""

    text: str
    kinds: tuple[str, ...] = ()


def pasted(text: str, policy: PastePolicy, place: str) -> Pasted:
    """`text` as it may be written in `place` under `policy`, and the kinds of secrets found.

    Raises: SecretPasted under ``refuse``, naming the place and the kind and never the value.
    """
    kinds = tuple(sorted({find.kind for find in finds(text)}))
    if kinds and policy == "refuse":
        raise SecretPasted(place, kinds)
    return Pasted(masked(text) if kinds and policy == "redact" else text, kinds)
