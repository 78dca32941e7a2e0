"""Modules that most programs never use, loaded at their first use: opening a store stays quick.

Checkers see an ordinary import: ``if TYPE_CHECKING: from package import name``, and in its ``else``
``name = Later("package.name")``.
"""

from __future__ import annotations

import importlib

from perdure.stores.access.collector import collector_paused


class Later:
    """Stands for the module `name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        with collector_paused():
            module = importlib.import_module(self._name)
        value: object = getattr(module, attribute)
        setattr(self, attribute, value)
        return value
