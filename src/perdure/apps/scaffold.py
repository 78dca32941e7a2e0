"""The files that ``perdure init`` and ``perdure flow init`` write into a project."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import msgspec

from perdure.stores.maintenance.atomic_file import write_new


class Made(msgspec.Struct, frozen=True):
    """A file of a project; `path` is relative to the folder of the project.

    `is_new` is True if the file was written now, False if it existed before.
    """

    path: str
    is_new: bool


def write_templates(
    folder: Path, kind: str, paths: Iterable[tuple[str, str]], namespace: str = ""
) -> tuple[Made, ...]:
    """Write the files that are missing in `folder`; create folders that are missing.

    If a folder cannot be created, no file is written. Each of `paths` is a pair: the name of a
    template of `kind`, and the path of the new file in `folder`. In the templates, ``{namespace}``
    is replaced by `namespace`. Each file is written atomically, because a command that reads half
    of the settings file would use another namespace.
    Raises: OSError.
    """
    templates = files("perdure") / "data" / kind
    named = tuple(paths)
    for _, path in named:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
    made: list[Made] = []
    for template, path in named:
        text = (templates / template).read_text("utf-8").replace("{namespace}", namespace)
        made.append(Made(path, write_new(folder / path, text)))
    return tuple(made)
