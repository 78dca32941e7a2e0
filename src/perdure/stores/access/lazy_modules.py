"""Load rarely used modules at their first use, so that opening a store stays fast.

Type checkers see an ordinary import (``if TYPE_CHECKING: from package import name``). The ``else``
branch contains ``name = Later("package.name")``.
"""

from __future__ import annotations

import importlib

from perdure.stores.access.collector import collector_paused_to_load


class Later:
    """A proxy that imports the module `name` at its first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        with collector_paused_to_load():
            module = importlib.import_module(self._name)
        value: object = getattr(module, attribute)
        setattr(self, attribute, value)
        return value
