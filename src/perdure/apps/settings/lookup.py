"""One setting, for those who need no more of them.

Imports little: every command starts with it. What reads the files is loaded where there are any.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.bounds.files import read_named
from perdure.errors import PerdureError


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


def apply_limits(environment: Mapping[str, str] | None = None) -> None:
    """Make the limits of the person's settings those of this process.

    Settings that cannot be read are for the commands to report that use them.
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
    """The person's own settings file, whether it is there or not."""
    chosen = environment.get("XDG_CONFIG_HOME", "")
    if chosen and Path(chosen).is_absolute():
        return Path(chosen) / "perdure" / FILE
    home = environment.get("HOME") or environment.get("USERPROFILE") or os.curdir
    return Path(home) / ".config" / "perdure" / FILE


def project_file(start: Path) -> Path | None:
    """The settings file of the project that the folder `start` is in; None in no project.

    The home folder is no project: what lies in it is not about the folders below.
    """
    folder = start.absolute()
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    for each in (folder, *folder.parents):
        if str(each) != home and (each / FOLDER / FILE).is_file():
            return each / FOLDER / FILE
    return None


def agent_folders(start: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    """The folders of agent files, ``project`` first where `start` is in one, then ``user``."""
    project = project_file(start)
    folders = {} if project is None else {"project": project.parent / AGENTS}
    return {**folders, "user": person_file(environment).parent / AGENTS}
