"""Where the settings and agents of a person are, and those of a project."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

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
