"""The locations of a user's files: the folders of the XDG base directories."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from perdure.errors import ConfigError


def user_folder(variable: str, default: str, environment: Mapping[str, str]) -> Path:
    """Return the folder ``perdure`` of the user, which may not exist.

    `variable` names the environment variable of the base folder; a relative value is ignored, as
    the specification says. `default` is the base folder below the home folder. If no variable
    contains an absolute path of the home folder, the account's home folder is used.
    Raises: ConfigError without a home folder.
    """
    chosen = environment.get(variable, "")
    if chosen and Path(chosen).is_absolute():
        return Path(chosen) / "perdure"
    account = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    for home in (environment.get("HOME"), environment.get("USERPROFILE"), account):
        if home and Path(home).is_absolute():
            return Path(home, default, "perdure")
    raise ConfigError("there is no home folder: set HOME to an absolute path")
