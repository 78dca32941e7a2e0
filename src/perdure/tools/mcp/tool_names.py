"""The names under which a model sees the tools of a server.

Pure. A name is the same on every machine and at every time; no two tools have the same one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

MAX_NAME = 128
"""Longest ``mcp_{server}_{tool}``; what is longer is left out."""

SHOWN_NAME = 64
"""Longest name that all providers accept; what is longer is cut, with a hash of the whole."""

_foreign = re.compile(r"[^A-Za-z0-9_-]")
_HASH_DIGITS = 8


def tool_name(prefix: str, tool: str) -> str | None:
    """What the tool is called here; None when its name is too long or empty."""
    whole = prefix + tool
    if not tool or len(whole) > MAX_NAME:
        return None
    name = _foreign.sub("_", whole)
    if len(name) <= SHOWN_NAME:
        return name
    digest = hashlib.blake2b(whole.encode(), digest_size=_HASH_DIGITS // 2).hexdigest()
    return f"{name[: SHOWN_NAME - _HASH_DIGITS - 1]}_{digest}"


def assign_names(
    prefix: str, tools: Iterable[str], taken: Iterable[str] = ()
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Name here -> tool of those that can be had, and tool -> why not of the others.

    Of two that would have the same name the first is kept. `taken` are names of other tools.
    """
    used = set(taken)
    kept: dict[str, str] = {}
    refused: dict[str, str] = {}
    for tool in tools:
        name = tool_name(prefix, tool)
        if name is None:
            refused[tool[:MAX_NAME]] = f"its name is empty or longer than {MAX_NAME} characters"
        elif name in used:
            refused[tool] = f"there is another tool called {name}"
        else:
            used.add(name)
            kept[name] = tool
    return kept, refused
