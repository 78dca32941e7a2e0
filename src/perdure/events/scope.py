"""Whose work is being done right now, for every span and log line: session, turn, flow, role, node.

Follows the flow of control into tasks that are begun within, and never beyond.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

Facts = Mapping[str, str | int]

NAMES = ("flow", "role", "node", "session", "turn")
"""What may be known, from the widest to the narrowest."""

_facts: ContextVar[Facts] = ContextVar("perdure_scope", default=MappingProxyType({}))


def scope() -> Facts:
    """What is known of the work that is being done. Shape: some of `NAMES`."""
    return _facts.get()


@contextmanager
def within(**facts: str | int | None) -> Generator[None]:
    """Say whose work is done in the block, besides what is said around it; None says nothing."""
    known = {name: value for name, value in facts.items() if value is not None}
    token = _facts.set({**_facts.get(), **known})
    try:
        yield
    finally:
        _facts.reset(token)
