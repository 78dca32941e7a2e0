"""The decorator for built-in tools that need approval."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from perdure.tools.decorator import FunctionTool
from perdure.tools.spec import Action, Bind, Examine

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


def proposing(
    action: Action | None,
    examine: Examine | None = None,
    *,
    bind: Bind | None = None,
    is_gated: bool = False,
    is_outside: bool = False,
    config_only: frozenset[str] = frozenset(),
) -> Callable[[FunctionTool[P, R_co]], FunctionTool[P, R_co]]:
    """Return a decorator that makes a tool need approval. The arguments are those of `ToolSpec`."""

    def marked(spec: FunctionTool[P, R_co]) -> FunctionTool[P, R_co]:
        return msgspec.structs.replace(
            spec,
            action=action,
            examine=examine,
            bind=bind,
            is_gated=is_gated,
            is_outside=is_outside,
            config_only=config_only,
        )

    return marked
