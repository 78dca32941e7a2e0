"""The current session, turn, flow, role and node, for every span and log line.

The scope propagates into tasks that are started inside the block, and ends with the block.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

Facts = Mapping[str, str | int]

NAMES = ("flow", "role", "node", "session", "turn")
"""The names of the facts about the current work, from the widest to the narrowest."""

_facts: ContextVar[Facts] = ContextVar("perdure_scope", default=MappingProxyType({}))


def scope() -> Facts:
    """Return the facts about the current work. Shape: the keys are some of `NAMES`."""
    return _facts.get()


@contextmanager
def within(**facts: str | int | None) -> Generator[None]:
    """Add `facts` to the current scope inside the block; facts with the value None are skipped."""
    known = {name: value for name, value in facts.items() if value is not None}
    token = _facts.set({**_facts.get(), **known})
    try:
        yield
    finally:
        _facts.reset(token)
