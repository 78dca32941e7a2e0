"""Modules that most programs never use, loaded at their first use: opening a store stays quick.

Checkers see an ordinary import: ``if TYPE_CHECKING: from package import name``, and in its ``else``
``name = Later("package.name")``.
"""

from __future__ import annotations

import importlib


class Later:
    """Stands for the module `name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        value: object = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value
