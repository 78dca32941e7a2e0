"""Parts of error messages: the nearest valid name, and how to install an extra."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the item of `names` that is most similar to `name`; None if none is similar enough."""
    difflib: Any = importlib.import_module("difflib")  # only errors need it
    like: list[str] = difflib.get_close_matches(name, list(names), 1)
    return like[0] if like else None


def install_of(extra: str) -> str:
    """Return the command that installs perdure with `extra`, from the registry and from a clone."""
    return f"pip install 'perdure[{extra}]' (from a clone: '.[{extra}]')"
