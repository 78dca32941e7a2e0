"""Reads a single setting.

This module imports little, because every command loads it. The reader of settings files is loaded
only if a settings file exists.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perdure.bounds.files import read_named
from perdure.bounds.user_folders import user_folder
from perdure.errors import ConfigError, PerdureError


def setting(
    key: str, start: Path | None = None, environment: Mapping[str, str] | None = None
) -> str | None:
    """Return the value of `key` from the settings files and `environment`; None if it is not set.

    Invalid MCP servers are reported only by commands that use servers. `start` and `environment`
    default to the values of this process.
    Raises: the errors of `layers.Configuration`.
    """
    folder = Path() if start is None else start
    environment = os.environ if environment is None else environment
    if project_file(folder) is None and not person_file(environment).exists():
        return None
    layers: Any = importlib.import_module("perdure.apps.settings.layers")
    configuration = layers.Configuration(folder, environment, is_lenient=True)
    return configuration.value(key) if configuration.is_set(key) else None


def apply_limits(environment: Mapping[str, str] | None = None) -> None:
    """Apply the limits of the user's settings to this process.

    If the settings cannot be read, this function does nothing; commands that use settings report
    the error.
    """
    environment = os.environ if environment is None else environment
    try:
        if b"limits" not in read_named(person_file(environment)):
            return
        layers: Any = importlib.import_module("perdure.apps.settings.layers")
        configuration = layers.Configuration(Path(), environment, is_lenient=True)
    except (OSError, PerdureError):
        return
    bounds: Any = importlib.import_module("perdure.bounds.limits")
    named = bounds.InputLimits.__struct_fields__
    values = {name: configuration.value(f"limits.{name}") for name in named}
    bounds.use_input_limits(bounds.InputLimits(**values))


FOLDER = ".perdure"
FILE = "config.toml"
AGENTS = "agents"


def person_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's settings file; the file might not exist.

    Without a home folder, the path is below the null device, where no file can exist.
    """
    try:
        return user_folder("XDG_CONFIG_HOME", ".config", environment) / FILE
    except ConfigError:
        return Path(os.devnull, FILE)


def project_file(start: Path) -> Path | None:
    """Return the settings file of the project that contains `start`; None outside of a project.

    The home folder is never a project, so its files do not apply to the folders below it.
    """
    files = (each / FILE for each in _folders_around(start))
    return next((file for file in files if file.is_file()), None)


def agent_folders(start: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    """Return the folders of agent files: ``project`` if `start` is in a project, then ``user``.

    The project is the nearest folder that contains a folder of agents or a settings file.
    """
    around = _folders_around(start)
    found = (
        each / AGENTS for each in around if (each / FILE).is_file() or (each / AGENTS).is_dir()
    )
    project = next(found, None)
    folders = {} if project is None else {"project": project}
    return {**folders, "user": person_file(environment).parent / AGENTS}


def _folders_around(start: Path) -> Iterator[Path]:
    """Return the folders around `start` that can contain a project's files, the nearest first."""
    folder = start.absolute()
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    return (each / FOLDER for each in (folder, *folder.parents) if str(each) != home)
