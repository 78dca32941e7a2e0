"""Where the files of a user are: the folders of the XDG base directories."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def user_folder(variable: str, default: str, environment: Mapping[str, str]) -> Path:
    """Return the folder ``perdure`` of the user, which may not exist.

    `variable` names the environment variable of the base folder; a relative value is ignored, as
    the specification says. `default` is the base folder below the home folder. Without a variable
    for the home folder, it is the one of the account.
    """
    chosen = environment.get(variable, "")
    if chosen and Path(chosen).is_absolute():
        return Path(chosen) / "perdure"
    home = environment.get("HOME") or environment.get("USERPROFILE")
    account = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    return Path(home or account, default, "perdure")
