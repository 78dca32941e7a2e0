"""One setting, for those who need no more of them.

Imports little: every command starts with it. What reads the files is loaded where there are any.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.apps.settings.places import person_file, project_file


def setting(
    key: str, start: Path | None = None, environment: Mapping[str, str] | None = None
) -> str | None:
    """What the settings files and `environment` say of `key`; None where they say nothing.

    An MCP server that cannot be used is for those to tell who use servers.
    `start` and `environment` are those of this process where they are not given.
    Raises: as `layers.Configuration`.
    """
    folder = Path() if start is None else start
    environment = os.environ if environment is None else environment
    if project_file(folder) is None and not person_file(environment).exists():
        return None
    layers: Any = importlib.import_module("perdure.apps.settings.layers")
    configuration = layers.Configuration(folder, environment, is_lenient=True)
    return configuration.value(key) if configuration.is_set(key) else None
