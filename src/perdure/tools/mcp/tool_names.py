"""The names of a server's tools for a model.

Pure. A name is the same on every machine and at every time; no two tools share one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

MAX_NAME = 128
"""Maximum length of ``mcp_{server}_{tool}``; tools with longer names are dropped."""

SHOWN_NAME = 64
"""Maximum length that all providers accept; longer names are cut, with a hash of the whole."""

_foreign = re.compile(r"[^A-Za-z0-9_-]")
_HASH_DIGITS = 8


def tool_name(prefix: str, tool: str) -> str | None:
    """Return the name of the tool here; None if it is too long or empty."""
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
    """Return (name here -> tool) for usable tools, and (tool -> reason) for the others.

    If two would have the same name, the first gets it. `taken` are names of other tools.
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
