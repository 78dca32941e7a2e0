"""The settings of a project: ``.perdure/config.toml``, found from any folder below it.

A file like this comes with whatever somebody clones. So it only says in which namespace of the
person's own store the project's sessions are; it cannot name a store, a model or anything to run.

    [store]
    namespace = "my-project"
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from perdure.errors import ConfigError

FOLDER = ".perdure"
FILE = "config.toml"


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


def project_namespace(start: Path) -> str | None:
    """The namespace of the project that `start` is in; None where nobody has set one.

    Raises: ConfigError when the settings cannot be read, or hold what nobody reads.
    """
    file = project_file(start)
    return None if file is None else namespace_in(file)


def namespace_in(file: Path) -> str | None:
    """The namespace that the settings `file` names.

    Raises: as `project_namespace`.
    """
    store = _store_table(file)
    unknown = sorted(set(store) - {"namespace"})
    if unknown:
        raise ConfigError(
            f"{file}: [store] cannot set {', '.join(unknown)}; a project only names its namespace"
        )
    namespace = store.get("namespace")
    if namespace is not None and (not isinstance(namespace, str) or not namespace.strip()):
        raise ConfigError(f"{file}: [store] namespace is a name in quotes")
    return namespace


def _store_table(file: Path) -> Mapping[str, object]:
    # By name: only those who are in a project need it.
    reader: Any = importlib.import_module("tomllib")
    try:
        settings: dict[str, object] = reader.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror})") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(f"{file} is no TOML: {error}; correct it, or delete it") from error
    table = settings.get("store", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: [store] is a table")
    return cast("dict[str, object]", table)
