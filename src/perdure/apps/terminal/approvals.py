"""An approval as lines: every argument, what the answer is bound to, and what "always" allows.

What a model wrote stands behind a bar, so that it cannot pass for a line of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Protocol, cast

from perdure.apps.terminal.text import safe

BAR = "    | "
FEW_LINES = 12


class Approval(Protocol):
    """What is shown of a question."""

    @property
    def arguments(self) -> Mapping[str, object] | None: ...

    @property
    def bound(self) -> Mapping[str, str] | None: ...

    @property
    def diff(self) -> str | None: ...

    @property
    def grant(self) -> str | None: ...

    @property
    def choices(self) -> tuple[str, ...]: ...


def approval_lines(asked: Approval, *, limit: int | None = FEW_LINES) -> Iterator[str]:
    """The lines of `asked`, at most `limit` of each argument and of the diff (None: all)."""
    for name, value in (asked.arguments or {}).items():
        yield from _argument(name, value, limit)
    for name, text in (asked.bound or {}).items():
        yield f"  {_plain(name)}: {_plain(text)}"
    if asked.diff:
        yield "  change:"
        yield from _block(asked.diff, limit)
    if asked.grant and "always" in asked.choices:
        yield f"  always: from now on in this session, without asking: {_plain(asked.grant)}"


def _argument(name: str, value: object, limit: int | None) -> Iterator[str]:
    label = f"  {_plain(name)}"
    if isinstance(value, dict) and set(cast("dict[str, object]", value)) == _CUT:
        cut = cast("dict[str, object]", value)
        digest = _plain(str(cut["blake2b_256"]))
        yield f"{label}: {cut['bytes']} bytes, blake2b-256 {digest}, begins:"
        yield from _block(str(cut["head"]), limit)
        return
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if "\n" not in text:
        yield f"{label} = {_plain(text) if text else '(empty)'}"
        return
    yield f"{label}:"
    yield from _block(text, limit)


_CUT = {"head", "bytes", "blake2b_256"}


def _block(text: str, limit: int | None) -> Iterator[str]:
    lines = text.split("\n")
    shown = lines if limit is None else lines[:limit]
    for line in shown:
        yield BAR + safe(line)
    if len(shown) < len(lines):
        yield f"    [{len(lines) - len(shown)} more lines]"


def _plain(text: str) -> str:
    """`text` on one line."""
    return safe(text).replace("\n", "\N{REPLACEMENT CHARACTER}").replace("\t", " ")
