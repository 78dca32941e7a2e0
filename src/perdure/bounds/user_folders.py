"""The locations of a user's files, according to the XDG base directory specification."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from perdure.errors import ConfigError


def user_folder(variable: str, default: str, environment: Mapping[str, str]) -> Path:
    """Return the user's folder ``perdure``; the folder might not exist.

    `variable` is the environment variable that names the base folder; a relative value is ignored,
    as the specification requires. If the variable is not set, the base folder is `default`,
    relative to the home folder. If no environment variable contains the home folder as an absolute
    path, the account's home folder is used.
    Raises: ConfigError if there is no home folder.
    """
    chosen = environment.get(variable, "")
    if chosen and Path(chosen).is_absolute():
        return Path(chosen) / "perdure"
    account = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    for home in (environment.get("HOME"), environment.get("USERPROFILE"), account):
        if home and Path(home).is_absolute():
            return Path(home, default, "perdure")
    raise ConfigError("there is no home folder: set HOME to an absolute path")
