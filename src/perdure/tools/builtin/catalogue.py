"""The built-in tools by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from perdure.errors import ConfigError
from perdure.errors.advice import nearest_name
from perdure.tools import builtin
from perdure.tools.decorator import tool
from perdure.tools.spec import ToolOutput, ToolSpec


@tool(effect="read", on_unknown="retry")
async def end_session(reason: str) -> ToolOutput:
    """End this session, because its purpose is achieved or cannot be achieved.

    The end takes effect when your answer to this turn is finished.

    Args:
        reason: Why the session ends, in one sentence.
    """
    text = f"The session ends when this turn is finished ({reason})."
    return ToolOutput(text, ends_session=True)


def _tools() -> Iterator[ToolSpec]:
    """Yield the tools of all modules in this folder: each variable that is a `ToolSpec`."""
    yield end_session
    for found in pkgutil.iter_modules(builtin.__path__, f"{builtin.__name__}."):
        if found.name != __name__:
            module = importlib.import_module(found.name)
            yield from (each for each in vars(module).values() if isinstance(each, ToolSpec))


BUILTIN: Mapping[str, ToolSpec] = {
    spec.name: spec
    for spec in sorted(_tools(), key=lambda spec: (spec.effect != "read", spec.name))
}
"""Maps names to tools. Tools that only read come first."""


def with_names(
    tools: Iterable[str | ToolSpec | Callable[..., Any]],
) -> tuple[ToolSpec | Callable[..., Any], ...]:
    """Return `tools` with each name replaced by its built-in tool.

    Raises: ConfigError for a name that no built-in tool has.
    """
    return tuple(_builtin_tool(each) if isinstance(each, str) else each for each in tools)


def _builtin_tool(name: str) -> ToolSpec:
    if name not in BUILTIN:
        near = nearest_name(name, BUILTIN)
        advice = f"did you mean {near!r}?" if near else f"there are: {', '.join(BUILTIN)}"
        error = ConfigError(f"there is no built-in tool {name!r}; {advice}", argument="tools")
        error.item = name
        raise error
    return BUILTIN[name]
